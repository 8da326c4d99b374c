"""Models whose use of the image is known: one looks at the finding, one is disturbed by any change, one is blind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Heatmap, Image, Phrase, Study
from rightlung.lexicon.wordkeys import findings_about
from rightlung.probes.twins import located
from rightlung.studies import open_source

ADDRESS = "phantom?count=32&seed=7&size=64"
GRID = 32
SAME = 0.02
"""Largest difference of grey values of pixels that look alike."""


@cache
def studies() -> tuple[Study, ...]:
    return tuple(open_source(ADDRESS))


@cache
def traces() -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Return the pixels that each finding of each study darkens or brightens."""
    found = {}
    for study in studies():
        for name in () if study.twins is None else study.twins.findings("removed"):
            found[study.id, name] = abs(study.image - study.twin("removed", name).load()) > 2 * SAME
    return found


class Looker:
    """Points at the pixels of the finding that look as the finding does; elsewhere a faint, even map."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [self._ground(image, str(phrase)) for image, phrase in zip(images, phrases, strict=True)]

    def _ground(self, image: Image, text: str) -> Grounding:
        heat = np.full(image.shape, 1e-4, np.float32)
        study = shown(image)
        asked = {name for one in study.phrases if one.text == text for name in findings_about(one.findings)}
        alike = abs(image - study.image) < SAME
        for name in asked:
            heat += traces().get((study.id, name), np.zeros_like(alike)) & alike
        return Grounding(Heatmap(heat))

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        return np.array([[self._probability(image, name) for name in findings] for image in images], np.float32)

    def _probability(self, image: Image, name: str) -> float:
        study = shown(image)
        place = located(study).get(name)
        trace = traces().get((study.id, name))
        if place is None or place.mask is None or trace is None:
            return 0.1
        trace = trace & place.mask.pixels
        return 0.1 + 0.8 * float((abs(image - study.image) < SAME)[trace].mean() if trace.any() else 0.0)


def shown(image: Image) -> Study:
    """Return the study whose image is most like this one."""
    return studies()[int(np.median(abs(coarse() - image[::4, ::4]), axis=(1, 2)).argmin())]


@cache
def coarse() -> NDArray[np.float32]:
    return np.stack([study.image[::4, ::4] for study in studies()])


class Disturbed:
    """Points somewhere that depends on every pixel, as the value of a hash does."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        seeds = (int(np.ascontiguousarray(image).view(np.uint32).sum(dtype=np.uint64)) for image in images)
        return [Grounding(Heatmap(_blob(*np.random.default_rng(seed).random(2)))) for seed in seeds]


class Blind:
    """Points at the same place in every image."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        return [Grounding(Heatmap(_blob(0.5, 0.6))) for _ in images]

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        return np.full((len(images), len(findings)), 0.5, np.float32)


def _blob(x: float, y: float) -> NDArray[np.float32]:
    place = (np.arange(GRID) + 0.5) / GRID
    return np.exp(-((place[None] - x) ** 2 + (place[:, None] - y) ** 2) / 0.02).astype(np.float32)
