"""Where a map is highest, and on which side of the patient that is."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rightlung.core import Heatmap

MIDLINE_BAND = 0.02
"""A peak within this fraction of the image's width of its middle is on neither side."""


def peak_of(heatmap: Heatmap) -> tuple[float, float] | None:
    """Return ``(x, y)`` of the middle of the highest cell, in fractions of the image.

    Bilinear interpolation peaks there, too. Cells whose middle lies outside the image (padding) do not count. Of cells
    that tie, the one nearest to their common middle is taken: the first in reading order would favour the patient's
    right. A map that is empty, or flat, has no peak.

    >>> peak_of(Heatmap([[0, 0, 3, 0]]))
    (0.625, 0.5)
    """
    extent, (rows, columns) = heatmap.extent, heatmap.grid
    across = extent.x0 + (extent.x1 - extent.x0) * (np.arange(columns) + 0.5) / columns
    down = extent.y0 + (extent.y1 - extent.y0) * (np.arange(rows) + 0.5) / rows
    inside_x, inside_y = (across >= 0) & (across <= 1), (down >= 0) & (down <= 1)
    values, across, down = heatmap.values[np.ix_(inside_y, inside_x)], across[inside_x], down[inside_y]
    if not values.size or values.max() == values.min():
        return None
    places = np.argwhere(values == values.max())
    row, column = places[((places - places.mean(axis=0)) ** 2).sum(axis=1).argmin()]
    return float(across[column]), float(down[row])


def side_at(x: float, band: float = MIDLINE_BAND) -> Literal["left", "right", "midline"]:
    """Return the patient's side at ``x``: the patient's left is on the image's right.

    The middle is the image's own; a rotated patient's may lie elsewhere.

    >>> side_at(0.8), side_at(0.2), side_at(0.51)
    ('left', 'right', 'midline')
    """
    if abs(x - 0.5) <= band:
        return "midline"
    return "left" if x > 0.5 else "right"
