"""Ask a model about every phrase of a source, under every condition, and write what it answers.

The source is gone through in windows (`rightlung.probes.windows`). The questions of a window are sorted by the image
they are about, so that each image is loaded once, and a model that is handed the same array again can encode it once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rightlung import __version__
from rightlung.core import Image, InputError, Query, Study
from rightlung.core.study import check_image
from rightlung.explain.boxes import BoxRule
from rightlung.predictions.answering import Answerer, NoAnswer, Regions
from rightlung.predictions.finished import FinishedStudies
from rightlung.predictions.prediction import Key, Prediction, phrase_query
from rightlung.predictions.reader import open_predictions
from rightlung.predictions.summary import Summary, summarise
from rightlung.predictions.writer import PredictionWriter
from rightlung.probes import (
    Company,
    Owner,
    Probe,
    Question,
    Setting,
    exchanged,
    exchanged_outside,
    find_probe,
    windows,
)
from rightlung.studies import Source, build_studies, open_source

Progress = Callable[[float, int], None]
"""Called with the studies that are done (the one under way by its share) and how many there are."""

GIVE_UP_AFTER = 100
"""Questions that may go unanswered, before any was answered, until the model is taken to be broken."""

_ROWS_PER_FLUSH, _SECONDS_PER_FLUSH = 1000, 60.0


def predict(
    model: object,
    source: Source | str,
    out: str | Path,
    conditions: Sequence[str] = ("none",),
    *,
    batch_size: int = 32,
    model_name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    boxes: BoxRule | None = None,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Ask ``model`` about the first ``limit`` studies of ``source`` and write a predictions folder, or go on with one.

    A `Grounder` gives maps, with boxes by ``boxes`` where it has none of its own; a `Matcher` gives the similarity of
    each pair. A `RegionGrounder` gives both, asked with the regions of the study whose image is shown. ``conditions``
    are names of probes. What is done is kept, whatever ends the call, and the next call goes on; rows are the same
    however often that happens and whatever the batch size. A question without an answer becomes a row with the reason,
    and a study that cannot be read is named in ``problems``.
    """
    opened = open_source(source) if isinstance(source, str) else source
    if isinstance(conditions, str) or not conditions:
        raise InputError(f"conditions must be a list of at least one name; got {conditions!r}")
    probes = [find_probe(name) for name in dict.fromkeys(conditions)]
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1; got {limit}")
    answerer = Answerer(model, batch_size, boxes)
    name = model_name or str(getattr(model, "name", None) or type(model).__name__)
    notes = {"made_by": f"rightlung {__version__}", "seed": seed, "weights": weights_digest(model)}
    with PredictionWriter(out, source=opened.address, model=name, run=notes) as writer:
        _check_earlier_runs(writer, notes)
        run = _Run(opened, probes, seed, answerer, writer, progress)
        run.go_through(len(opened) if limit is None else min(limit, len(opened)))
    note = answerer.note
    return summarise(
        run.writer.folder,
        model=name,
        source=opened.address,
        studies=run.studies,
        written=run.written,
        problems=[*map(str, opened.problems), *run.problems.values()],
        notes=[] if note is None else [note],
    )


@dataclass(slots=True)
class _Asked:
    key: Key
    question: Question


@dataclass(slots=True)
class _Run:
    source: Source
    probes: Sequence[Probe]
    seed: int
    answerer: Answerer
    writer: PredictionWriter
    progress: Progress
    studies: int = 0
    written: int = 0
    answered: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    _held: list[Prediction] = field(default_factory=list)

    def go_through(self, total: int) -> None:
        finished = FinishedStudies(self.writer.folder, [probe.name for probe in self.probes], len(self.writer.done))
        waiting: list[str] = []
        flushed, since = 0, time.monotonic()
        for stretch in windows(len(self.source)):
            wanted = range(stretch.start, min(stretch.stop, total))
            if not wanted:
                break
            ids = self.source.ids[wanted.start : wanted.stop]
            todo = [position for position, study in zip(wanted, ids, strict=True) if study not in finished]
            if todo:
                waiting += self._ask_window(stretch, todo, total)
            self.studies = wanted.stop
            self.progress(wanted.stop, total)
            if self.written - flushed >= _ROWS_PER_FLUSH or time.monotonic() - since >= _SECONDS_PER_FLUSH:
                self._bring_to_disk(finished, waiting)
                waiting, flushed, since = [], self.written, time.monotonic()
        self._release()
        self._bring_to_disk(finished, waiting)
        if not self.written and not self.writer.done and not self.problems:
            raise InputError(f"none of the {total:,} studies of {self.source.address} has a phrase to ask")

    def _bring_to_disk(self, finished: FinishedStudies, studies: list[str]) -> None:
        if not self._held:
            self.writer.flush()
            finished.add(studies, len(self.writer.done) + self.written)

    def _ask_window(self, stretch: range, todo: list[int], total: int) -> list[str]:
        """Ask all that is not done of a window's studies and return the ids of those now finished."""
        images = any(probe.needs_partner for probe in self.probes)
        words = any(probe.needs_company for probe in self.probes)
        built = build_studies(self.source, stretch if images or words else todo, self.problems)
        partners = self._partners(stretch, list(built.values())) if images else {}
        company = self._company(list(built.values()), partners) if words else Company()
        setting = Setting(self.seed, partners, company)
        mine = [built[position] for position in todo if position in built]
        by_image: dict[str, list[_Asked]] = {study.id: [] for study in built.values()}
        for study in mine:
            for asked in self._questions(study, setting):
                by_image.setdefault(asked.question.image_of, []).append(asked)
        at_hand = {study.id: study for study in built.values()}
        count = sum(map(len, by_image.values()))
        batch: list[tuple[_Asked, Image, Regions]] = []
        asked_so_far = 0
        for image_of, group in by_image.items():
            for pair in self._with_images(at_hand.get(image_of), image_of, group):
                batch.append(pair)
                if len(batch) >= self.answerer.batch_size:
                    self._ask(batch)
                    asked_so_far += len(batch)
                    batch = []
                    self.progress(
                        stretch.start + asked_so_far / count * min(len(stretch), total - stretch.start), total
                    )
        self._ask(batch)
        return [study.id for study in mine]

    def _partners(self, stretch: range, studies: list[Study]) -> dict[str, str]:
        owners = [Owner(study.id, study.patient) for study in studies]
        if not owners:
            return {}
        beyond = (Owner(study.id, study.patient) for study in self._beyond(stretch))
        found = exchanged(owners, self.seed) or exchanged_outside(owners, beyond, self.seed)
        if found is None:
            probe = next(probe for probe in self.probes if probe.needs_partner)
            what = "sentences" if probe.needs_company else "images"
            raise InputError(
                f"the condition {probe.name} needs {what} of two patients, but all of {self.source.address} are of "
                "one; leave it out and name the others"
            )
        return found

    def _company(self, studies: list[Study], partners: Mapping[str, str]) -> Company:
        """Gather what is said in a window, and of the partners from beyond it where one patient has most of it."""
        here = {study.id for study in studies}
        lent = sorted({partner for partner in partners.values() if partner not in here})
        return Company.of(studies, map(self.source.study, lent))

    def _beyond(self, stretch: range) -> Iterator[Study]:
        """Yield the studies after a window and then those before it, built as they are asked for."""
        for position in (*range(stretch.stop, len(self.source)), *range(stretch.start)):
            yield from build_studies(self.source, [position], self.problems).values()

    def _questions(self, study: Study, setting: Setting) -> Iterator[_Asked]:
        for index, phrase in enumerate(study.phrases):
            for probe in self.probes:
                key = Key(study.id, phrase_query(index), probe.name)
                try:
                    if key not in self.writer and (question := probe.ask(study, phrase, setting)) is not None:
                        yield _Asked(key, question)
                except UnicodeEncodeError as error:  # an id that no file can hold
                    self.problems[study.id] = f"study {study.id!r} cannot be written as UTF-8 ({error.reason})"

    def _with_images(
        self, study: Study | None, image_of: str, group: list[_Asked]
    ) -> Iterator[tuple[_Asked, Image, Regions]]:
        """Yield questions with the image they are about, and its regions.

        The image is the same array each time, and no longer kept than needed.
        """
        image: Image | InputError | None = None
        regions: Regions = {}

        def load() -> Image:
            nonlocal regions
            shown = study or self.source.study(image_of)
            regions = shown.regions
            return shown.load()

        for asked in group:
            if image is None:
                image = _loaded(load, f"study {image_of!r}")
            alter, shown = asked.question.alter, image
            if alter is not None and not isinstance(image, InputError):
                shown = _loaded(partial(alter, image), f"study {image_of!r}, changed")
            if isinstance(shown, InputError):
                lent = "" if image_of == asked.key.study else f"the image of study {image_of!r}, shown instead: "
                self._write(_failed(asked, f"{lent}{shown}"))
            else:
                yield asked, shown, regions

    def _ask(self, batch: list[tuple[_Asked, Image, Regions]]) -> None:
        answers = self.answerer.answers(
            [image for _, image, _ in batch],
            [asked.question.text for asked, _, _ in batch],
            [regions for _, _, regions in batch],
        )
        for (asked, _, _), answer in zip(batch, answers, strict=True):
            if isinstance(answer, NoAnswer):
                self._hold(_failed(asked, answer.reason))
                continue
            try:
                row = Prediction(
                    *asked.key, Query(asked.question.text), answer.grounding, answer.similarity_global,
                    answer.similarity_local,
                )  # fmt: skip
            except InputError as error:  # a similarity that is no number, a text that no file can hold
                self._hold(_failed(asked, str(error)))
                continue
            self._release()
            self._write(row)

    def _hold(self, row: Prediction) -> None:
        """Keep a row without an answer back until something was answered: a broken model must not fill a file."""
        if self.answered:
            self._write(row)
            return
        self._held.append(row)
        if len(self._held) >= GIVE_UP_AFTER:
            raise InputError(
                f"the model answered none of the first {len(self._held)} questions; the first failed with: "
                f"{self._held[0].error}"
            )

    def _release(self) -> None:
        self.answered = True
        for row in self._held:
            self._write(row)
        self._held.clear()

    def _write(self, row: Prediction) -> None:
        self.writer.write(row)
        self.written += 1


def _loaded(load: Callable[[], Image], what: str) -> Image | InputError:
    """Return an image, or why there is none. Not `Study.image`, which keeps it: a window of them may be gigabytes."""
    try:
        return check_image(load(), what)
    except InputError as error:
        return error
    except Exception as error:  # a loader may be anybody's
        return InputError(f"{what}: {type(error).__name__}: {error}")


def _failed(asked: _Asked, reason: str) -> Prediction:
    text = asked.question.text.encode("utf-8", "backslashreplace").decode()
    return Prediction.failed(*asked.key, Query(text), reason)


def weights_digest(model: object) -> str | None:
    """Return a short hash of a torch model's weights, None for any other model: a retrained one may keep its name."""
    if not isinstance(model, torch.nn.Module):
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _check_earlier_runs(writer: PredictionWriter, notes: dict[str, Any]) -> None:
    if not len(writer.done):
        return
    for earlier in open_predictions(writer.folder).runs:
        for name, what in (("seed", "another seed"), ("weights", "a model of the same name but with other weights")):
            if name in earlier and earlier[name] != notes[name]:
                raise InputError(
                    f"{writer.folder}: holds predictions of {what} ({earlier[name]}, now {notes[name]}); "
                    "choose another folder"
                )
