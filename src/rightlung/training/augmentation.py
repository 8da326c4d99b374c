"""Random changes to training images that keep their meaning, for whole batches on their device.

Pixels are never mirrored without their words: `ImageChanges.mirrored` says which images are, and `batches` mirrors the
words with them. By default nothing is mirrored: a heart on the right is a disease, not a nuisance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

MOVING = ("rotation", "scale", "shift", "shear")
"""The changes that move things within the image (apart from mirroring)."""


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
    cutout: float = 0.25  # largest side of a grey rectangle, of the image's
    mirror: float = 0.0  # share of the images that are mirrored, together with their words

    def times(self, factor: float) -> Augmentation:
        """Return these settings, all larger or smaller by a factor; the shares stay below 1."""
        changed = {entry.name: factor * getattr(self, entry.name) for entry in fields(self)}
        return Augmentation(**changed | {name: min(changed[name], 1.0) for name in ("blur", "cutout", "mirror")})


@dataclass(frozen=True, slots=True, eq=False)
class ImageChanges:
    """What is done to each of ``n`` images: one value per image and change, and the noise."""

    turn: Tensor  # (n,) radians
    scale: Tensor  # (n,)
    shear: Tensor  # (n,)
    shift: Tensor  # (n, 2)
    exponent: Tensor  # (n, 1, 1, 1), as the rest
    contrast: Tensor
    brightness: Tensor
    blur: Tensor
    noise: Tensor  # (n, 1, h, w)
    noise_level: Tensor
    rectangles: Tensor | None  # (n, 4): middle and half the extent, down and across
    mirrored: Tensor | None = None  # (n,) bool
    moves: bool = True  # False: nothing is turned, scaled, sheared or shifted


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device without waiting for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def draw_changes(
    size: Sequence[int],
    settings: Augmentation,
    generator: torch.Generator,
    rows: Tensor,
    total: int,
    device: torch.device,
) -> ImageChanges:
    """Draw the changes of ``total`` images, of which these are the ``rows`` (n,), so that every process agrees on them.

    ``size`` is (n, 1, h, w). ``generator`` is one on the CPU, in the same state in every process. An image's changes
    depend on its row and not on how the rows are divided. Its noise is a piece, cut at a place of its own, of a sheet
    that all share. Nothing is mirrored.
    """
    height, width = size[2], size[3]

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(total, *shape, generator=generator)[rows]
        return on_device(drawn * (high - low) + low, device)

    def noise() -> Tensor:
        sheet = on_device(torch.randn(2 * height, 2 * width, generator=generator), device)
        down = (uniform(0.0, height, 1).long() + torch.arange(height, device=device))[:, :, None]
        across = (uniform(0.0, width, 1).long() + torch.arange(width, device=device))[:, None, :]
        return sheet[down, across][:, None]

    return make_changes(settings, uniform, noise)


def make_changes(settings: Augmentation, uniform: Callable[..., Tensor], noise: Callable[[], Tensor]) -> ImageChanges:
    """Make changes of random numbers: ``uniform(low, high, *shape)`` gives some for every image, ``(n, *shape)``."""

    def either_way(size: float, *shape: int) -> Tensor:
        return uniform(-size, size, *shape)

    # The order in which these are drawn is part of what a seed means.
    return ImageChanges(
        turn=either_way(math.radians(settings.rotation)),
        scale=torch.exp(either_way(settings.scale)),
        shear=either_way(settings.shear),
        shift=either_way(2 * settings.shift, 2),
        exponent=torch.exp(either_way(settings.gamma, 1, 1, 1)),
        contrast=torch.exp(either_way(settings.contrast, 1, 1, 1)),
        brightness=either_way(settings.brightness, 1, 1, 1),
        blur=uniform(0.0, settings.blur, 1, 1, 1),
        noise=noise(),
        noise_level=uniform(0.0, settings.noise, 1, 1, 1),
        rectangles=_rectangles(settings.cutout / 2, uniform) if settings.cutout > 0 else None,
        moves=any(getattr(settings, name) > 0 for name in MOVING),
    )


def _rectangles(largest: float, uniform: Callable[..., Tensor]) -> Tensor:
    return torch.cat([uniform(0.0, high, 1) for _ in range(2) for high in (1.0, largest)], dim=1)


def apply_changes(images: Tensor, changes: ImageChanges) -> Tensor:
    """Change images (n, 1, h, w) in 0–1."""
    images = _moved(images, changes)
    images = images.clamp(1e-4, 1.0) ** changes.exponent
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (images - middle) * changes.contrast + middle + changes.brightness
    blurred = avg_pool2d(avg_pool2d(images, 3, 1, 1, count_include_pad=False), 3, 1, 1, count_include_pad=False)
    images = torch.lerp(images, blurred, changes.blur)
    images = (images + changes.noise * changes.noise_level).clamp(0.0, 1.0)
    if changes.rectangles is not None:
        images = torch.where(_inside(images, changes.rectangles), middle, images)
    return images


def move_masks(masks: Tensor, changes: ImageChanges, images: Tensor | None = None) -> Tensor:
    """Move masks (n, k, rows, cols) with their images; ``images`` (n,) is the index of each one's image."""
    if images is not None:
        names = ("turn", "scale", "shear", "shift", *([] if changes.mirrored is None else ["mirrored"]))
        changes = replace(changes, **{name: getattr(changes, name)[images] for name in names})
    return _moved(masks, changes)


def move_boxes(boxes: Tensor, changes: ImageChanges, images: Tensor) -> Tensor:
    """Move boxes (p, 4) with their images, but do not mirror them: the upright boxes around what they become.

    Boxes are x0, y0, x1, y1 in fractions of the image; ``images`` (p,) is the index of each one's image.
    """
    if not changes.moves:
        return boxes
    theta = _matrices(changes)[images]  # from a place in the new image to the one in the old, both from -1 to 1
    corners = 2 * boxes[:, [0, 1, 0, 3, 2, 1, 2, 3]].view(-1, 4, 2) - 1
    moved = (corners - theta[:, None, :, 2]) @ torch.linalg.inv(theta[:, :, :2]).mT
    return (torch.cat([moved.amin(1), moved.amax(1)], dim=1) + 1) / 2


def _matrices(changes: ImageChanges) -> Tensor:
    """Return the affine maps (n, 2, 3) of `affine_grid`."""
    cosine, sine = torch.cos(changes.turn) * changes.scale, torch.sin(changes.turn) * changes.scale
    rows = [
        torch.stack([cosine, changes.shear - sine, changes.shift[:, 0]], 1),
        torch.stack([sine, cosine, changes.shift[:, 1]], 1),
    ]
    return torch.stack(rows, 1)


def _moved(images: Tensor, changes: ImageChanges) -> Tensor:
    if changes.mirrored is not None:
        images = torch.where(changes.mirrored[:, None, None, None], images.flip(3), images)
    grid = affine_grid(_matrices(changes), list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _inside(images: Tensor, rectangles: Tensor) -> Tensor:
    """One rectangle an image, (n, 1, h, w) booleans."""
    inside = []
    for axis, (middle, half) in enumerate(zip(rectangles[:, 0::2].T, rectangles[:, 1::2].T, strict=True), start=2):
        length = images.shape[axis]
        positions = (torch.arange(length, device=images.device) + 0.5) / length
        along = (positions[None] - middle[:, None]).abs() < half[:, None]
        inside.append(along[:, None, :, None] if axis == 2 else along[:, None, None, :])
    both: Tensor = inside[0] & inside[1]
    return both
