"""The peak of a map and its side, with one definition for pixels and grids.

If cells tie (within a relative `TIE`, because of rounding), the peak is their centre: the first in reading order would
favour the patient's right. A map of zeros has no peak.
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
    """Return ``x`` and ``y`` of the peaks of ``maps`` (n, rows, cols), and their share on the patient's left, (n,)
    each.

    ``x`` and ``y`` are fractions of the map. The patient's left is the image's right; a peak exactly at the patient's
    midline (``midlines`` (n,), default 0.5) is half on the left. NaN for a map of zeros. The maps may be on any device.
    """
    n, rows, columns = maps.shape
    flat = maps.reshape(n, -1)
    if isinstance(flat, torch.Tensor):
        most = flat.amax(dim=1)
        places = (flat >= (most * (1 - TIE))[:, None]).flatten().nonzero()[:, 0].cpu().numpy()
        highest = most.cpu().numpy()
    else:
        highest = flat.max(axis=1)
        places = np.flatnonzero(flat >= (highest * (1 - TIE))[:, None])
    of, place = np.divmod(places, rows * columns)
    y, x = (_centres(length)[where] for length, where in zip((rows, columns), np.divmod(place, columns), strict=True))
    middle = np.full(n, 0.5) if midlines is None else np.asarray(midlines, dtype=np.float64)
    on_left = (1 + np.sign(np.round(x - middle[of], 9))) / 2
    count = np.where(highest > 0, np.bincount(of, minlength=n), np.nan)
    across, down, left = (np.bincount(of, weights, minlength=n) / count for weights in (x, y, on_left))
    return across, down, left


def peak_of(heatmap: Heatmap) -> tuple[float, float] | None:
    """Return ``(x, y)`` of a heatmap's peak in fractions of the image; None if it is empty or flat.

    Cells whose centre lies outside the image (padding) do not count.

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
    """Return the patient's side that most of the tied peaks lie on; None if `peak_of` is None.

    As in an audit, the map is upsampled to `PIXELS` x `PIXELS`: for a cell at the midline, its neighbours decide.
    """
    if peak_of(heatmap) is None:
        return None
    share = float(peaks(heatmap.to_size((PIXELS, PIXELS), keep_mass=False)[None], [midline])[2][0])
    return None if np.isnan(share) else side_at(share)


def side_at(x: float, midline: float = 0.5) -> PeakSide:
    """Return the patient's side at ``x``, or of a share on the left.

    >>> side_at(0.8), side_at(0.2), side_at(0.5)
    ('left', 'right', 'both')
    """
    return "left" if x > midline else "right" if x < midline else "both"


def _centres(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


def _between(middles: Floats, fraction: float) -> float:
    """Return the position at a fraction of cells with these centres."""
    return float(np.interp(fraction * len(middles) - 0.5, np.arange(len(middles)), middles))
