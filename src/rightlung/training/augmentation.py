"""Random changes to training images that keep their meaning, for whole batches on their device.

`AugmentationParams.mirrored` says which images are mirrored, and `batches` mirrors their words with them, unless
``mirror`` is ``pixels`` (an ablation). By default nothing is mirrored, because a mirrored chest looks like
dextrocardia.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from rightlung.core.errors import InputError
from rightlung.training.clahe import clahe
from rightlung.training.domain_randomisation import DomainParams, add_bias, change_greys, sample_domain

GEOMETRIC = ("rotation", "scale", "shift", "shear", "crop")
"""The settings that move things within the image, apart from mirroring."""
CROP_ASPECT = math.log(4 / 3)
PIXELS_ONLY = (
    "augmentation.mirror is 'pixels', an ablation: images are mirrored and their words are not, so that the model "
    "cannot learn left and right"
)


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How far images may be changed; 0 everywhere changes nothing."""

    rotation: float = 8.0  # degrees, either way
    scale: float = 0.12  # factor = exp(u), u uniform in +-scale
    shift: float = 0.06  # of the image's side, either way
    shear: float = 0.04
    brightness: float = 0.1
    contrast: float = 0.25  # factor = exp(u), u uniform in +-contrast
    gamma: float = 0.35  # exponent = exp(u), u uniform in +-gamma
    noise: float = 0.03  # largest standard deviation
    blur: float = 0.7  # largest share of a blurred copy
    cutout: float = 0.25  # largest side of a grey rectangle, of the image's
    crop: float = 0.0  # largest share of the area that is cut away; the rest is resized (random resized crop)
    clahe: float = 0.0  # probability of contrast-limited adaptive histogram equalisation
    mirror: Literal["words", "pixels", "none"] = "none"  # words: images with their words; pixels: see `PIXELS_ONLY`
    mirror_probability: float | None = None  # that an image is mirrored; None: 0.5
    cutout_count: int = 1  # rectangles of `cutout`; several are coarse dropout
    inversion: float = 0.0  # probability that black and white are exchanged
    contrast_curve: float = 0.0  # slope of each eighth of a random rising curve = exp(u), u uniform in +-contrast_curve
    bias_field: float = 0.0  # largest brightness, either way, at the 4 x 4 points of a smooth field
    sharpen: float = 0.0  # largest share of the fine detail (image - blurred copy) that is added

    def __post_init__(self) -> None:
        if self.mirror == "none" and self.mirror_probability is not None:
            raise InputError("mirror_probability has no effect with mirror: none; set mirror to words, or remove it")

    @property
    def mirrored_share(self) -> float:
        """The probability that an image is mirrored."""
        if self.mirror == "none":
            return 0.0
        return 0.5 if self.mirror_probability is None else self.mirror_probability

    def times(self, factor: float) -> Augmentation:
        """Return these settings but mirroring, all larger or smaller by a factor; the shares stay below 1."""
        kept = ("mirror", "mirror_probability", "cutout_count")
        changed = {one.name: factor * getattr(self, one.name) for one in fields(self) if one.name not in kept}
        shares = ("blur", "cutout", "crop", "clahe", "inversion")
        return replace(self, **changed | {name: min(changed[name], 1.0) for name in shares})


@dataclass(frozen=True, slots=True, eq=False)
class AugmentationParams:
    """The sampled augmentation of ``n`` images: one value per image and setting, and the noise."""

    rotation: Tensor  # (n,) radians
    scale: Tensor  # (n,)
    shear: Tensor  # (n,)
    shift: Tensor  # (n, 2)
    gamma: Tensor  # (n, 1, 1, 1), as the following: the exponent
    contrast: Tensor
    brightness: Tensor
    blur: Tensor
    noise: Tensor  # (n, 1, h, w)
    noise_level: Tensor
    cutout: Tensor | None  # (n, rectangles, 4): centre y, half height, centre x, half width
    crop: Tensor | None = None  # (n, 4): width and height of the crop, of the image's, and its centre from -1 to 1
    clahe: Tensor | None = None  # (n,) bool
    mirrored: Tensor | None = None  # (n,) bool
    moves: bool = True  # False: nothing is rotated, scaled, sheared or shifted
    domain: DomainParams = field(default_factory=DomainParams)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device without waiting for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def sample_params(
    size: Sequence[int],
    settings: Augmentation,
    generator: torch.Generator,
    rows: Tensor,
    total: int,
    device: torch.device,
) -> AugmentationParams:
    """Sample the parameters of the ``rows`` (n,) of a global batch of ``total`` images, equal in every process.

    ``size`` is (n, 1, h, w). ``generator`` is one on the CPU, in the same state in every process. An image's
    parameters depend on its row and not on how the rows are divided. Each image's noise is a random crop of one shared
    noise tensor. Nothing is mirrored.
    """
    height, width = size[2], size[3]

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(total, *shape, generator=generator)[rows]
        return to_device(drawn * (high - low) + low, device)

    def noise() -> Tensor:
        shared = to_device(torch.randn(2 * height, 2 * width, generator=generator), device)
        down = (uniform(0.0, height, 1).long() + torch.arange(height, device=device))[:, :, None]
        across = (uniform(0.0, width, 1).long() + torch.arange(width, device=device))[:, None, :]
        return shared[down, across][:, None]

    return make_params(settings, uniform, noise)


def make_params(
    settings: Augmentation, uniform: Callable[..., Tensor], noise: Callable[[], Tensor]
) -> AugmentationParams:
    """Make parameters of random numbers: ``uniform(low, high, *shape)`` returns ``(n, *shape)``."""

    def either_way(size: float, *shape: int) -> Tensor:
        return uniform(-size, size, *shape)

    # The order in which these are drawn is part of what a seed means.
    return AugmentationParams(
        rotation=either_way(math.radians(settings.rotation)),
        scale=torch.exp(either_way(settings.scale)),
        shear=either_way(settings.shear),
        shift=either_way(2 * settings.shift, 2),
        gamma=torch.exp(either_way(settings.gamma, 1, 1, 1)),
        contrast=torch.exp(either_way(settings.contrast, 1, 1, 1)),
        brightness=either_way(settings.brightness, 1, 1, 1),
        blur=uniform(0.0, settings.blur, 1, 1, 1),
        noise=noise(),
        noise_level=uniform(0.0, settings.noise, 1, 1, 1),
        cutout=_sample_cutout(settings, uniform) if settings.cutout > 0 else None,
        crop=_sample_crop(settings.crop, uniform) if settings.crop > 0 else None,
        clahe=uniform(0.0, 1.0) < settings.clahe if settings.clahe > 0 else None,
        moves=any(getattr(settings, name) > 0 for name in GEOMETRIC),
        domain=sample_domain(settings, uniform),
    )


def _sample_cutout(settings: Augmentation, uniform: Callable[..., Tensor]) -> Tensor:
    highs = (1.0, settings.cutout / 2, 1.0, settings.cutout / 2)
    return torch.stack([uniform(0.0, high, settings.cutout_count) for high in highs], dim=2)


def _sample_crop(most_cut: float, uniform: Callable[..., Tensor]) -> Tensor:
    """Return a crop of 1 - ``most_cut`` to all of the area, of an aspect from 3/4 to 4/3, anywhere in the image."""
    area, aspect = uniform(1.0 - most_cut, 1.0, 1), torch.exp(uniform(-CROP_ASPECT, CROP_ASPECT, 1) / 2)
    sides = torch.cat([(area.sqrt() * aspect).clamp(max=1.0), (area.sqrt() / aspect).clamp(max=1.0)], dim=1)
    return torch.cat([sides, uniform(-1.0, 1.0, 2) * (1.0 - sides)], dim=1)


def apply_params(images: Tensor, params: AugmentationParams) -> Tensor:
    """Augment images (n, 1, h, w) in 0–1."""
    images = _moved(images, params)
    if params.clahe is not None:
        images = torch.where(params.clahe[:, None, None, None], clahe(images), images)
    images = change_greys(images, params.domain)
    images = images.clamp(1e-4, 1.0) ** params.gamma
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    images = add_bias((images - middle) * params.contrast + middle + params.brightness, params.domain)
    blurred = avg_pool2d(avg_pool2d(images, 3, 1, 1, count_include_pad=False), 3, 1, 1, count_include_pad=False)
    sharpening = params.domain.sharpening
    images = torch.lerp(images, blurred, params.blur if sharpening is None else params.blur - sharpening)
    images = (images + params.noise * params.noise_level).clamp(0.0, 1.0)
    if params.cutout is not None:
        images = torch.where(_inside(images, params.cutout), middle, images)
    return images


def move_masks(masks: Tensor, params: AugmentationParams, images: Tensor | None = None) -> Tensor:
    """Move masks (n, k, rows, cols) with their images; ``images`` (n,) is the index of each one's image."""
    if images is not None:
        optional = [name for name in ("mirrored", "crop") if getattr(params, name) is not None]
        names = ("rotation", "scale", "shear", "shift", *optional)
        params = replace(params, **{name: getattr(params, name)[images] for name in names})
    return _moved(masks, params)


def move_boxes(boxes: Tensor, params: AugmentationParams, images: Tensor) -> Tensor:
    """Move boxes (p, 4) with their images, but do not mirror them: the upright boxes around what they become.

    Boxes are x0, y0, x1, y1 in fractions of the image; ``images`` (p,) is the index of each one's image.
    """
    if not params.moves:
        return boxes
    theta = _matrices(params)[images]  # from a place in the new image to the one in the old, both from -1 to 1
    corners = 2 * boxes[:, [0, 1, 0, 3, 2, 1, 2, 3]].view(-1, 4, 2) - 1
    moved = (corners - theta[:, None, :, 2]) @ torch.linalg.inv(theta[:, :, :2]).mT
    return (torch.cat([moved.amin(1), moved.amax(1)], dim=1) + 1) / 2


def _matrices(params: AugmentationParams) -> Tensor:
    """Return the affine maps (n, 2, 3) of `affine_grid`."""
    cosine, sine = torch.cos(params.rotation) * params.scale, torch.sin(params.rotation) * params.scale
    rows = [
        torch.stack([cosine, params.shear - sine, params.shift[:, 0]], 1),
        torch.stack([sine, cosine, params.shift[:, 1]], 1),
    ]
    matrices = torch.stack(rows, 1)
    if params.crop is None:
        return matrices
    sides, centre = params.crop[:, :2], params.crop[:, 2:]
    linear = matrices[:, :, :2] * sides[:, None]
    shift = matrices[:, :, 2:] + matrices[:, :, :2] @ centre[:, :, None]
    return torch.cat([linear, shift], dim=2)


def _moved(images: Tensor, params: AugmentationParams) -> Tensor:
    if params.mirrored is not None:
        images = torch.where(params.mirrored[:, None, None, None], images.flip(3), images)
    grid = affine_grid(_matrices(params), list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _inside(images: Tensor, cutout: Tensor) -> Tensor:
    """Return the pixels in the rectangles of each image, (n, 1, h, w) bool."""
    inside = []
    for axis in (0, 1):
        length, middle, half = images.shape[2 + axis], cutout[:, :, 2 * axis], cutout[:, :, 2 * axis + 1]
        positions = (torch.arange(length, device=images.device) + 0.5) / length
        inside.append((positions - middle[:, :, None]).abs() < half[:, :, None])  # (n, rectangles, length)
    return (inside[0][:, :, :, None] & inside[1][:, :, None, :]).any(1, keepdim=True)
