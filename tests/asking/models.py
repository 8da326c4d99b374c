"""Tiny models to ask, and sources to ask about; also by name, ``tests.asking.models:Painter``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rightlung.asking import Question
from rightlung.core import Grounding, Heatmap, Image, Phrase, Query, Study
from rightlung.models.base import Similarities
from rightlung.predictions import Key, Prediction, check_predictions, open_predictions
from rightlung.studies.sources import Source


class Painter:
    """Grounds by arithmetic: the image in quarters, brighter the longer the text; similarity from both."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], list[str]]] = []

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        texts = [phrase if isinstance(phrase, str) else phrase.text for phrase in phrases]
        self.calls.append(([id(image) for image in images], texts))
        return [Grounding(self.heatmap(image, text)) for image, text in zip(images, texts, strict=True)]

    @staticmethod
    def heatmap(image: Image, text: str) -> Heatmap:
        rows, columns = (side // 2 for side in image.shape)
        quarters = image[: 2 * rows, : 2 * columns].reshape(2, rows, 2, columns).mean(axis=(1, 3))
        return Heatmap(quarters * len(text), abstention=0.25)

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        whole = np.array([[image.mean() + len(text) for text in texts] for image in images], np.float32)
        return Similarities(whole, whole / np.float32(2))


class Doubting(Painter):
    """Paints the same and means hardly any of it."""

    @staticmethod
    def heatmap(image: Image, text: str) -> Heatmap:
        painted = Painter.heatmap(image, text)
        return Heatmap(painted.values, painted.extent, abstention=0.75)


class Interrupted(Painter):
    """Presses Ctrl-C in the middle of its fifth call."""

    def __init__(self, call: int = 5) -> None:
        super().__init__()
        self.call = call

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        if len(self.calls) == self.call - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return super().ground(images, phrases)


@dataclass
class Listed(Source):
    """Studies from a list; notes which were built and which images were loaded."""

    studies: list[Study]
    built: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("list")

    @property
    def ids(self) -> Sequence[str]:
        return [study.id for study in self.studies]

    def _build(self, position: int) -> Study:
        self.built.append(self.studies[position].id)
        return self.studies[position]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None


def listed(count: int, load: Callable[[int], Image] | None = None, patients: int | None = None) -> Listed:
    """Studies with 0 to 2 phrases each, the first of a side; every image differs."""
    source = Listed([])

    def loader(number: int) -> Callable[[], Image]:
        def image() -> Image:
            source.loaded.append(f"s{number}")
            return load(number) if load else picture(number)

        return image

    for number in range(count):
        phrases = (Phrase(f"Effusion {number} on the left"), Phrase(f"Nodule {number}"))[: number % 3]
        patient = f"p{number if patients is None else number % patients}"
        source.studies.append(Study(f"s{number}", loader(number), patient, phrases=phrases))
    return source


def rows_of(folder: Path) -> dict[Key, Prediction]:
    assert check_predictions(folder) == []
    return {row.key: row for row in open_predictions(folder)}


def cells_of(row: Prediction) -> NDArray[np.float32]:
    assert row.grounding is not None
    assert row.grounding.heatmap is not None
    return row.grounding.heatmap.values


def picture(number: int) -> Image:
    return np.kron(np.random.default_rng(number).random((6, 8), dtype=np.float32), np.ones((8, 8), np.float32))


def question(text: str | None = None, study: str = "s") -> Question:
    return Question(Key(study, "any"), Query(text))
