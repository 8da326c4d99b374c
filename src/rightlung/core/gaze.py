"""Fixations as a heatmap: where a reader looked, weighted by time.

Each fixation is a Gaussian of one degree of the visual field, weighted by its duration, as in REFLACX (Bigolin Lanfredi
et al. 2022). The map is the share of looking time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.checks import Size, as_array, check_number, check_size
from rightlung.core.errors import InputError
from rightlung.core.heatmap import Heatmap

GRID = 32
STD = 0.035
"""One degree of the visual field as a fraction of the width of an image 33 cm wide, seen from 65 cm."""

_LEAST = 1e-12


def gaze_map(
    path: Sequence[Sequence[float]] | ArrayLike, grid: int | Size = GRID, std: float | ArrayLike = STD
) -> Heatmap:
    """Return the share of looking time on a grid.

    ``path`` holds one row ``(x, y, seconds)`` per fixation, in fractions of the image; fixations may lie outside it.
    ``std`` is the standard deviation of the Gaussian in fractions of the image: one number, or one row ``(across,
    down)`` per fixation. Without fixations the map is zero.
    """
    given = as_array(path, "fixations").astype(np.float64).reshape(-1, 3)
    rows, columns = check_size((grid, grid) if isinstance(grid, int) else grid, "grid")
    if isinstance(std, int | float):
        std = np.full((len(given), 2), check_number(std, "std"))
    each = as_array(std, "std").astype(np.float64).reshape(-1, 2)
    if len(each) != len(given):
        raise InputError(f"std must be one number or one row for each of {len(given)} fixations; got {len(each)}")
    wide, high = each[:, :1], each[:, 1:]
    if not np.isfinite(each).all() or (each <= 0).any() or not np.isfinite(given).all() or (given[:, 2] < 0).any():
        raise InputError("fixations must be finite, with seconds >= 0 and std > 0")
    across = np.exp(-0.5 * (((np.arange(columns) + 0.5) / columns - given[:, :1]) / wide) ** 2)
    down = np.exp(-0.5 * (((np.arange(rows) + 0.5) / rows - given[:, 1:2]) / high) ** 2)
    values = (down * given[:, 2:]).T @ across
    return Heatmap((values / max(float(values.sum()), _LEAST)).astype(np.float32))
