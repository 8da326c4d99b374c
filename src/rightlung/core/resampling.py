"""One axis of a grid brought onto one axis of pixels, as a matrix ``(pixels, cells)``.

Rows and columns resample independently, so a map on any grid, wherever the grid lies, is brought to any size with two
small matrix products: ``down @ values @ across.T``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import unknown_name

Mode = Literal["bilinear", "nearest", "area"]
MODES: tuple[Mode, ...] = ("bilinear", "nearest", "area")


def positions(pixels: int, cells: int, low: float, high: float) -> NDArray[np.float64]:
    """Where each pixel's centre lies on the grid, in cells; below 0 or from ``cells`` on where it lies outside."""
    if low == 0 and high == 1:  # in whole numbers, so that a centre on the border of two cells falls the same way
        return (2 * np.arange(pixels) + 1) * cells / (2 * pixels)
    where: NDArray[np.float64] = ((np.arange(pixels) + 0.5) / pixels - low) / (high - low) * cells
    return where


def resampling_matrix(pixels: int, cells: int, low: float, high: float, mode: Mode) -> NDArray[np.float64]:
    """Weights of ``cells`` that span ``low`` to ``high`` of the image's axis, for each of its ``pixels``.

    ``nearest`` and ``bilinear`` look up the map at the pixel's centre: with the full extent, what
    ``torch.nn.functional.interpolate`` calls ``nearest-exact`` (its ``nearest`` is off by half a pixel) and
    ``bilinear`` with ``align_corners=False``. ``area`` hands each pixel the share of every cell's mass that falls into
    it. Pixels outside the grid get nothing.
    """
    if mode not in MODES:
        raise unknown_name("resampling mode", str(mode), MODES)
    if mode == "area":
        edges = low + (high - low) * np.arange(cells + 1) / cells
        pixel_edges = np.arange(pixels + 1) / pixels
        overlap = np.minimum(edges[None, 1:], pixel_edges[1:, None]) - np.maximum(
            edges[None, :-1], pixel_edges[:-1, None]
        )
        shares: NDArray[np.float64] = np.clip(overlap, 0.0, None) * (cells / (high - low))
        return shares
    position = positions(pixels, cells, low, high)
    inside = (position >= 0) & (position < cells)
    weights = np.zeros((pixels, cells))
    row = np.flatnonzero(inside)
    if mode == "nearest":
        weights[row, position[inside].astype(np.int64)] = 1.0
        return weights
    between = np.clip(position[inside] - 0.5, 0, cells - 1)
    first = np.minimum(between.astype(np.int64), max(cells - 2, 0))
    share = between - first
    weights[row, first] = 1.0 - share
    weights[row, np.minimum(first + 1, cells - 1)] += share
    return weights
