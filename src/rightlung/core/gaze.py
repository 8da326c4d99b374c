"""Fixations as a map: where a reader looked, each place for as long as it was looked at.

A fixation is where the eye rested; what it saw sharply there is about one degree of the visual field. So each is a
Gaussian of one degree, weighted by its seconds (REFLACX, Bigolin Lanfredi et al. 2022, does the same), and the map is
the share of looking time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.checks import Size, as_array, check_number, check_size
from rightlung.core.errors import InputError
from rightlung.core.heatmap import Heatmap

GRID = 32
SPREAD = 0.035
"""One degree of the visual field in widths of the picture: shown 33 cm wide, seen from 65 cm."""

_LEAST = 1e-12


def gaze_map(
    path: Sequence[Sequence[float]] | ArrayLike, grid: int | Size = GRID, spread: float | ArrayLike = SPREAD
) -> Heatmap:
    """Return the share of looking time on a grid: each fixation a Gaussian of one degree, weighted by its seconds.

    ``path`` holds a row ``(x, y, seconds)`` a fixation, in fractions of the picture; a place may lie outside it and
    then counts by what reaches in. ``spread`` is the Gaussian's standard deviation in fractions of the picture: one
    number, or a row ``(across, down)`` for each fixation. A map of nothing is zero everywhere.
    """
    given = as_array(path, "fixations").astype(np.float64).reshape(-1, 3)
    rows, columns = check_size((grid, grid) if isinstance(grid, int) else grid, "grid")
    if isinstance(spread, int | float):
        spread = np.full((len(given), 2), check_number(spread, "spread"))
    each = as_array(spread, "spread").astype(np.float64).reshape(-1, 2)
    if len(each) != len(given):
        raise InputError(f"spread must be one number or a row for each of {len(given)} fixations; got {len(each)}")
    wide, high = each[:, :1], each[:, 1:]
    if not np.isfinite(each).all() or (each <= 0).any() or not np.isfinite(given).all() or (given[:, 2] < 0).any():
        raise InputError("fixations must be finite, their seconds not negative, and their spread positive")
    across = np.exp(-0.5 * (((np.arange(columns) + 0.5) / columns - given[:, :1]) / wide) ** 2)
    down = np.exp(-0.5 * (((np.arange(rows) + 0.5) / rows - given[:, 1:2]) / high) ** 2)
    values = (down * given[:, 2:]).T @ across
    return Heatmap((values / max(float(values.sum()), _LEAST)).astype(np.float32))
