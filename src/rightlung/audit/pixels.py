"""Answers as pixels: maps brought to a size, boxes painted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Extent, Heatmap
from rightlung.core.resampling import resampling_matrix


def pixels_of(
    values: NDArray[np.float32] | None,
    extent: Sequence[float],
    boxes: Sequence[Mapping[str, Any]] | None,
    size: tuple[int, int],
) -> NDArray[np.float32]:
    """Return an answer as a map of ``size``: its map upsampled, or its boxes painted with their scores."""
    return upsampled(values, extent, size) if values is not None else painted(boxes or (), size)


def upsampled(values: NDArray[np.float32], extent: Sequence[float], size: tuple[int, int]) -> NDArray[np.float32]:
    """Return what `Heatmap.to_size` does (bilinear, without rescaling), but for the scale: the map's maximum is one.

    Each pixel has two neighbours an axis, which are looked up; multiplying by matrices that are mostly zeros would take
    longer, and BLAS's threads get in the way of the scoring's own.
    """
    x0, y0, x1, y1 = extent
    highest = float(values.max())
    scaled = values.astype(np.float64) / (highest or 1.0)  # no measure depends on the scale
    pixels = _along(_along(scaled, size[0], y0, y1).T, size[1], x0, x1).T
    if highest > 0 and not pixels.any():  # all the mass falls between the centres of few pixels
        return Heatmap(values, Extent(x0, y0, x1, y1)).to_size(size, "area")
    return np.ascontiguousarray(pixels, dtype=np.float32)


def _along(values: NDArray[np.float64], pixels: int, low: float, high: float) -> NDArray[np.float64]:
    """Bring the first axis of ``values`` to pixels."""
    first, second, first_weight, second_weight = _neighbours(pixels, len(values), low, high)
    return values[first] * first_weight[:, None] + values[second] * second_weight[:, None]


@lru_cache(maxsize=512)
def _neighbours(
    pixels: int, cells: int, low: float, high: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return the two cells that each pixel lies between and the weight of each; no weight outside the extent."""
    matrix = resampling_matrix(pixels, cells, low, high, "bilinear")
    used, rows = matrix != 0, np.arange(pixels)
    first, second = used.argmax(axis=1), cells - 1 - used[:, ::-1].argmax(axis=1)
    return first, second, matrix[rows, first], np.where(first == second, 0.0, matrix[rows, second])


def painted(boxes: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> NDArray[np.float32]:
    """Paint scored boxes: each pixel has the highest score of the boxes over it, and no box is zero.

    Scores that are not all positive are shifted so that the lowest is one: only their order counts then.
    """
    pixels = np.zeros(size, dtype=np.float32)
    lowest = min((float(box["score"]) for box in boxes), default=1.0)
    shift = 1.0 - lowest if lowest <= 0 else 0.0
    for box in sorted(boxes, key=lambda one: float(one["score"])):
        where = Box(box["x0"], box["y0"], box["x1"], box["y1"]).pixel_slices(size)
        pixels[where] = float(box["score"]) + shift
    return pixels
