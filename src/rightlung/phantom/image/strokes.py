"""Tapering strokes: ribs, vessels, bronchi, tubes and wires are all chains of short capsules.

Each capsule touches only a few pixels, so it is evaluated on a small window around it and merged into its layer with a
maximum, which does not depend on the order of merging and is therefore the same on every device and in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.chance import Floats

_WINDOW_VALUES = 6_000_000  # values evaluated at once; bounds the memory of large pictures


@dataclass(frozen=True, slots=True)
class Strokes:
    """Capsules of many studies: ends in pixels, radii in pixels, and the plane ``(study, layer)`` each is drawn on."""

    start: Floats  # (s, 2)
    end: Floats  # (s, 2)
    radius: Floats  # (s, 2) at start and end
    plane: NDArray[np.int64]  # (s,)

    @staticmethod
    def chain(points: Floats, radius: Floats, plane: NDArray[np.int64]) -> Strokes:
        """Join successive points, ``(k, p, 2)`` with radii ``(k, p)``, each of the ``k`` chains on its own plane."""
        return Strokes(
            points[:, :-1].reshape(-1, 2),
            points[:, 1:].reshape(-1, 2),
            np.stack([radius[:, :-1].ravel(), radius[:, 1:].ravel()], axis=1),
            np.repeat(plane, points.shape[1] - 1),
        )

    @staticmethod
    def join(parts: list[Strokes]) -> Strokes:
        """Put several sets of strokes together."""
        return Strokes(
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
            np.concatenate([part.radius for part in parts]),
            np.concatenate([part.plane for part in parts]),
        )


def draw(strokes: Strokes, planes: int, size: int, device: torch.device) -> Tensor:
    """Return how deep each pixel lies inside the strokes, ``(planes, size, size)``: 1 on the axis, 0 at the surface.

    Depth is ``1 - distance / radius``; a stroke thinner than a pixel is drawn a pixel wide and as much fainter.
    """
    flat = torch.zeros(planes * size * size, device=device)
    margin = strokes.radius.max(axis=1) + 1.0
    low = np.minimum(strokes.start, strokes.end) - margin[:, None]
    high = np.maximum(strokes.start, strokes.end) + margin[:, None]
    inside = (high > 0).all(axis=1) & (low < size).all(axis=1)
    extent = np.ceil((high - low).max(axis=1)).astype(np.int64) + 1
    # A few window sizes instead of one: a long rib must not make every small vessel expensive.
    edges = [0, 5, 7, 9, 11, 13, 16, 19, 23, 28, 34, 42, 52, 64, 80, 110, 160, 240, 400, 1 << 30]
    kept = np.flatnonzero(inside)
    sort = np.searchsorted(edges, extent[kept], side="left").astype(np.uint8)
    order = np.argsort(sort, kind="stable")
    bounds = np.searchsorted(sort[order], np.arange(1, len(edges) + 1))
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        if first == last:
            continue
        chosen, largest = kept[order[first:last]], edges[number + 1]
        # The window's size must follow from the stroke alone: it decides how coordinates are rounded.
        side = min(largest, size)
        step = max(1, _WINDOW_VALUES // (side * side))
        for begin in range(0, len(chosen), step):
            _draw_windows(flat, strokes, chosen[begin : begin + step], low, side, size)
    return flat.view(planes, size, size)


def _draw_windows(flat: Tensor, strokes: Strokes, chosen: NDArray[np.int64], low: Floats, side: int, size: int) -> None:
    device = flat.device
    corner = np.clip(np.floor(low[chosen]).astype(np.int64), 0, size - side)
    table = np.concatenate(
        [
            strokes.start[chosen] - corner - 0.5,
            strokes.end[chosen] - strokes.start[chosen],
            strokes.radius[chosen],
        ],
        axis=1,
    ).astype(np.float32)
    values = torch.from_numpy(table).to(device)[:, :, None, None]
    start_x, start_y, run_x, run_y, first, last = values.unbind(1)
    cells = torch.arange(side, device=device, dtype=torch.float32)
    dx = cells[None, None, :] - start_x
    dy = cells[None, :, None] - start_y
    length = (run_x * run_x + run_y * run_y).clamp_min_(1e-6)
    along = (dx * (run_x / length) + dy * (run_y / length)).clamp_(0.0, 1.0)
    off_x = torch.addcmul(dx, along, run_x, value=-1.0)
    off_y = torch.addcmul(dy, along, run_y, value=-1.0)
    across = off_x.square_().add_(off_y.square_()).sqrt_()
    radius = along.mul_(last - first).add_(first)
    shown = radius.clamp_min(0.7)
    depth = across.div_(shown).neg_().add_(1.0).clamp_min_(0.0).mul_(radius.div_(shown))
    base = strokes.plane[chosen] * (size * size) + corner[:, 1] * size + corner[:, 0]
    offsets = torch.arange(side, device=device)
    index = torch.from_numpy(base).to(device)[:, None, None] + (offsets[:, None] * size + offsets[None, :])[None]
    flat.scatter_reduce_(0, index.reshape(-1), depth.reshape(-1), reduce="amax", include_self=True)


def round_profile(depth: Tensor) -> Tensor:
    """Return the chord of a round rod relative to its diameter, from the depth inside it."""
    return (depth * (2.0 - depth)).sqrt()
