"""Random changes of grey values between archives: contrast curves, inversion, bias fields, sharpening.

All are off by default, and those that are off draw no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import interpolate

if TYPE_CHECKING:
    from rightlung.training.augmentation import Augmentation

PIECES = 8
"""Straight pieces of a contrast curve."""
FIELD_POINTS = 4
"""Points along each side between which a bias field is interpolated."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainParams:
    """The sampled changes of ``n`` images; None for those that are off."""

    inverted: Tensor | None = None  # (n, 1, 1, 1) bool
    curves: Tensor | None = None  # (n, PIECES + 1): rising from 0 to 1
    bias: Tensor | None = None  # (n, 1, FIELD_POINTS, FIELD_POINTS)
    sharpening: Tensor | None = None  # (n, 1, 1, 1)


def sample_domain(settings: Augmentation, uniform: Callable[..., Tensor]) -> DomainParams:
    """Sample the changes of `make_params`'s images: ``uniform(low, high, *shape)`` returns ``(n, *shape)``."""
    steepness, bias = settings.contrast_curve, settings.bias_field
    return DomainParams(
        inverted=uniform(0.0, 1.0, 1, 1, 1) < settings.inversion if settings.inversion > 0 else None,
        curves=monotone_curves(uniform(-steepness, steepness, PIECES)) if steepness > 0 else None,
        bias=uniform(-bias, bias, 1, FIELD_POINTS, FIELD_POINTS) if bias > 0 else None,
        sharpening=uniform(0.0, settings.sharpen, 1, 1, 1) if settings.sharpen > 0 else None,
    )


def monotone_curves(log_slopes: Tensor) -> Tensor:
    """Return rising curves (n, pieces + 1) from 0 to 1 at equal distances, by the logarithm of each piece's slope.

    >>> monotone_curves(torch.tensor([[3.0, 1.0]]).log())
    tensor([[0.0000, 0.7500, 1.0000]])
    """
    ends = torch.exp(log_slopes).cumsum(1)
    return torch.cat([torch.zeros_like(ends[:, :1]), ends / ends[:, -1:]], dim=1)


def change_greys(images: Tensor, params: DomainParams) -> Tensor:
    """Invert images (n, 1, h, w) in 0 to 1, and apply their contrast curves."""
    if params.inverted is not None:
        images = torch.where(params.inverted, 1.0 - images, images)
    if params.curves is not None:
        places = images.clamp(0.0, 1.0).flatten(1) * (params.curves.shape[1] - 1)
        piece = places.long().clamp_max(params.curves.shape[1] - 2)
        low, high = params.curves.gather(1, piece), params.curves.gather(1, piece + 1)
        images = torch.lerp(low, high, places - piece).view_as(images)
    return images


def add_bias(images: Tensor, params: DomainParams) -> Tensor:
    """Add the smooth brightness fields to images (n, 1, h, w)."""
    if params.bias is None:
        return images
    return images + interpolate(params.bias, images.shape[2:], mode="bicubic", align_corners=True)
