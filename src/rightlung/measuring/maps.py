"""Answers as pixels and as distributions, in batches: NumPy arrays, or tensors on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Extent, Heatmap
from rightlung.core.resampling import resampling_matrix
from rightlung.explain.peak import peak_of

FLOOR = 1e-12
"""Lowest value of a cell in a divergence, whose logarithm must exist."""

_PIXELS_AT_ONCE = 1 << 20  # on the CPU, so that they stay in its cache

_CORNERS = ("x0", "y0", "x1", "y1")

Boxes = Sequence[Mapping[str, Any]]
"""Scored boxes as in a predictions file: x0, y0, x1, y1, score, label."""


@dataclass(frozen=True)
class AnswerMap:
    """Where a model points: a map ``(rows, cols)`` and its extent in the image, boxes, or both."""

    values: NDArray[np.float32] | None
    extent: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    boxes: Boxes | None = None

    @cached_property
    def digest(self) -> bytes:
        """A digest of the map or, without one, of the boxes."""
        if self.values is None:
            return hashlib.blake2b(repr(self.boxes).encode(), digest_size=16).digest()
        found = hashlib.blake2b(repr((self.values.shape, self.extent)).encode(), digest_size=16)
        found.update(self.values.tobytes())
        return found.digest()

    @cached_property
    def has_peak(self) -> bool:
        """Whether the answer points anywhere: `peak_of` has a peak or, without a map, there is a box."""
        if self.values is None:
            return bool(self.boxes)
        if min(self.extent) >= 0 and max(self.extent) <= 1:  # no cell lies outside the image
            return bool(self.values.max() > self.values.min())
        return peak_of(Heatmap(self.values, Extent(*self.extent))) is not None

    def distribution(self, regions: Collection[str] = ()) -> tuple[Hashable, NDArray[np.float64] | None]:
        """Return the cells of an answer and their shares of its mass; None if it has no mass.

        The cells are those of the map, or the boxes if there is no map or it is painted from boxes of ``regions`` (as
        by a `RegionGrounder`).
        """
        boxes = self.boxes or ()
        if self.values is not None and not (boxes and all(box["label"] in regions for box in boxes)):
            cells: Hashable = self.values.shape, self.extent
            values = self.values.astype(np.float64).ravel()
        else:
            named = [(*(box[name] for name in _CORNERS), box["label"] or "", max(box["score"], 0.0)) for box in boxes]
            cells = tuple(one[:-1] for one in sorted(named))
            values = np.array([one[-1] for one in sorted(named)], dtype=np.float64)
        total = values.sum()
        return cells, values / total if total > 0 else None


def to_pixels(answers: Sequence[AnswerMap], size: tuple[int, int], device: Any = None) -> Any:
    """Return answers as maps ``(n, height, width)`` float32: an array, or a tensor on ``device``.

    Maps are upsampled bilinearly, are zero outside their extent, and are scaled to a maximum of one (no measure
    depends on the scale). Without a map, the boxes are painted.
    """
    pixels: Any = np.zeros((len(answers), *size), np.float32)
    if device is not None:
        import torch

        pixels = torch.zeros(len(answers), *size, device=device)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, answer in enumerate(answers):
        if answer.values is None:
            pixels[number] = _on(painted(answer.boxes or (), size), device)
        else:
            groups.setdefault((answer.values.shape, answer.extent), []).append(number)
    step = max(1, _PIXELS_AT_ONCE // (size[0] * size[1])) if device is None else max(1, len(answers))
    for members in groups.values():
        for begin in range(0, len(members), step):
            some: Any = members[begin : begin + step]
            found = _upsampled([answers[number] for number in some], size, device)
            if some[-1] - some[0] == len(some) - 1:  # a slice is much faster to write to
                some = slice(some[0], some[-1] + 1)
            pixels[some] = found
    return pixels


def _upsampled(answers: Sequence[AnswerMap], size: tuple[int, int], device: Any) -> Any:
    """Upsample maps of one grid and extent by looking up the two neighbours of each pixel along each axis."""
    x0, y0, x1, y1 = answers[0].extent
    values = np.stack([answer.values for answer in answers if answer.values is not None]).astype(np.float64)
    highest = values.max(axis=(1, 2))
    scaled = _on(values / np.where(highest > 0, highest, 1.0)[:, None, None], device)
    first, second, weight, other = (_on(one, device) for one in _neighbours(size[0], values.shape[1], y0, y1))
    rows = _mixed(scaled, 1, first, second, weight[:, None], other[:, None])
    first, second, weight, other = (_on(one, device) for one in _neighbours(size[1], values.shape[2], x0, x1))
    found = _mixed(rows, 2, first, second, weight, other)
    there = found.reshape(len(answers), -1).any(1)
    missed = (highest > 0) & ~np.asarray(there if device is None else there.cpu())
    for place in np.flatnonzero(missed).tolist():  # all the mass lies between pixel centres
        area = Heatmap(values[place], Extent(x0, y0, x1, y1)).to_size(size, "area")
        found[place] = _on(area.astype(np.float64), device)
    return found if device is None else found.float()


def _mixed(values: Any, axis: int, first: Any, second: Any, weight: Any, other: Any) -> Any:
    """Return two choices of cells along an axis, weighted and added up."""
    if not isinstance(values, np.ndarray):
        return values.index_select(axis, first) * weight + values.index_select(axis, second) * other
    found, added = values.take(first, axis), values.take(second, axis)
    found *= weight
    added *= other
    found += added
    return found


def _on(values: NDArray[Any], device: Any) -> Any:
    if device is None:
        return values
    import torch

    return torch.from_numpy(values).to(device)


@lru_cache(maxsize=512)
def _neighbours(pixels: int, cells: int, low: float, high: float) -> tuple[NDArray[Any], ...]:
    """Return the two cells next to each pixel and their weights, which are zero outside the extent."""
    matrix = resampling_matrix(pixels, cells, low, high, "bilinear")
    used, rows = matrix != 0, np.arange(pixels)
    first, second = used.argmax(axis=1), cells - 1 - used[:, ::-1].argmax(axis=1)
    return first, second, matrix[rows, first], np.where(first == second, 0.0, matrix[rows, second])


def painted(boxes: Boxes, size: tuple[int, int]) -> NDArray[np.float32]:
    """Paint scored boxes: each pixel gets the highest score of the boxes over it, zero outside all boxes.

    If any score is not positive, all are shifted so that the lowest is one, which keeps their order.
    """
    pixels = np.zeros(size, dtype=np.float32)
    lowest = min((float(box["score"]) for box in boxes), default=1.0)
    shift = 1.0 - lowest if lowest <= 0 else 0.0
    for box in sorted(boxes, key=lambda one: float(one["score"])):
        pixels[Box(*(box[name] for name in _CORNERS)).pixel_slices(size)] = float(box["score"]) + shift
    return pixels


def entropy(shares: NDArray[np.float64]) -> float:
    """Return the entropy of shares that add up to one, in nats."""
    some = shares[shares > 0]
    return max(0.0, float(-(some * np.log(some)).sum()))


def symmetric_divergence(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the mean of both Kullback-Leibler divergences, in nats ("That's the Wrong Lung!", B.6)."""
    first, second = np.maximum(one, FLOOR), np.maximum(other, FLOOR)
    return float(((first - second) * (np.log(first) - np.log(second))).sum() / 2)
