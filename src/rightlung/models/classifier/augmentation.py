"""Random changes to training images that leave what they show as it is, for whole batches on their device.

Nothing is mirrored: a heart on the right is a disease, not a nuisance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far images may be changed; 0 everywhere changes nothing."""

    rotation: float = 8.0  # degrees, either way
    scale: float = 0.12  # relative size, either way
    shift: float = 0.06  # of the image's side, either way
    shear: float = 0.04
    brightness: float = 0.1
    contrast: float = 0.25
    gamma: float = 0.35  # of the logarithm of the exponent
    noise: float = 0.03  # largest standard deviation
    blur: float = 0.7  # largest share of a blurred copy
    cut_out: float = 0.25  # largest side of a grey rectangle, of the image's

    def times(self, factor: float) -> Augmentation:
        """Return these settings, all larger or smaller by a factor; the shares stay below 1."""
        changed = {name: factor * value for name, value in asdict(self).items()}
        return Augmentation(**changed | {name: min(changed[name], 1.0) for name in ("blur", "cut_out")})


def augment(
    images: torch.Tensor,
    settings: Augmentation,
    generator: torch.Generator,
    masks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Change images (n, 1, h, w) in 0–1, and move masks (n, k, rows, cols) along with them.

    The same generator state gives the same result on the same kind of device.
    """
    count, device = len(images), images.device

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, generator=generator, device=device) * (high - low) + low

    def either_way(size: float, *shape: int) -> torch.Tensor:
        return uniform(-size, size, *shape)

    grid = _affine(
        either_way(math.radians(settings.rotation)),
        torch.exp(either_way(settings.scale)),
        either_way(settings.shear),
        either_way(2 * settings.shift, 2),
    )
    images = _moved(images, grid)
    moved_masks = None if masks is None else _moved(masks, grid)

    exponent = torch.exp(either_way(settings.gamma, 1, 1, 1))
    images = images.clamp(1e-4, 1.0) ** exponent
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    contrast = torch.exp(either_way(settings.contrast, 1, 1, 1))
    images = (images - middle) * contrast + middle + either_way(settings.brightness, 1, 1, 1)
    blurred = avg_pool2d(avg_pool2d(images, 3, 1, 1, count_include_pad=False), 3, 1, 1, count_include_pad=False)
    images = torch.lerp(images, blurred, uniform(0.0, settings.blur, 1, 1, 1))
    noise = torch.randn(images.shape, generator=generator, device=device)
    images = (images + noise * uniform(0.0, settings.noise, 1, 1, 1)).clamp(0.0, 1.0)
    if settings.cut_out > 0:
        images = torch.where(_rectangles(images, settings.cut_out, uniform), middle, images)
    return images, moved_masks


def _affine(turn: torch.Tensor, scale: torch.Tensor, shear: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Matrices (n, 2, 3) in the coordinates of `affine_grid`."""
    cosine, sine = torch.cos(turn) * scale, torch.sin(turn) * scale
    rows = [torch.stack([cosine, shear - sine, shift[:, 0]], 1), torch.stack([sine, cosine, shift[:, 1]], 1)]
    return torch.stack(rows, 1)


def _moved(images: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    grid = affine_grid(matrices, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _rectangles(images: torch.Tensor, largest: float, uniform: Callable[..., torch.Tensor]) -> torch.Tensor:
    """One rectangle an image, (n, 1, h, w) booleans; its sides are drawn from 0 to the largest."""
    inside = []
    for axis, length in ((2, images.shape[2]), (3, images.shape[3])):
        positions = (torch.arange(length, device=images.device) + 0.5) / length
        middle, half = uniform(0.0, 1.0, 1), uniform(0.0, largest / 2, 1)
        along = (positions[None] - middle).abs() < half
        inside.append(along[:, None, :, None] if axis == 2 else along[:, None, None, :])
    return inside[0] & inside[1]
