"""Sanity checks of ``--quick``: models with known answers must get the expected values.

On synthetic studies an unexpected value means that the code is broken, so the run fails. On other data the studies may
be the cause (a sentence that occurs twice in a report has two targets), so it is only reported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.asking import questions
from rightlung.core import Grounding, Heatmap, Image, InputError, Mask, Phrase
from rightlung.lexicon import side_of
from rightlung.models.base import Similarities
from rightlung.probes.targets import boxes_named
from rightlung.reproduce.papers import Paper
from rightlung.reproduce.prepared import PreparedStudies
from rightlung.results.estimator import Floats
from rightlung.results.measured import Measured

Pixels = NDArray[np.bool_]


def known_models(prepared: PreparedStudies) -> dict[str, tuple[str, str, Any]]:
    """Return the models with known answers, by slug, with name and note."""
    oracle = Oracle(prepared)
    found = {
        "oracle": ("Oracle: the truth of whatever the words say", oracle),
        "blind-to-text": ("Blind to the text", TextBlind()),
        "blind-to-image": ("Blind to the image", ImageBlind()),
        "mirrored": ("Oracle, mirrored", Mirrored(oracle)),
    }
    return {slug: (name, "sanity check: its answers are known", model) for slug, (name, model) in found.items()}


class Oracle:
    """A model that points exactly at what the words describe.

    Words of the image's own report (also as synthetic sentences) get their exact target, or their regions without one;
    with swapped sides, the mirrored target. Other words get the regions they name in this image (a lung only if nothing
    smaller is named). If nothing is named, the oracle abstains. Similarity is 1 for words of the own report, else 0.
    """

    def __init__(self, prepared: PreparedStudies) -> None:
        self.prepared = prepared
        source, targets = self.prepared.source, self.prepared.targets
        self._studies = {_mark(study.image): study.id for study in source}
        self._own: dict[tuple[str, str], Any] = {}
        self._mirrored: dict[tuple[str, str], Any] = {}
        self._regions: dict[str, tuple[str, ...]] = {}
        for question in questions(source, self.prepared.protocol.conditions):
            phrase, found = question.phrase, targets.phrases.get((question.key.study, question.key.query))
            if phrase is None or found is None:
                continue
            if (target := found.masks.get("exact") or found.masks.get("trimmed")) is None:
                continue
            place = target.place
            condition, key = question.key.condition, (question.key.study, phrase.text)
            self._regions.setdefault(phrase.text, phrase.regions)
            if condition == "none" or (condition == "synthetic" and phrase.regions):
                self._own.setdefault(key, place)
            elif condition == "swap-sides":
                self._mirrored.setdefault(key, place)

    def pixels(self, study: str, text: str) -> Pixels | None:
        """Return the pixels that words describe in a study's image, ``(size, size)``; None if there are none."""
        store = self.prepared.targets.store
        for places, step in ((self._own, 1), (self._mirrored, -1)):
            if (study, text) in places:
                pixels: Pixels = store.read([places[study, text]])[0][:, ::step]
                return pixels
        if text not in self._regions:
            raise InputError(f"the oracle only knows the phrases of this experiment; got {text!r}")
        boxes = boxes_named(self.prepared.source.study(study).regions, self._regions[text], trimmed=True)
        size = self.prepared.protocol.pixels or 256
        return Mask.from_boxes(boxes, (size, size)).pixels if boxes else None

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        found, size = [], self.prepared.protocol.pixels or 256
        for image, phrase in zip(images, phrases, strict=True):
            pixels = self.pixels(self.study(image), _text(phrase))
            nothing = Heatmap(np.ones((size, size), np.float32), abstention=1.0)
            found.append(Grounding(nothing if pixels is None else Heatmap(pixels.astype(np.float32))))
        return found

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return 1 for words of the image's own report, else 0."""
        studies = [self.study(image) for image in images]
        whole = np.array([[(study, text) in self._own for text in texts] for study in studies], dtype=np.float32)
        return Similarities(whole, whole)

    def study(self, image: Image) -> str:
        """Return the study of an image."""
        try:
            return self._studies[_mark(image)]
        except KeyError:
            raise InputError("the oracle only knows the images of the prepared studies") from None


@dataclass(slots=True)
class Mirrored:
    """The oracle with mirrored maps: always on the wrong side."""

    oracle: Oracle

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [
            Grounding(answer.heatmap.mirrored()) if answer.heatmap is not None else answer
            for answer in self.oracle.ground(images, phrases)
        ]


class TextBlind:
    """A model that ignores the words and points at the bright parts of the image."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [Grounding(Heatmap.from_pixels(image, (16, 16))) for image in images]

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return the mean brightness of the image for every text."""
        return Similarities(np.repeat([[image.mean()] for image in images], len(texts), axis=1).astype(np.float32))


class ImageBlind:
    """A model that ignores the image and points to the side named in the words, else to the middle."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [Grounding(Heatmap(_half(side_of(_text(phrase))))) for phrase in phrases]


def _half(side: str | None) -> NDArray[np.float32]:
    """Return an 8 x 8 map that is highest on the named side; the patient's left is the image's right."""
    columns = np.arange(8, dtype=np.float32)
    slope = {"left": columns, "right": columns[::-1]}.get(side or "", np.minimum(columns, columns[::-1]))
    return np.tile(1 + slope, (8, 1))


def _text(phrase: Phrase | str) -> str:
    return phrase.text if isinstance(phrase, Phrase) else phrase


def _mark(image: Image) -> bytes:
    pixels = np.round(image * 255).astype(np.uint8)
    return hashlib.blake2b(repr(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class SanityCheck:
    """A check: a sentence with a placeholder, the values, the number for the sentence, and the condition."""

    words: str
    values: Floats
    summary: Callable[[Floats], float]
    is_right: Callable[[Floats], bool]


def perfect_oracle(measured: Measured) -> Iterator[SanityCheck]:
    """Yield the check that the oracle finds every exact mask."""
    words = "the oracle's lowest AUROC on exact masks is {:.5f}"
    values = measured.value("oracle", "auroc", "exact")
    yield SanityCheck(words, values, np.min, lambda of: bool(of.min() > 1 - 1e-5))


def check_sanity(out: Path, paper: Paper, synthetic: bool = True) -> list[str]:
    """Return the results of all checks, a sentence each.

    A failed check raises an error on ``synthetic`` studies and is reported on others.
    """
    results: list[tuple[bool | None, str]] = []
    for one in paper.sanity_checks(Measured.read(out)):
        there = one.values[~np.isnan(one.values)]
        unchecked = f"not checked, because no phrase has a value: {re.sub('{.*?}', '?', one.words)}"
        found = (bool(one.is_right(there)), one.words.format(one.summary(there))) if len(there) else (None, unchecked)
        results.append(found)
    if synthetic and (wrong := [sentence for right, sentence in results if right is False]):
        raise InputError(f"{out}: sanity checks failed, so the code is broken: {'; '.join(wrong)}")
    return [sentence if right is not False else f"{sentence}, which is unexpected" for right, sentence in results]
