"""What the anatomy model learns from: outlines, boxes, the IoU of its own boxes, and images spoilt on purpose."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from rightlung.models.boxes import generalized_iou

_KINDS = 5
"""The ways to spoil an image: the last two are "other" positions."""


def mask_loss(logits: Tensor, shares: Tensor) -> Tensor:
    """Return soft Dice loss plus binary cross-entropy of logits and shares (n, k, rows, cols), the mean over all."""
    if not len(logits):
        return logits.sum()
    guess, axes = logits.sigmoid(), (2, 3)
    overlap, sizes = (guess * shares).sum(axes), guess.sum(axes) + shares.sum(axes)
    return (1 - (2 * overlap + 1) / (sizes + 1)).mean() + binary_cross_entropy_with_logits(logits, shares)


def box_loss(boxes: Tensor, truth: Tensor, present: Tensor) -> Tensor:
    """Return L1 of corners, times 5 as in DETR, plus 1 - gIoU; the mean over boxes (n, k, 4) that are present."""
    found, wanted = boxes[present], truth[present]
    if not len(found):
        return boxes.sum() * 0.0
    corners = smooth_l1_loss(found, wanted, beta=0.01, reduction="none").sum(-1)
    return (5 * corners + 1 - generalized_iou(found, wanted)).mean()


def iou(boxes: Tensor, truth: Tensor) -> Tensor:
    """Return the IoU of boxes (..., 4) pair by pair."""
    low, high = torch.maximum(boxes[..., :2], truth[..., :2]), torch.minimum(boxes[..., 2:], truth[..., 2:])
    shared = (high - low).clamp_min(0).prod(-1)
    areas = [(one[..., 2:] - one[..., :2]).clamp_min(0).prod(-1) for one in (boxes, truth)]
    return shared / (areas[0] + areas[1] - shared).clamp_min(1e-7)


def confidence_loss(logits: Tensor, boxes: Tensor, truth: Tensor, present: Tensor) -> Tensor:
    """Return the cross-entropy of confidence and IoU, which is 0 for a region outside the image."""
    if not len(logits):
        return logits.sum()
    return binary_cross_entropy_with_logits(logits, torch.where(present, iou(boxes.detach(), truth), 0.0))


def spoilt(images: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return images (n, 1, size, size) that are no upright radiographs any more, and their indices in `POSITIONS`.

    They are turned on either side, upside down or inverted; or cut into tiles that are shuffled, or replaced by noise
    with a radiograph's smoothness.
    """
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(_KINDS, (len(images),), generator=generator).tolist()
    made = []
    for image, kind in zip(images, kinds, strict=True):
        draw = int(torch.randint(1 << 30, (), generator=generator))
        if kind == 0:
            made.append(torch.rot90(image, 1 + 2 * (draw % 2), (1, 2)))
        elif kind == 1:
            made.append(torch.rot90(image, 2, (1, 2)) if draw % 2 else image.flip(1))
        elif kind == 2:
            made.append(1 - image)
        else:
            made.append(_shuffled(image, generator, draw) if kind == 3 else _noise(image, generator, draw))
    return torch.stack(made), torch.tensor([min(kind + 1, 4) for kind in kinds], device=images.device)


def _shuffled(image: Tensor, generator: torch.Generator, draw: int) -> Tensor:
    """Return an image cut into 2 x 2 to 16 x 16 tiles in another order."""
    count = 2 << (draw % 4)
    side = image.shape[-1] // count
    tiles = image[0].unfold(0, side, side).unfold(1, side, side).reshape(count * count, side, side)
    order = torch.randperm(count * count, generator=generator).to(image.device)
    if bool((order == torch.arange(len(order), device=image.device)).all()):
        order = order.roll(1)
    rows = tiles[order].view(count, count, side, side).permute(0, 2, 1, 3)
    return rows.reshape(1, count * side, count * side)


def _noise(image: Tensor, generator: torch.Generator, draw: int) -> Tensor:
    """Return noise whose amplitude falls with a power of 0 to 3 of the frequency."""
    size = image.shape[-1]
    frequency = torch.hypot(torch.fft.fftfreq(size)[:, None], torch.fft.rfftfreq(size)[None]).clamp_min(1 / size)
    spectrum = torch.fft.rfft2(torch.randn(size, size, generator=generator)) / frequency ** (draw % 301 / 100)
    noise = torch.fft.irfft2(spectrum, s=(size, size))
    scaled: Tensor = (noise - noise.min()) / (noise.max() - noise.min()).clamp_min(1e-6)
    return scaled[None].to(image)
