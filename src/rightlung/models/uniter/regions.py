"""Boxes to region features, and attention on regions to a heatmap.

Shapes: ``n`` images with ``k`` boxes each, ``(x0, y0, x1, y1)`` as fractions of the image, some of them padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NUMBERS_AT_ONCE = 1 << 25
"""Resampling weights in memory at a time (boxes x region size x image size): an eighth of a gigabyte."""


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Features (n, k, feature size), locations (n, k, 7), and which regions are ``present`` (n, k), not padding."""

    features: Tensor
    locations: Tensor
    present: Tensor


@torch.no_grad()
def crop_regions(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Return boxes (n, k, 4) cropped from images (n, 1, side, side) and resized to (size, size): (n, k, size, size).

    Edges are rounded to whole pixels, at least one. Every crop equals that of ``interpolate(mode="bilinear",
    antialias=True)`` without a look beyond its edges; as matrix products, all are computed at once.
    """
    side = images.shape[-1]
    corners = (boxes.float() * side).round()
    low = corners[..., :2].clamp(0, side - 1)
    high = torch.maximum(corners[..., 2:].clamp_max(side), low + 1)
    step = max(1, NUMBERS_AT_ONCE // max(1, boxes.shape[1] * size * side))
    with torch.autocast(images.device.type, enabled=False):
        parts = [images.new_zeros((0, boxes.shape[1], size, size), dtype=torch.float32)]
        for begin in range(0, len(images), step):
            some = slice(begin, begin + step)
            across, down = (_resampling(low[some, :, axis], high[some, :, axis], side, size) for axis in (0, 1))
            parts.append(down @ images[some].float() @ across.transpose(-1, -2))
        return torch.cat(parts)


def box_locations(boxes: Tensor) -> Tensor:
    """Return UNITER's seven location features of boxes (n, k, 4): corners, width, height and area, (n, k, 7)."""
    extents = boxes[..., 2:] - boxes[..., :2]
    return torch.cat([boxes, extents, extents.prod(-1, keepdim=True)], dim=-1)


def region_saliency(attentions: tuple[Tensor, ...], word_mask: Tensor, present: Tensor) -> Tensor:
    """Return how relevant each region is to the words, (n, k), summing to 1 ("That's the Wrong Lung!", A.2).

    ``attentions`` of all layers are (n, heads, w + k, w + k); ``word_mask`` (n, w) marks the tokens that belong to
    words. Attention is averaged over layers and heads, then over both directions (word to region, region to word). The
    scores of a word are divided by their sum over the regions; the saliency is their mean over the words.
    """
    mean = torch.stack([layer.float().mean(dim=1) for layer in attentions]).mean(dim=0)
    count = word_mask.shape[1]
    scores = (mean[:, :count, count:] + mean[:, count:, :count].transpose(1, 2)) / 2 * present[:, None]
    shares = scores / scores.sum(dim=2, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    weights = word_mask.to(shares.dtype)
    return torch.einsum("nw,nwk->nk", weights, shares) / weights.sum(dim=1, keepdim=True).clamp_min(1)


def paint(boxes: Tensor, present: Tensor, scores: Tensor, map_size: int) -> Tensor:
    """Return maps (n, map_size, map_size): each cell has the highest score (n, k) of the boxes around its centre, or 0.

    A box narrower than a cell, which may lie between the centres, is painted in the cell of its own centre.
    """
    cells = torch.arange(map_size, device=boxes.device)
    centres = (cells + 0.5) / map_size
    across, down = (
        ((boxes[..., axis, None] <= centres) & (centres < boxes[..., axis + 2, None]))
        | (((boxes[..., axis] + boxes[..., axis + 2]) / 2 * map_size).floor()[..., None] == cells)
        for axis in (0, 1)
    )
    inside = down[..., :, None] & across[..., None, :] & present[..., None, None]
    return torch.where(inside, scores[..., None, None], 0.0).amax(dim=1)


def _resampling(low: Tensor, high: Tensor, side: int, size: int) -> Tensor:
    """Return weights (n, k, size, side) that resample the pixels from ``low`` to ``high`` (n, k) to ``size`` pixels."""
    low, high = low[..., None, None], high[..., None, None]
    scale = (high - low) / size
    centres = low + (torch.arange(size, device=low.device)[:, None] + 0.5) * scale
    pixels = torch.arange(side, device=low.device) + 0.5
    weights = (1 - (pixels - centres).abs() / scale.clamp_min(1.0)).clamp_min(0.0) * ((pixels > low) & (pixels < high))
    return weights / weights.sum(-1, keepdim=True)
