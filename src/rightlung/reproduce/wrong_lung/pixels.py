"""Answers as pixels and as distributions, many at a time and on any device.

The pixels are those of `rightlung.audit.pixels` (bilinear, zero outside the map's extent, the maximum one).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.audit.pixels import painted
from rightlung.core import Grounding, Heatmap
from rightlung.core.resampling import resampling_matrix

FLOOR = 1e-12
"""The least that a cell counts in a divergence: a logarithm needs something."""


def to_pixels(groundings: Sequence[Grounding], size: int, device: torch.device) -> Tensor:
    """Return answers as maps ``(n, size, size)`` float32: heatmaps upsampled, boxes painted with their scores."""
    pixels = torch.zeros(len(groundings), size, size, device=device)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, grounding in enumerate(groundings):
        if grounding.heatmap is None:
            boxes = [{**_corners(scored.box.as_tuple()), "score": scored.score} for scored in grounding.boxes]
            pixels[number] = torch.from_numpy(painted(boxes, (size, size))).to(device)
        else:
            groups.setdefault((grounding.heatmap.grid, grounding.heatmap.extent.as_tuple()), []).append(number)
    for ((rows, columns), (x0, y0, x1, y1)), members in groups.items():
        stacked = np.stack([_map_of(groundings[number]).values for number in members])
        values = torch.from_numpy(stacked).to(device).double()
        highest = values.amax(dim=(1, 2))
        values = values / torch.where(highest > 0, highest, 1.0)[:, None, None]
        down = torch.from_numpy(_matrix(size, rows, y0, y1)).to(device)
        across = torch.from_numpy(_matrix(size, columns, x0, x1)).to(device)
        found = (down @ values @ across.T).float()
        missed = (highest > 0) & (found.amax(dim=(1, 2)) <= 0)  # all the mass falls between the centres of pixels
        for place in missed.nonzero()[:, 0].tolist():
            area = _map_of(groundings[members[place]]).to_size((size, size), "area")
            found[place] = torch.from_numpy(area).to(device)
        pixels[torch.tensor(members, device=device)] = found
    return pixels


def unpacked(packed: NDArray[np.uint8], size: int, device: torch.device) -> Tensor:
    """Return masks ``(n, size, size)`` from their bits ``(n, bytes)``."""
    bits = torch.from_numpy(np.ascontiguousarray(packed)).to(device)
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
    flat = ((bits[:, :, None] >> shifts) & 1).bool().flatten(1)[:, : size * size]
    return flat.reshape(len(packed), size, size)


def peaks(maps: Tensor, midlines: Sequence[float]) -> tuple[NDArray[Any], NDArray[Any], list[str | None]]:
    """Return where the peaks of ``maps`` (n, rows, cols) lie, of tied ones the middle, and on whose side.

    The patient's left is the image's right. Tied peaks that lie equally on both sides are in the middle. A map that is
    zero everywhere has no peak.
    """
    highest = maps.amax(dim=(1, 2))
    at_peak = maps == highest[:, None, None]
    count = at_peak.sum(dim=(1, 2)).double()
    rows, columns = (torch.arange(side, device=maps.device, dtype=torch.float64) for side in maps.shape[1:])
    across, along = at_peak.sum(dim=1).double(), at_peak.sum(dim=2).double()
    x = ((across @ columns) / count + 0.5) / len(columns)
    y = ((along @ rows) / count + 0.5) / len(rows)
    middle = torch.tensor(midlines, dtype=torch.float64, device=maps.device)[:, None]
    left = (across * ((columns + 0.5) / len(columns) > middle)).sum(dim=1) / count
    nothing = highest <= 0
    x[nothing] = y[nothing] = torch.nan
    sides: list[str | None] = [
        None if none else "left" if share > 0.5 else "right" if share < 0.5 else "middle"
        for none, share in zip(nothing.tolist(), left.tolist(), strict=True)
    ]
    return x.cpu().numpy(), y.cpu().numpy(), sides


def distribution(grounding: Grounding, by_region: bool = False) -> tuple[Hashable, NDArray[np.float64] | None]:
    """Return an answer on its own cells (the map's, else the boxes) with a mass of one, and which cells those are.

    ``by_region`` takes the boxes where there is a map as well, because it is painted of them. None where there is no
    mass.
    """
    cells: Hashable
    if grounding.heatmap is not None and not (by_region and grounding.has_boxes):
        cells = grounding.heatmap.grid, grounding.heatmap.extent
        values = grounding.heatmap.values.astype(np.float64).ravel()
    else:
        scored = sorted((one.box.as_tuple(), one.label or "", max(one.score, 0.0)) for one in grounding.boxes)
        cells = tuple(one[:2] for one in scored)
        values = np.array([one[2] for one in scored], dtype=np.float64)
    total = values.sum()
    return cells, values / total if total > 0 else None


def entropy(shares: NDArray[np.float64]) -> float:
    """Return the entropy of shares that add up to one, in nats."""
    some = shares[shares > 0]
    return max(0.0, float(-(some * np.log(some)).sum()))


def symmetric_divergence(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the mean of both Kullback-Leibler divergences, in nats ("That's the Wrong Lung!", appendix B.6)."""
    first, second = np.maximum(one, FLOOR), np.maximum(other, FLOOR)
    return float(((first - second) * (np.log(first) - np.log(second))).sum() / 2)


def _map_of(grounding: Grounding) -> Heatmap:
    assert grounding.heatmap is not None
    return grounding.heatmap


def _corners(box: tuple[float, float, float, float]) -> dict[str, float]:
    return dict(zip(("x0", "y0", "x1", "y1"), box, strict=True))


@lru_cache(maxsize=512)
def _matrix(pixels: int, cells: int, low: float, high: float) -> NDArray[np.float64]:
    return resampling_matrix(pixels, cells, low, high, "bilinear")
