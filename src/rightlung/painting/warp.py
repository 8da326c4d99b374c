"""How findings move a film's anatomy: from the shift of the chest's borders to the film, deformed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.frame import look_up
from rightlung.phantom.image.maps import AnatomyMaps, enlarge, smooth_step

_SPINE = 2.0  # half of its width in centimetres; it stays where it is


def displacements(own: Thorax, changed: Thorax, coarse: AnatomyMaps) -> Tensor:
    """Return how far the anatomy at each pixel has moved, in centimetres (n, 2, side / 2, side / 2): x, y.

    Borders move as the tables do, what lies between them in proportion; walls, spine and apices stay.
    """
    tables = np.stack([*changed.inner, *changed.outer, *(a - b for a, b in zip(changed.inner, own.inner, strict=True)),
                       *(a - b for a, b in zip(changed.outer, own.outer, strict=True))], axis=1)  # fmt: skip
    right, left, wall_right, wall_left, *moves = look_up(torch.from_numpy(tables.astype(np.float32)), coarse.y)
    (drop,) = look_up(torch.from_numpy((changed.diaphragm - own.diaphragm)[:, None].astype(np.float32)), coarse.x)
    still = torch.zeros_like(right)
    spine = (torch.maximum(right + 0.6, still - _SPINE), torch.minimum(left - 0.6, still + _SPINE))
    both = (moves[0] + moves[1]) / 2
    together = torch.where(moves[0] * moves[1] > 0, both.sign() * torch.minimum(moves[0].abs(), moves[1].abs()), still)
    knots = [
        (wall_right, moves[2]), (right, moves[0]), (spine[0], 0.5 * together), (spine[1], 0.5 * together),
        (left, moves[1]), (wall_left, moves[3]),
    ]  # fmt: skip
    x = _between(knots, coarse.x)
    below = (-coarse.diaphragm).clamp_min(0.0)
    x = x * (1 - smooth_step(below, 0.0, 3.0))
    y = drop * smooth_step(coarse.down, 0.3, 1.0) * (1 - smooth_step(below, 0.0, 9.0))
    return torch.stack([x, y], dim=1)


def _between(knots: Sequence[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Interpolate values at ascending knots (place, value), constant beyond the first and the last."""
    found = knots[0][1]
    for (begin, first), (end, second) in pairwise(knots):
        share = ((x - begin) / (end - begin).clamp_min(0.1)).clamp(0.0, 1.0)
        found = torch.where(x > begin, first + (second - first) * share, found)
    return found


def deformed(planes: Tensor, shift: Tensor, mode: str = "bicubic") -> Tensor:
    """Return planes (k, side, side) whose content has moved by ``shift`` (2, side / 2, side / 2) pixels."""
    side = planes.shape[-1]
    steps = (torch.arange(side, dtype=torch.float32) + 0.5) * (2 / side) - 1
    moved = enlarge(shift, side) * (2 / side)
    grid = torch.stack([steps[None] - moved[0], steps[:, None] - moved[1]], dim=-1)
    return grid_sample(planes[None], grid[None], mode, "border", align_corners=False)[0]
