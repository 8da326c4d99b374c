"""Resampling along one axis as a matrix ``(pixels, cells)``.

Rows and columns resample independently: ``down @ values @ across.T`` brings a map on any grid to any size.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import check_known

Mode = Literal["bilinear", "nearest", "area"]
MODES: tuple[Mode, ...] = ("bilinear", "nearest", "area")


def positions(pixels: int, cells: int, low: float, high: float) -> NDArray[np.float64]:
    """Return the position of each pixel centre on the grid, in cells; outside 0 to ``cells`` if not on the grid."""
    if low == 0 and high == 1:  # exact integers, so that ties on a cell border are rounded consistently
        return (2 * np.arange(pixels) + 1) * cells / (2 * pixels)
    where: NDArray[np.float64] = ((np.arange(pixels) + 0.5) / pixels - low) / (high - low) * cells
    return where


def resampling_matrix(pixels: int, cells: int, low: float, high: float, mode: Mode) -> NDArray[np.float64]:
    """Return the weights of ``cells`` that span ``low`` to ``high`` of the axis, for each of its ``pixels``.

    With the full extent, ``nearest`` is PyTorch's ``nearest-exact`` (its ``nearest`` is off by half a pixel), and
    ``bilinear`` has ``align_corners=False``. ``area`` distributes the mass of each cell over the pixels it covers.
    Pixels outside the grid get zero.
    """
    check_known("resampling mode", mode, MODES)
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
