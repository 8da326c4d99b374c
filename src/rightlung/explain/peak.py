"""Where a map is highest, and on which side of the patient that is: one definition for pixels and for grids.

Of cells that tie, the peak is the middle: the first in reading order would favour the patient's right. Values within a
relative `TIE` of the highest tie, for the cells of a map that was resampled differ in their last digits. A map that is
zero everywhere has no peak; a constant one has it in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import Heatmap

PeakSide = Literal["left", "right", "both"]
Floats = NDArray[np.float64]

TIE = 1e-6
PIXELS = 256


def peaks(
    maps: NDArray[Any] | torch.Tensor, midlines: Sequence[float] | Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return ``x`` and ``y`` of the peaks of ``maps`` (n, rows, cols), and the share on the patient's left, (n,) each.

    ``x`` and ``y`` are fractions of the map's width and height. The patient's left is the image's right; the middle of
    the patient lies at ``midlines`` (n,), 0.5 unless told, and a peak right there is half on the left. NaN where there
    is no peak. The maps may be on any device.
    """
    values = torch.as_tensor(maps)
    highest = values.amax(dim=(1, 2))
    tied = values >= (highest * (1 - TIE))[:, None, None]
    by_column = tied.sum(dim=1).cpu().numpy().astype(np.float64)
    by_row = tied.sum(dim=2).cpu().numpy().astype(np.float64)
    there = (highest > 0).cpu().numpy()
    count = np.where(there, by_column.sum(axis=1), np.nan)
    across, down = (_centres(length) for length in (by_column.shape[1], by_row.shape[1]))
    middle = np.full(len(count), 0.5) if midlines is None else np.asarray(midlines, dtype=np.float64)
    on_left = (1 + np.sign(np.round(across[None] - middle[:, None], 9))) / 2
    return by_column @ across / count, by_row @ down / count, (by_column * on_left).sum(axis=1) / count


def peak_of(heatmap: Heatmap) -> tuple[float, float] | None:
    """Return ``(x, y)`` of a map's peak, in fractions of the image.

    Bilinear interpolation peaks there, too. Cells whose middle lies outside the image (padding) do not count. A map
    that is empty, or flat, points nowhere: ``None``.

    >>> peak_of(Heatmap([[0, 0, 3, 0]]))
    (0.625, 0.5)
    """
    extent, (rows, columns) = heatmap.extent, heatmap.grid
    across = extent.x0 + (extent.x1 - extent.x0) * _centres(columns)
    down = extent.y0 + (extent.y1 - extent.y0) * _centres(rows)
    inside_x, inside_y = (across >= 0) & (across <= 1), (down >= 0) & (down <= 1)
    values, across, down = heatmap.values[np.ix_(inside_y, inside_x)], across[inside_x], down[inside_y]
    if not values.size or values.max() == values.min():
        return None
    x, y, _ = peaks(values[None])
    return _between(across, float(x[0])), _between(down, float(y[0]))


def side_of_peak(heatmap: Heatmap, midline: float = 0.5) -> PeakSide | None:
    """Return the patient's side that most of a map's tied peaks lie on; ``None`` where `peak_of` finds no peak.

    It is looked for on `PIXELS` by `PIXELS` pixels, as an audit does: of a cell in the very middle, its neighbours tell
    the side. Unless told, the midline is the image's own; a rotated patient's may lie elsewhere.
    """
    if peak_of(heatmap) is None:
        return None
    share = float(peaks(heatmap.to_size((PIXELS, PIXELS), keep_mass=False)[None], [midline])[2][0])
    return None if np.isnan(share) else side_at(share)


def side_at(x: float, midline: float = 0.5) -> PeakSide:
    """Return the patient's side at ``x``, or of a share of peaks on the left: the patient's left is the image's right.

    >>> side_at(0.8), side_at(0.2), side_at(0.5)
    ('left', 'right', 'both')
    """
    return "left" if x > midline else "right" if x < midline else "both"


def _centres(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


def _between(middles: Floats, fraction: float) -> float:
    """Return the place at a fraction of cells with these middles."""
    return float(np.interp(fraction * len(middles) - 0.5, np.arange(len(middles)), middles))
