"""Changes of the pixels before asking: noise, the average image, occlusion, and exact twins.

Each is a value that compares equal if it does the same, so that an image changed once is shown for several questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Image, Mask, Phrase, Study
from rightlung.core.keyed import text_generator
from rightlung.core.resampling import resampling_matrix
from rightlung.probes.rules import midline_of, own_target

AVERAGE_SIZE = 256
TRIES = 200
"""Random places to try for an occlusion elsewhere."""
_RING = 0.02
"""Width of the ring around an occlusion whose mean grey value fills it, in fractions of the image."""


@dataclass(frozen=True)
class NoiseImage:
    """Uniform noise of the image's size."""

    seed: int
    study: str

    def __call__(self, image: Image) -> Image:
        """Return noise from 0 to 1 instead of the image."""
        chance = text_generator(self.seed, "noise-image", self.study)
        return chance.random(image.shape, dtype=np.float32)


def mirrored(image: Image) -> Image:
    """Return the image with left and right exchanged."""
    return np.ascontiguousarray(image[:, ::-1])


@dataclass(frozen=True, eq=False)
class MeanImage:
    """The average of several images, of the size of the one that it replaces."""

    loads: Sequence[Callable[[], Image]] = field(repr=False)

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """The average on a square."""
        images = [_resized(load(), (AVERAGE_SIZE, AVERAGE_SIZE)) for load in self.loads]
        return np.asarray(np.mean(images, axis=0), dtype=np.float64)

    def __call__(self, image: Image) -> Image:
        """Return the average image."""
        return _resized(self.average, image.shape).astype(np.float32).clip(0, 1)


def _resized(image: NDArray[np.floating], shape: Sequence[int]) -> NDArray[np.float64]:
    rows, columns = (
        resampling_matrix(after, before, 0.0, 1.0, "bilinear") for after, before in zip(shape, image.shape, strict=True)
    )
    found: NDArray[np.float64] = rows @ image.astype(np.float64) @ columns.T
    return found


@dataclass(frozen=True, eq=False)
class Occlusion:
    """Covers ``place``; the change of its grey values is as strong as covering ``target`` would be.

    The target is filled with the mean grey value of the ring around it. Elsewhere, pixels are moved towards the mean of
    the ring around that place, or beyond, until the root mean square of the change is that of the target.
    """

    target: Mask
    place: Mask

    def __call__(self, image: Image) -> Image:
        """Return the image with the place covered."""
        target, place = (mask.resized(image.shape).pixels for mask in (self.target, self.place))
        changed = image.copy()
        if not target.any() or not place.any():
            return changed
        change = ring_mean(image, target) - image[target]
        if self.place is not self.target:
            wanted, inside = float(np.sqrt(np.mean(change**2))), image[place]
            change = ring_mean(image, place) - inside
            strength = float(np.sqrt(np.mean(change**2)))
            change = change * (wanted / strength) if strength > wanted else _shifted(change, wanted)
        changed[target if self.place is self.target else place] += change
        return changed.clip(0, 1)


def _shifted(change: NDArray[np.float32], wanted: float) -> NDArray[np.float32]:
    """Return the change plus a constant, so that its root mean square is ``wanted``, which is not smaller."""
    mean, variance = float(change.mean()), float(change.var())
    aim = np.sqrt(max(wanted**2 - variance, 0.0))
    return change + np.float32((aim if mean >= 0 else -aim) - mean)


def ring_mean(image: Image, mask: NDArray[np.bool_]) -> np.float32:
    """Return the mean grey value of a ring around a mask; of the image, if there is none."""
    from scipy.ndimage import distance_transform_edt

    width = max(1.0, _RING * min(image.shape))
    distance = distance_transform_edt(~mask)
    ring = (distance > 0) & (distance <= width)
    return np.float32(image[ring].mean() if ring.any() else image.mean())


def occlusion(study: Study, phrase: Phrase, seed: int, elsewhere: bool) -> Occlusion | None:
    """Return the occlusion of a phrase's target, or of an equal area that touches no part of it; None if impossible.

    Elsewhere is the mirrored place in the other half of the chest, if that is free, else a random place inside the
    box around the study's regions (or the image).
    """
    own = own_target(study, phrase)
    if isinstance(own, str) or not own.pixels.any():
        return None
    target = Mask(own.pixels)
    if not elsewhere:
        return Occlusion(target, target)
    place = _free_place(study, own.pixels, text_generator(seed, "occlude-elsewhere", study.id, phrase.text))
    return None if place is None else Occlusion(target, Mask(place))


def _free_place(study: Study, target: NDArray[np.bool_], chance: np.random.Generator) -> NDArray[np.bool_] | None:
    height, width = target.shape
    rows, columns = np.nonzero(target)
    mirrored = np.rint(2 * midline_of(study) * width - 1 - columns).astype(int)
    if mirrored.min() >= 0 and mirrored.max() < width and not target[rows, mirrored].any():
        return _painted(target, rows, mirrored)
    corners = np.array([box.as_tuple() for box in study.regions.values() or [Box(0, 0, 1, 1)]])
    (x0, y0), (x1, y1) = corners[:, :2].min(0), corners[:, 2:].max(0)
    lowest = np.array([y0 * height - rows.min(), x0 * width - columns.min()])
    highest = np.array([y1 * height - 1 - rows.max(), x1 * width - 1 - columns.max()])
    if (highest < lowest).any():
        return None
    for down, right in np.rint(chance.uniform(lowest, highest, (TRIES, 2))).astype(int):
        inside = rows.min() + down >= 0 and columns.min() + right >= 0
        inside &= rows.max() + down < height and columns.max() + right < width
        if inside and not target[rows + down, columns + right].any():
            return _painted(target, rows + down, columns + right)
    return None


def _painted(target: NDArray[np.bool_], rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.bool_]:
    place = np.zeros_like(target)
    place[rows, columns] = True
    return place
