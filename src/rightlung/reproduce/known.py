"""``--quick``: beside tiny models, models whose answers are known, and whether the figures say what they must.

A figure that moves the wrong way on synthetic studies is a fault of the machinery, so it ends the run. Studies of one's
own may cause it (a sentence that stands twice in a report has two targets), so there it is only reported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
    """Return models whose answers are known, by slug, with name and note."""
    oracle = Oracle(prepared)
    found = {
        "oracle": ("Oracle: the truth of whatever the words say", oracle),
        "blind-to-text": ("Blind to the text", TextBlind()),
        "blind-to-image": ("Blind to the image", ImageBlind()),
        "mirrored": ("Oracle, mirrored", Mirrored(oracle)),
    }
    return {slug: (name, "its answers are known beforehand", model) for slug, (name, model) in found.items()}


@dataclass(slots=True)
class Oracle:
    """Points at exactly what the words say, and nowhere else.

    Words of the image's own report, synthetic sentences included, point at their exact target; with their sides
    swapped, at that target mirrored; without an exact target, at their regions. Words from elsewhere point at the
    regions that they name, as they lie in this image (a lung only where nothing closer is named). Where nothing is said
    to be anywhere, it abstains. Its similarities are 1 for words of the own report and 0 for others.
    """

    prepared: PreparedStudies
    _studies: dict[bytes, str] = field(init=False, repr=False)
    _own: dict[tuple[str, str], Any] = field(init=False, repr=False)
    _mirrored: dict[tuple[str, str], Any] = field(init=False, repr=False)
    _regions: dict[str, tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Learn which image is which, which words belong to which study, and what they say."""
        source, targets = self.prepared.source, self.prepared.targets
        self._studies = {_mark(study.image): study.id for study in source}
        self._own, self._mirrored, self._regions = {}, {}, {}
        for question in questions(source, self.prepared.protocol.conditions):
            phrase, found = question.phrase, targets.phrases.get((question.key.study, question.key.query))
            if phrase is None or found is None:
                continue
            place = found.masks.get("exact", found.masks["trimmed"]).place
            condition, key = question.key.condition, (question.key.study, phrase.text)
            self._regions.setdefault(phrase.text, phrase.regions)
            if condition == "none" or (condition == "synthetic" and phrase.regions):
                self._own.setdefault(key, place)
            elif condition == "swap-sides":
                self._mirrored.setdefault(key, place)

    def pixels(self, study: str, text: str) -> Pixels | None:
        """Return what words say of a study's image, ``(size, size)``; None where that is nothing."""
        store = self.prepared.targets.store
        for places, step in ((self._own, 1), (self._mirrored, -1)):
            if (study, text) in places:
                pixels: Pixels = store.read([places[study, text]])[0][:, ::step]
                return pixels
        if text not in self._regions:
            raise InputError(f"the oracle knows only words that are asked here; got {text!r}")
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
        """Return whose image this is."""
        try:
            return self._studies[_mark(image)]
        except KeyError:
            raise InputError("the oracle knows only the images of the prepared studies") from None


@dataclass(slots=True)
class Mirrored:
    """The oracle mirrored: everything on the wrong side."""

    oracle: Oracle

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [
            Grounding(answer.heatmap.mirrored()) if answer.heatmap is not None else answer
            for answer in self.oracle.ground(images, phrases)
        ]


class TextBlind:
    """Sees the image and points at what is bright in it, whatever is asked."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [Grounding(Heatmap.from_pixels(image, (16, 16))) for image in images]

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return the image's brightness, whatever the text."""
        return Similarities(np.repeat([[image.mean()] for image in images], len(texts), axis=1).astype(np.float32))


class ImageBlind:
    """Reads the words and points to the side that they name (else to the middle), whatever is shown."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [Grounding(Heatmap(_half(side_of(_text(phrase))))) for phrase in phrases]


def _half(side: str | None) -> NDArray[np.float32]:
    """Return a map of 8 x 8 that falls off from the named side; the patient's left is the image's right."""
    columns = np.arange(8, dtype=np.float32)
    slope = {"left": columns, "right": columns[::-1]}.get(side or "", np.minimum(columns, columns[::-1]))
    return np.tile(1 + slope, (8, 1))


def _text(phrase: Phrase | str) -> str:
    return phrase.text if isinstance(phrase, Phrase) else phrase


def _mark(image: Image) -> bytes:
    pixels = np.round(image * 255).astype(np.uint8)
    return hashlib.blake2b(repr(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest()


# ------------------------------------------------------------------ what their figures must be


@dataclass(frozen=True)
class KnownFigure:
    """A figure known beforehand: words with a place for it, the values, their figure, and whether it is right."""

    words: str
    values: Floats
    figure: Callable[[Floats], float]
    is_right: Callable[[Floats], bool]


def check_known(out: Path, paper: Paper, synthetic: bool = True) -> list[str]:
    """Return what was found of the known models, a sentence each, and what could not be checked.

    Figures that cannot be right are refused on ``synthetic`` studies and reported on others.
    """
    told = list(_checked(paper.known_figures(Measured.read(out))))
    if synthetic and (wrong := [sentence for right, sentence in told if right is False]):
        raise InputError(f"{out}: the machinery is broken: {'; '.join(wrong)}")
    return [sentence if right is not False else f"{sentence}, which is unexpected" for right, sentence in told]


def _checked(figures: Iterator[KnownFigure]) -> Iterator[tuple[bool | None, str]]:
    """Yield whether each figure is as it must be, None where no phrase has one, and the figure in words."""
    for one in figures:
        there = one.values[~np.isnan(one.values)]
        if len(there):
            yield bool(one.is_right(there)), one.words.format(one.figure(there))
        else:
            yield None, f"not checked, as no phrase allows it: {re.sub('{.*?}', '?', one.words)}"
