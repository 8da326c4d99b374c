"""Smooth maps of the anatomy: distance inside a lung, depth of the lung, thickness of the body.

They vary slowly, so they are computed at half the image's resolution and enlarged where a border must be sharp: unlike
a mask, a signed distance survives that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rightlung.phantom.image.anatomy import Thorax
from rightlung.phantom.image.columns import ColumnTensors
from rightlung.phantom.image.frame import Frame, grid, look_up
from rightlung.phantom.image.randomness import Floats

LUNG_DENSITY = 0.3  # of water, blood included


@dataclass(frozen=True, slots=True)
class AnatomyMaps:
    """Coarse maps ``(n, h, w)``, in centimetres unless noted; ``lungs`` is ``(n, 2, h, w)``, right then left."""

    x: Tensor
    y: Tensor
    lungs: Tensor  # signed distance, positive inside
    heart: Tensor  # signed distance, positive inside
    across: Tensor  # 0 at the mediastinum to 1 at the chest wall, in the lung of the pixel's side
    down: Tensor  # 0 at the apex to 1 at the diaphragm
    diaphragm: Tensor  # height above the diaphragm
    inner: Tensor  # distance from the mediastinal border of the lung, negative in the mediastinum
    wall: Tensor  # distance from the lateral border of the lung, positive inside
    depth: Tensor  # of the lung along the beam, where there is lung
    is_left: Tensor  # which side of the mediastinum, bool
    spine: Tensor  # signed distance from the middle of the spine
    middle: Tensor  # signed distance from the middle of the mediastinum
    skin: Tensor  # distance inside the skin

    def take(self, index: Tensor | slice) -> AnatomyMaps:
        """Return the maps of some studies, possibly repeated; a slice does not copy."""
        return AnatomyMaps(**{name: getattr(self, name)[index] for name in self.__slots__})


def smooth_step(values: Tensor, low: float, high: float) -> Tensor:
    """Rise smoothly from 0 at ``low`` to 1 at ``high``."""
    share = (values - low).mul_(1.0 / (high - low)).clamp_(0.0, 1.0)
    return share.square().mul_(torch.rsub(share, 3.0, alpha=2.0))


def enlarge(maps: Tensor, size: int) -> Tensor:
    """Enlarge maps ``(n, h, w)`` to ``size`` pixels across."""
    return functional.interpolate(maps[:, None], (size, size), mode="bilinear", align_corners=False)[:, 0]


def distance(values: Tensor, spacing: Tensor) -> Tensor:
    """Convert a function that is zero on a border into the distance from it, using its slope."""
    slope_x = torch.zeros_like(values)
    slope_y = torch.zeros_like(values)
    slope_x[:, :, 1:-1] = values[:, :, 2:] - values[:, :, :-2]
    slope_y[:, 1:-1, :] = values[:, 2:, :] - values[:, :-2, :]
    steep = torch.hypot(slope_x, slope_y) / (2 * spacing)
    return values / steep.clamp_(0.7, 8.0)


def columns(thorax: Thorax, frame: Frame, size: int) -> dict[str, Floats]:
    """Return the inputs of the maps of an image ``size`` pixels across, besides the outlines."""
    return {
        **frame.columns(size),
        "cell": 1.0 / (frame.scale * (size // 2)),
        "shoulder_slope": 0.24 * (thorax.chance[:, 26] - 0.5),  # one shoulder is higher than the other
        "apex": thorax.apex,
        "width": thorax.width,
        "height": thorax.height,
        "heart_middle": thorax.heart_middle,
        # A rotated chest is more lucent on the side to which the front turns, and no two lungs are equally aerated.
        "uneven": 0.5 * thorax.turn + 0.2 * (thorax.chance[:, 27] - 0.5),
        "density": np.array([LUNG_DENSITY * (1 - change.lucent) for change in thorax.deformations]),
    }


def outlines(thorax: Thorax) -> NDArray[np.float32]:
    """Return all tables of a batch together, ``(n, 8, len(AXIS))``: six over y, the diaphragm over x, the skin."""
    tables = (*thorax.outer, *thorax.inner, thorax.middle, thorax.spine, thorax.diaphragm, thorax.skin)
    return np.stack(tables, axis=1).astype(np.float32)


def build(studies: ColumnTensors, tables: Tensor, coarse: int) -> AnatomyMaps:
    """Compute the maps of a batch on a grid of ``coarse`` cells across."""
    x, y = grid(studies, coarse)
    outer_right, outer_left, inner_right, inner_left, middle, spine = look_up(tables[:, :6], y)
    (diaphragm,) = look_up(tables[:, 6:7], x)
    (skin,) = look_up(tables[:, 7:8], y + studies["shoulder_slope"] * x)
    spacing = studies["cell"]
    above = diaphragm - y
    right = torch.minimum(torch.minimum(x - outer_right, inner_right - x), above)
    left = torch.minimum(torch.minimum(outer_left - x, x - inner_left), above)
    below_apex = y - studies["apex"]
    lungs = torch.stack([distance(torch.minimum(side, below_apex), spacing) for side in (right, left)], dim=1)
    is_left = x > middle
    inner = torch.where(is_left, x - inner_left, inner_right - x)
    outer = torch.where(is_left, outer_left - x, x - outer_right)
    across = inner / (inner + outer).clamp_min(1.0)
    down = below_apex / (below_apex + above).clamp_min(2.0)
    depth = lung_depth(across, down, outer, studies["width"])
    depth = depth * (1.0 + studies["uneven"] * torch.tanh(x / 5.0))
    heart_y = (y - studies["heart_middle"]) / studies["height"]
    # The great vessels leave the heart obliquely: its upper border rises from right to left. It rests on the dome.
    top = heart_y + 4.3 + 0.16 * (x - middle)
    heart = torch.minimum(torch.minimum(x - inner_right, inner_left - x), top)
    heart = torch.minimum(torch.minimum(heart, above + 1.6), (4.9 - heart_y) * studies["height"])
    return AnatomyMaps(
        x=x, y=y, lungs=lungs, heart=distance(heart, spacing), across=across, down=down, diaphragm=above, inner=inner,
        wall=outer, depth=depth, is_left=is_left, spine=x - spine, middle=x - middle, skin=skin - x.abs(),
    )  # fmt: skip


def lung_depth(across: Tensor, down: Tensor, outer: Tensor, width: Tensor) -> Tensor:
    """Return how much lung the beam crosses: a barrel, shallow at the apex and curved at the chest wall."""
    sideways = (outer.clamp(0.0, 7.0) / 7.0).mul(2.0).sub(outer.clamp(0.0, 7.0).div(7.0).square()).clamp_min(0).sqrt()
    lengthwise = 0.3 + 0.7 * smooth_step(down, -0.08, 0.5)
    return 16.5 * width.pow(0.35) * sideways * lengthwise * (0.86 + 0.14 * smooth_step(across, 0.0, 0.4))


def border_softness(anatomy: AnatomyMaps) -> Tensor:
    """Return over how many centimetres the lung's border fades: little at heart and domes, more at the apex."""
    inlet = 1 - smooth_step(anatomy.down, 0.06, 0.36)
    medial = 1 - smooth_step(anatomy.across, 0.05, 0.3)
    return 0.05 + 0.75 * inlet * (0.35 + 0.65 * medial)
