"""Boxes in fractions of the image, and exact areas of their unions.

The origin is the image's top left corner. The patient's left is on the image's right. Every reader converts to this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from rightlung.core.checks import Size, check_number, check_size
from rightlung.core.errors import BoxFormError, EmptyBoxError, InputError


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """A rectangle inside the image: ``0 <= x0 < x1 <= 1`` and ``0 <= y0 < y1 <= 1``.

    >>> Box(0.5, 0.25, 1.0, 0.75).area
    0.25
    """

    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        for name in ("x0", "y0", "x1", "y1"):
            object.__setattr__(self, name, check_number(getattr(self, name), f"box {name}"))
        for low, high, axis in ((self.x0, self.x1, "x"), (self.y0, self.y1, "y")):
            if not (low >= 0.0 and high <= 1.0):
                raise InputError(
                    f"box {self.as_tuple()} leaves the image: {axis} runs from {low} to {high}, "
                    "but coordinates are fractions from 0 to 1"
                )
            if not low < high:
                raise EmptyBoxError(f"box {self.as_tuple()} has no area: {axis}0 = {low} is not below {axis}1 = {high}")
        if self.area == 0.0:
            raise EmptyBoxError(f"box {self.as_tuple()} has no area: it is too small for floating point")

    @classmethod
    def from_sequence(cls, values: Iterable[object]) -> Box:
        """Build from ``[x0, y0, x1, y1]``."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise BoxFormError(f"a box must be [x0, y0, x1, y1]; got {values!r}")
        numbers_given = list(values)
        if len(numbers_given) != 4:
            raise BoxFormError(f"a box must have four numbers [x0, y0, x1, y1]; got {numbers_given!r}")
        return cls(*numbers_given)  # type: ignore[arg-type]  # checked in __post_init__

    @classmethod
    def from_pixels(cls, corners: Sequence[float], size: Size) -> Box:
        """Build from pixel edges ``(x0, y0, x1, y1)`` in an image of ``size`` (height, width)."""
        height, width = check_size(size)
        if len(corners) != 4:
            raise BoxFormError(f"a box must have four pixel edges (x0, y0, x1, y1); got {tuple(corners)!r}")
        x0, y0, x1, y1 = (check_number(value, "pixel coordinate") for value in corners)
        return cls(x0 / width, y0 / height, x1 / width, y1 / height)

    @classmethod
    def clipped(cls, x0: float, y0: float, x1: float, y1: float) -> Box | None:
        """Build from corners that may lie outside the image; None if nothing lies inside."""
        left, top, right, bottom = (min(max(check_number(v, "box corner"), 0.0), 1.0) for v in (x0, y0, x1, y1))
        if not (left < right and top < bottom) or (right - left) * (bottom - top) == 0.0:
            return None
        return cls(left, top, right, bottom)

    def as_tuple(self) -> tuple[float, float, float, float]:
        """Return ``(x0, y0, x1, y1)``."""
        return self.x0, self.y0, self.x1, self.y1

    @property
    def width(self) -> float:
        """Width as a fraction of the image's width."""
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        """Height as a fraction of the image's height."""
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        """Area as a fraction of the image's area."""
        return self.width * self.height

    @property
    def centre(self) -> tuple[float, float]:
        """``(x, y)`` of the centre."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def intersection(self, other: Box) -> Box | None:
        """Return the common rectangle, None if its area is zero."""
        return Box.clipped(
            max(self.x0, other.x0), max(self.y0, other.y0), min(self.x1, other.x1), min(self.y1, other.y1)
        )

    def enclosing(self, other: Box) -> Box:
        """Return the smallest box around both."""
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))

    def iou(self, other: Box) -> float:
        """Return the intersection over union."""
        common = self.intersection(other)
        if common is None:
            return 0.0
        return min(1.0, common.area / (self.area + other.area - common.area))

    def giou(self, other: Box) -> float:
        """Return the generalised IoU (Rezatofighi et al., CVPR 2019)."""
        common = self.intersection(other)
        overlap = common.area if common else 0.0
        union = self.area + other.area - overlap
        enclosing = self.enclosing(other).area
        return overlap / union - (enclosing - union) / enclosing

    def scaled(self, factor: float) -> Box:
        """Scale width and height by ``factor`` about the centre; clip at the image."""
        if not check_number(factor, "scale factor") > 0:
            raise InputError(f"scale factor must be positive; got {factor}")
        (x, y), half_width, half_height = self.centre, self.width * factor / 2, self.height * factor / 2
        box = Box.clipped(x - half_width, y - half_height, x + half_width, y + half_height)
        if box is None:
            raise EmptyBoxError(f"box {self.as_tuple()} scaled by {factor} has no area left")
        return box

    def mirrored(self) -> Box:
        """Return the box in the horizontally flipped image. Mirror the words that go with it, too."""
        return Box(1.0 - self.x1, self.y0, 1.0 - self.x0, self.y1)

    def to_pixels(self, size: Size) -> tuple[float, float, float, float]:
        """Return the edges ``(x0, y0, x1, y1)`` in pixels of an image of ``size`` (height, width)."""
        height, width = check_size(size)
        return self.x0 * width, self.y0 * height, self.x1 * width, self.y1 * height

    def pixel_slices(self, size: Size) -> tuple[slice, slice]:
        """Return the rows and columns of the pixels whose centre lies inside, at least one of each.

        A box thinner than a pixel takes the pixel of its centre, so that no target vanishes.
        """
        x0, y0, x1, y1 = self.to_pixels(size)
        return _centres_within(y0, y1, size[0]), _centres_within(x0, x1, size[1])


def _centres_within(low: float, high: float, count: int) -> slice:
    start, stop = math.ceil(low - 0.5), math.ceil(high - 0.5)
    if stop <= start:
        start = min(int((low + high) / 2), count - 1)
        stop = start + 1
    return slice(start, stop)


def union_area(boxes: Iterable[Box]) -> float:
    """Return the exact area of the union, as a fraction of the image.

    >>> union_area([Box(0, 0, 0.5, 0.5), Box(0.25, 0, 0.75, 0.5)])
    0.375
    """
    covered, cell_areas = _cover([list(boxes)])
    return float(cell_areas[covered[0]].sum())


def union_iou(boxes: Iterable[Box], others: Iterable[Box]) -> float:
    """Return the exact intersection over union of two unions of boxes; NaN if both are empty.

    >>> union_iou([Box(0, 0, 0.5, 1)], [Box(0, 0, 0.25, 1), Box(0.25, 0, 0.5, 1)])
    1.0
    """
    common, union = union_overlap(boxes, others)
    return common / union if union else math.nan


def union_overlap(boxes: Iterable[Box], others: Iterable[Box]) -> tuple[float, float]:
    """Return the exact areas of the intersection and of the union of two unions of boxes.

    >>> union_overlap([Box(0, 0, 0.5, 1)], [Box(0.25, 0, 1, 1)])
    (0.25, 1.0)
    """
    (first, second), cell_areas = _cover([list(boxes), list(others)])
    return float(cell_areas[first & second].sum()), float(cell_areas[first | second].sum())


def _cover(sides: Sequence[Sequence[Box]]) -> tuple[list[NDArray[np.bool_]], NDArray[np.float64]]:
    """Cut the image along all box edges; return the cells that each side covers, and the areas of the cells."""
    corners = [np.array([astuple(box) for box in side], dtype=np.float64).reshape(-1, 4) for side in sides]
    everything = np.concatenate(corners)
    xs, ys = np.unique(everything[:, [0, 2]]), np.unique(everything[:, [1, 3]])
    covered = []
    for side in corners:
        cells = np.zeros((max(len(ys) - 1, 0), max(len(xs) - 1, 0)), dtype=bool)
        edges_x, edges_y = np.searchsorted(xs, side[:, [0, 2]]), np.searchsorted(ys, side[:, [1, 3]])
        for (left, right), (top, bottom) in zip(edges_x, edges_y, strict=True):
            cells[top:bottom, left:right] = True
        covered.append(cells)
    return covered, np.outer(np.diff(ys), np.diff(xs))
