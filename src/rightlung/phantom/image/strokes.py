"""Tapered strokes: ribs, vessels, bronchi, tubes and wires are chains of short capsules.

Each capsule covers only a few pixels, so it is evaluated on a small window and merged into its layer with a maximum.
The maximum does not depend on the order of merging, so the result is the same on every device and in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.randomness import Floats

_WINDOW_VALUES = {"cpu": 6_000_000, "cuda": 24_000_000}  # values evaluated at once; bounds the memory
# Several window sizes instead of one, so that a long rib does not make every small vessel expensive.
_SIDES = np.array([5, 7, 9, 11, 13, 16, 19, 23, 28, 34, 42, 52, 64, 80, 110, 160, 240, 400, 1 << 30])


Chain = tuple[Floats, Floats, int]
"""Points ``(n, k, p, 2)`` and radii ``(n, k, p)`` of ``k`` chains of ``n`` studies in centimetres, and their layer."""


@dataclass(frozen=True, slots=True)
class Strokes:
    """Capsules of many studies: ends and radii in pixels, and the plane ``(study, layer)`` of each."""

    start: Floats  # (s, 2)
    end: Floats  # (s, 2)
    radius: Floats  # (s, 2) at start and end
    plane: NDArray[np.int64]  # (s,)

    @staticmethod
    def join(parts: list[Strokes]) -> Strokes:
        """Concatenate several sets of strokes."""
        return Strokes(*(np.concatenate([getattr(part, name) for part in parts]) for name in Strokes.__slots__))


def windows(strokes: Strokes, size: int) -> dict[int, NDArray[np.int32]]:
    """Return, for each window size, the strokes that fit into it, ``(s, 8)``.

    A row holds the start relative to the window, the vector to the end and both radii as the bits of floats, then the
    plane and the window's first pixel in it.
    """
    # Column by column: NumPy is slow along an axis of two.
    margin = np.maximum(*strokes.radius.T) + 1.0
    (x, y), (end_x, end_y) = strokes.start.T, strokes.end.T
    left, right = np.minimum(x, end_x) - margin, np.maximum(x, end_x) + margin
    top, bottom = np.minimum(y, end_y) - margin, np.maximum(y, end_y) + margin
    inside = (right > 0) & (bottom > 0) & (left < size) & (top < size)
    extent = np.ceil(np.maximum(right - left, bottom - top)).astype(np.int64) + 1
    kept = np.flatnonzero(inside)
    sort = np.searchsorted(_SIDES, extent[kept], side="left").astype(np.uint8)
    # The window size must depend on the stroke alone, because it determines how coordinates are rounded.
    sides = np.minimum(_SIDES, size)
    order = np.argsort(sort, kind="stable")
    chosen, side = kept[order], sides[sort[order]]
    column = np.clip(np.floor(left[chosen]).astype(np.int64), 0, size - side)
    row = np.clip(np.floor(top[chosen]).astype(np.int64), 0, size - side)
    rows = np.empty((len(chosen), 8), dtype=np.int32)
    floats = rows.view(np.float32)
    floats[:, 0] = x[chosen] - column - 0.5
    floats[:, 1] = y[chosen] - row - 0.5
    floats[:, 2] = (end_x - x)[chosen]
    floats[:, 3] = (end_y - y)[chosen]
    floats[:, 4:6] = strokes.radius[chosen]
    rows[:, 6] = strokes.plane[chosen]
    rows[:, 7] = row * size + column
    bounds = np.searchsorted(side, sides, side="right").tolist()
    return {int(wide): rows[first:last] for wide, (first, last) in zip(sides, pairwise([0, *bounds]), strict=True)
            if first < last}  # fmt: skip


def draw_windows(sets: Mapping[int, Tensor], planes: int, size: int, device: torch.device) -> Tensor:
    """Return the depth of each pixel inside strokes, ``(planes, size, size)``: 1 on the axis, 0 at the surface.

    Depth is ``1 - distance / radius``; a stroke thinner than a pixel is drawn one pixel wide and proportionally
    fainter. ``sets`` comes from `windows`.
    """
    flat = torch.zeros(planes * size * size, device=device)
    most = _WINDOW_VALUES.get(device.type, _WINDOW_VALUES["cpu"])
    for side, rows in sets.items():
        for some in torch.split(rows, max(1, most // (side * side))):
            _draw_some(flat, some, side, size)
    return flat.view(planes, size, size)


def _draw_some(flat: Tensor, rows: Tensor, side: int, size: int) -> None:
    device = flat.device
    start_x, start_y, run_x, run_y, first, last = rows.view(torch.float32)[:, :6, None, None].unbind(1)
    offsets = torch.arange(side, device=device)
    cells = offsets.float()
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
    base = rows[:, 6].long() * (size * size) + rows[:, 7]
    index = base[:, None, None] + (offsets[:, None] * size + offsets[None, :])[None]
    flat.scatter_reduce_(0, index.reshape(-1), depth.reshape(-1), reduce="amax", include_self=True)


def round_profile(depth: Tensor) -> Tensor:
    """Return the chord of a round rod relative to its diameter, from the depth inside it."""
    return (depth * (2.0 - depth)).sqrt()
