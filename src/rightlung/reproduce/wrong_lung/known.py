"""Grounders whose answers are known beforehand, to check the measuring with and to try out a run in no time.

They are made from a prepared set with exact targets. An image is recognised by its pixels, a text by its words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Grounding, Heatmap, Image, InputError, Mask, Phrase
from rightlung.lexicon import side_of
from rightlung.models.base import Similarities
from rightlung.probes.targets import boxes_named
from rightlung.reproduce.wrong_lung.instances import Instances

Pixels = NDArray[np.bool_]


@dataclass(slots=True)
class Oracle:
    """Points at exactly what the words say, and nowhere else.

    Words that the image's own report has, synthetic sentences included, point at its exact target; with their sides
    swapped, at that target mirrored; without an exact target, at its regions. Words from elsewhere point at the
    regions of which they are told, as they lie in this image (a lung only where nothing closer is named). Where nothing
    is said to be anywhere, it abstains. Its similarities are 1 for words of the own report and 0 for others.
    """

    instances: Instances
    _numbers: dict[bytes, int] = field(init=False, repr=False)
    _own: dict[tuple[int, str], int] = field(init=False, repr=False)
    _mirrored: dict[tuple[int, str], int] = field(init=False, repr=False)
    _told: dict[str, tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Learn which image is which, whose words are whose, and what they say."""
        instances = self.instances
        self._numbers = {_mark(instances.image(number)): number for number in range(len(instances.shown))}
        self._own, self._mirrored, self._told = {}, {}, {}
        for instance in instances:
            row = instance.targets.get("exact", instance.targets["trimmed"])
            for condition, asked in instance.asked.items():
                self._told.setdefault(asked.text, asked.regions)
                if condition in ("none", "synthetic") and (condition == "none" or asked.regions):
                    self._own.setdefault((instance.image, asked.text), row)
                elif condition == "swap-sides":
                    self._mirrored.setdefault((instance.image, asked.text), row)

    def place(self, number: int, text: str) -> Pixels | None:
        """Return what words say of an image, ``(size, size)``; None where that is nothing."""
        if (number, text) in self._own:
            return self.instances.mask(self._own[number, text])
        if (number, text) in self._mirrored:
            return self.instances.mask(self._mirrored[number, text])[:, ::-1]
        if text not in self._told:
            raise InputError(f"the oracle knows only words that the prepared set asks; got {text!r}")
        boxes = boxes_named(self.instances.shown[number].regions, self._told[text], trimmed=True)
        size = self.instances.size
        return Mask.from_boxes(boxes, (size, size)).pixels if boxes else None

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        size = self.instances.size
        found = []
        for image, phrase in zip(images, phrases, strict=True):
            pixels = self.place(self.number(image), _text(phrase))
            if pixels is None:
                found.append(Grounding(Heatmap(np.ones((size, size), np.float32), abstention=1.0)))
            else:
                found.append(Grounding(Heatmap(pixels.astype(np.float32))))
        return found

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return 1 for words of the image's own report, else 0."""
        numbers = [self.number(image) for image in images]
        whole = np.array([[(number, text) in self._own for text in texts] for number in numbers], dtype=np.float32)
        return Similarities(whole, whole)

    def number(self, image: Image) -> int:
        """Return which of the prepared images this is."""
        try:
            return self._numbers[_mark(image)]
        except KeyError:
            raise InputError("the oracle knows only the images of the prepared set") from None


@dataclass(slots=True)
class Mirrored:
    """The oracle the wrong way round: everything on the other side."""

    oracle: Oracle

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [
            Grounding(answer.heatmap.mirrored()) if answer.heatmap is not None else answer
            for answer in self.oracle.ground(images, phrases)
        ]


class TextBlind:
    """Sees the image, and points at what is bright in it, whatever is asked."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair."""
        return [Grounding(Heatmap.from_pixels(image, (16, 16))) for image in images]

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return the image's brightness, whatever the text."""
        return Similarities(np.repeat([[image.mean()] for image in images], len(texts), axis=1).astype(np.float32))


class ImageBlind:
    """Reads the words, and points to the side that they name (else to the middle), whatever is shown."""

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
