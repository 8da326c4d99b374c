"""One model asked everything: its answers and their scores, written so that nothing has to be asked again.

The questions are gone through image by image, those that come twice are asked once, and maps are brought to pixels and
scored together, on the device. ``answers.parquet`` has a row for each (instance, condition) that is asked,
``scores.parquet`` one for each target of it, and ``about.json``, written last, says that both are whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rightlung.core import Grounding, Image, InputError
from rightlung.models.base import Grounder, Matcher, RegionGrounder
from rightlung.models.fingerprint import weights_digest
from rightlung.reproduce.wrong_lung.files import DECIMALS, read_json, rounded, write_json, write_table
from rightlung.reproduce.wrong_lung.instances import Asked, Instance, Instances
from rightlung.reproduce.wrong_lung.pixels import (
    distribution,
    entropy,
    peaks,
    symmetric_divergence,
    to_pixels,
    unpacked,
)
from rightlung.scoring.localisation import score

METRICS = (
    "auroc", "average_precision", "pointing", "iou@5", "iou@10", "iou@30", "precision@5", "precision@10",
    "precision@30", "mass_inside",
)  # fmt: skip

GIVE_UP_AFTER = 100
"""Questions that may go unanswered, before any was answered, until the model is taken to be broken."""

Progress = Callable[[int, int], None]
"""Called with the images that are done and how many there are."""

_PIXELS_AT_ONCE = 1 << 25
_LONGEST_REASON = 500
_ANSWERS = pa.schema(
    [
        ("instance", pa.int32()),
        ("condition", pa.string()),
        *((name, pa.float32()) for name in ("entropy", "abstention", "similarity_global", "similarity_local")),
        *((name, pa.float32()) for name in ("kl_random", "peak_x", "peak_y")),
        ("peak_side", pa.string()),
        ("error", pa.string()),
    ]
)  # fmt: skip
_SCORES = pa.schema(
    [("instance", pa.int32()), ("condition", pa.string()), ("target", pa.string())]
    + [(name, pa.float32()) for name in METRICS]
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for one instance under one condition."""

    instance: Instance
    condition: str
    asked: Asked


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question: a grounding, similarities where the model has them, or why there is nothing."""

    grounding: Grounding | None = None
    similarity_global: float | None = None
    similarity_local: float | None = None
    error: str | None = None
    by_region: bool = False  # whether attention is spread over the boxes of regions, of which the map is painted


class Pointer(Protocol):
    """Whatever is measured: a model, or something that answers like one."""

    def same(self, question: Question) -> Hashable:
        """Return what the answer depends on besides the image: questions that agree in both are asked once."""

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer questions one by one; those about one image come together."""


@dataclass(slots=True)
class ModelPointer:
    """A `Grounder` or a `RegionGrounder`, with similarities where it is a `Matcher`, too."""

    model: Any
    instances: Instances

    def __post_init__(self) -> None:
        if not isinstance(self.model, Grounder | RegionGrounder):
            raise InputError(f"{type(self.model).__name__} cannot ground phrases, so there is nothing to measure")

    def same(self, question: Question) -> Hashable:
        """Return the words."""
        return question.asked.text

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask about all at once, each image the same array throughout."""
        numbers = dict.fromkeys(question.asked.image for question in questions)
        at_hand = {number: self.instances.image(number) for number in numbers}
        images = [at_hand[question.asked.image] for question in questions]
        texts = [question.asked.text for question in questions]
        by_region = not isinstance(self.model, Grounder)
        if not by_region:
            groundings = self.model.ground(images, texts)
        else:
            regions = [self.instances.shown[question.asked.image].regions for question in questions]
            groundings = self.model.ground_regions(images, texts, regions)
        if len(groundings) != len(questions):
            raise InputError(f"the model gave {len(groundings)} groundings for {len(questions)} phrases")
        for grounding in groundings:
            if not isinstance(grounding, Grounding):
                raise InputError(f"a model must return Grounding values; got {type(grounding).__name__}")
        similar = self._similarities(images, texts, questions)
        return [
            Answer(grounding, whole, local, by_region=by_region)
            for grounding, (whole, local) in zip(groundings, similar, strict=True)
        ]

    def _similarities(
        self, images: list[Image], texts: list[str], questions: Sequence[Question]
    ) -> list[tuple[float | None, float | None]]:
        found: list[tuple[float | None, float | None]] = [(None, None)] * len(texts)
        if isinstance(self.model, Matcher):
            by_image: dict[int, list[int]] = {}
            for place, image in enumerate(images):
                by_image.setdefault(id(image), []).append(place)
            for places in by_image.values():  # every image with its own texts, not with everybody's
                compared = self.model.similarity([images[places[0]]], [texts[place] for place in places])
                for column, place in enumerate(places):
                    local = None if compared.local is None else float(compared.local[0, column])
                    found[place] = float(compared.whole[0, column]), local
        elif isinstance(self.model, RegionGrounder):
            regions = [self.instances.shown[question.asked.image].regions for question in questions]
            values = self.model.similarity_regions(images, texts, regions)
            found = [(float(value) if math.isfinite(value) else None, None) for value in values]
        return found


def measure(
    model: object,
    instances: Instances,
    folder: str | Path,
    *,
    about: Mapping[str, Any],
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Measure a model on all instances under all conditions, write its folder, and return what ``about.json`` says.

    Parameters
    ----------
    model
        A `Grounder` or a `RegionGrounder`, on whatever device; similarities are taken where it is a `Matcher`.
    about
        What ``about.json`` is to say of the model. ``weights`` is worked out where it is not given.
    device
        Where maps are brought to pixels and scored.
    batch_size
        Questions handed to the model at once, at least those about one image.

    A question that the model fails at becomes a row with the reason; one that fails at all of them is refused.
    """
    known = {"weights": weights_digest(model), **about}
    return measure_pointer(
        ModelPointer(model, instances), instances, folder, about=known, device=device, batch_size=batch_size,
        progress=progress,
    )  # fmt: skip


def measure_pointer(
    pointer: Pointer,
    instances: Instances,
    folder: str | Path,
    *,
    about: Mapping[str, Any],
    device: torch.device | str = "cpu",
    batch_size: int = 256,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Do what `measure` does with anything that answers."""
    if batch_size < 1:
        raise InputError(f"the batch size must be at least 1; got {batch_size}")
    folder, began = Path(folder), time.monotonic()
    rows = _Rows(instances, torch.device(device))
    asker = _Asker(pointer)
    for done, questions in _batches(instances, batch_size):
        place_of: dict[Hashable, int] = {}
        places = [place_of.setdefault(_same(pointer, question), len(place_of)) for question in questions]
        distinct = [questions[places.index(place)] for place in range(len(place_of))]
        rows.add(questions, places, asker.ask(distinct))
        progress(done, len(instances.shown))
    if not asker.answered:
        raise InputError(f"the model answered none of the questions; the first failed with: {asker.failure}")
    whole = {
        **about,
        "protocol": instances.about["protocol"],
        "measured": {
            "instances": len(instances),
            "questions": len(rows.answers["instance"]),
            "errors": sum(error is not None for error in rows.answers["error"]),
            "size": instances.size,
            "seconds": round(time.monotonic() - began, 1),
            "device": str(rows.device),
        },
    }
    mark = folder / "about.json"
    mark.unlink(missing_ok=True)  # what is being replaced must not be taken for whole
    write_table(folder / "answers.parquet", rows.answers, _ANSWERS)
    write_table(folder / "scores.parquet", rows.score_columns(), _SCORES)
    write_json(mark, whole)
    return whole


def is_measured(folder: str | Path, instances: Instances) -> bool:
    """Whether a folder holds the whole measurement of a model on these very instances."""
    mark = Path(folder) / "about.json"
    return mark.exists() and read_json(mark).get("protocol") == instances.about["protocol"]


def _same(pointer: Pointer, question: Question) -> Hashable:
    return question.asked.image, pointer.same(question)


def _batches(instances: Instances, least: int) -> Iterator[tuple[int, list[Question]]]:
    """Yield questions about some images at a time, and how many images are done then; an image is never divided."""
    by_image: dict[int, list[Question]] = {number: [] for number in range(len(instances.shown))}
    for instance in instances:
        for condition, asked in instance.asked.items():
            by_image[asked.image].append(Question(instance, condition, asked))
    batch: list[Question] = []
    for number, questions in by_image.items():
        batch += questions
        if batch and (len(batch) >= least or number == len(by_image) - 1):
            yield number + 1, batch
            batch = []


@dataclass(slots=True)
class _Asker:
    """Asks in batches; an error is tracked down to the question that causes it."""

    pointer: Pointer
    answered: bool = False
    failed: int = 0
    failure: str = ""

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        try:
            found = self.pointer.answers(questions)
        except Exception as error:
            # Only words are kept: the error itself holds on to the tensors of the call that failed.
            reason = _reason(error)
        else:
            self.answered = True
            return found
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(questions) > 1:
            half = len(questions) // 2
            return [*self.ask(questions[:half]), *self.ask(questions[half:])]
        self.failed += 1
        self.failure = self.failure or reason
        if not self.answered and self.failed >= GIVE_UP_AFTER:
            raise InputError(
                f"the model answered none of the first {self.failed} questions; the first failed with: {self.failure}"
            )
        return [Answer(error=reason)]


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, InputError) else type(error).__name__
    return (": ".join(part for part in (kind, text) if part) or "no reason given")[:_LONGEST_REASON]


@dataclass(slots=True)
class _Rows:
    """The two tables as they grow."""

    instances: Instances
    device: torch.device
    answers: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _ANSWERS.names})
    _keys: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _SCORES.names[:3]})
    _values: list[NDArray[np.float32]] = field(default_factory=list)

    def add(self, questions: Sequence[Question], places: Sequence[int], answers: Sequence[Answer]) -> None:
        """Take in questions; ``places`` says which of ``answers`` is each one's."""
        there = [place for place, answer in enumerate(answers) if answer.grounding is not None]
        groundings = [answer.grounding for answer in answers if answer.grounding is not None]
        row_of = {place: row for row, place in enumerate(there)}
        maps = to_pixels(groundings, self.instances.size, self.device)
        self._add_scores(questions, [row_of.get(place) for place in places], maps)
        middles = [0.5] * len(groundings)
        for question, place in zip(questions, places, strict=True):
            if place in row_of:
                middles[row_of[place]] = self.instances.shown[question.asked.image].midline
        x, y, sides = peaks(maps, middles) if groundings else (np.zeros(0), np.zeros(0), [])
        shares = [distribution(groundings[row], answers[place].by_region) for place, row in row_of.items()]
        random_of = {
            question.instance.number: row_of.get(place)
            for question, place in zip(questions, places, strict=True)
            if question.condition == "random-sentence"
        }
        for question, place in zip(questions, places, strict=True):
            answer, row = answers[place], row_of.get(place)
            values: dict[str, Any] = dict.fromkeys(_ANSWERS.names)
            values |= {"instance": question.instance.number, "condition": question.condition, "error": answer.error}
            if row is not None:
                own = shares[row][1]
                values |= {
                    "entropy": None if own is None else _kept(entropy(own)),
                    "abstention": _kept(groundings[row].abstention),
                    # Not rounded: they are compared with each other, and rounding makes ties.
                    "similarity_global": answer.similarity_global,
                    "similarity_local": answer.similarity_local,
                    "peak_x": _kept(float(x[row])),
                    "peak_y": _kept(float(y[row])),
                    "peak_side": sides[row],
                }
                other = random_of.get(question.instance.number) if question.condition == "none" else None
                if other is not None and own is not None and shares[other][0] == shares[row][0]:
                    second = shares[other][1]
                    values["kl_random"] = None if second is None else _kept(symmetric_divergence(own, second))
            for name, value in values.items():
                self.answers[name].append(value)

    def _add_scores(self, questions: Sequence[Question], rows: Sequence[int | None], maps: torch.Tensor) -> None:
        """Score every map against every target of its questions; a pair that comes twice is scored once."""
        pairs: dict[tuple[int, int], int] = {}
        wanted = []
        for question, row in zip(questions, rows, strict=True):
            if row is None:
                continue
            for target, mask in question.instance.targets_under(question.condition):
                for name, value in zip(self._keys, (question.instance.number, question.condition, target), strict=True):
                    self._keys[name].append(value)
                wanted.append(pairs.setdefault((row, mask), len(pairs)))
        if wanted:
            self._values.append(self._scored(list(pairs), maps)[wanted])

    def _scored(self, pairs: Sequence[tuple[int, int]], maps: torch.Tensor) -> NDArray[np.float32]:
        size = self.instances.size
        step = max(1, _PIXELS_AT_ONCE // size**2)
        parts = []
        for begin in range(0, len(pairs), step):
            some = pairs[begin : begin + step]
            chosen = maps[torch.tensor([row for row, _ in some], device=self.device)]
            masks = unpacked(self.instances.packed([mask for _, mask in some]), size, self.device)
            if self.device.type == "cpu":  # the arrays' path sorts faster there
                found = score(chosen.numpy(), masks.numpy(), metrics=METRICS, workers=torch.get_num_threads())
                parts.append(np.stack([found[name] for name in METRICS], axis=1))
            else:
                tensors = score(chosen, masks, metrics=METRICS)
                parts.append(torch.stack([tensors[name] for name in METRICS], dim=1).cpu().numpy())
        return rounded(np.concatenate(parts))

    def score_columns(self) -> dict[str, Any]:
        """Return the columns of ``scores.parquet``."""
        values = np.concatenate(self._values) if self._values else np.zeros((0, len(METRICS)), np.float32)
        return {**self._keys, **{name: values[:, column] for column, name in enumerate(METRICS)}}


def _kept(value: float | None) -> float | None:
    """Return a number as it is kept, None where there is none."""
    return None if value is None or math.isnan(value) else round(value, DECIMALS)
