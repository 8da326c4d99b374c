"""Boxes to the vectors that a UNITER reads, and what it says about them back to a map.

Shapes: ``n`` pictures of ``k`` boxes, each ``(x0, y0, x1, y1)`` in fractions of its picture, some of them only padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

NUMBERS_AT_ONCE = 1 << 25
"""How many weights of an axis are held at a time (boxes x side x size): an eighth of a gigabyte."""


@torch.no_grad()
def crop_regions(images: Tensor, boxes: Tensor, side: int) -> Tensor:
    """Cut boxes (n, k, 4) out of images (n, 1, size, size), each brought to (side, side): (n, k, side, side).

    Edges are rounded to whole pixels, of which there is at least one. Each crop is what ``interpolate(mode="bilinear",
    antialias=True)`` makes of it, without a look beyond its edges; as products of matrices all are made at once.
    """
    size = images.shape[-1]
    corners = (boxes.float() * size).round()
    low = corners[..., :2].clamp(0, size - 1)
    high = torch.maximum(corners[..., 2:].clamp_max(size), low + 1)
    step = max(1, NUMBERS_AT_ONCE // max(1, boxes.shape[1] * side * size))
    with torch.autocast(images.device.type, enabled=False):
        parts = [images.new_zeros((0, boxes.shape[1], side, side), dtype=torch.float32)]
        for begin in range(0, len(images), step):
            some = slice(begin, begin + step)
            across, down = (_resampling(low[some, :, axis], high[some, :, axis], size, side) for axis in (0, 1))
            parts.append(down @ images[some].float() @ across.transpose(-1, -2))
        return torch.cat(parts)


def locations(boxes: Tensor) -> Tensor:
    """Return UNITER's seven numbers of boxes (n, k, 4): the corners, width, height and area, (n, k, 7)."""
    extents = boxes[..., 2:] - boxes[..., :2]
    return torch.cat([boxes, extents, extents.prod(-1, keepdim=True)], dim=-1)


def region_saliency(attentions: tuple[Tensor, ...], words: Tensor, there: Tensor) -> Tensor:
    """How much each region has to do with the words, (n, k), adding up to 1 ("That's the Wrong Lung!", A.2).

    ``attentions`` are those of all layers (n, heads, w + k, w + k), ``words`` (n, w) says which of the first tokens
    belong to words, ``there`` (n, k) which of the regions are no padding. Their mean is taken over layers and heads,
    then over what a word spends on a region and what the region spends on the word. A word's scores are divided by
    their sum over the regions, and the saliency is their mean over the words, as that of GLoRIA is.
    """
    mean = torch.stack([layer.float().mean(dim=1) for layer in attentions]).mean(dim=0)
    count = words.shape[1]
    both = (mean[:, :count, count:] + mean[:, count:, :count].transpose(1, 2)) / 2 * there[:, None]
    shares = both / both.sum(dim=2, keepdim=True).clamp_min(torch.finfo(both.dtype).tiny)
    said = words.to(shares.dtype)
    return torch.einsum("nw,nwk->nk", said, shares) / said.sum(dim=1, keepdim=True).clamp_min(1)


def paint(boxes: Tensor, there: Tensor, scores: Tensor, map_size: int) -> Tensor:
    """Maps (n, map_size, map_size): a cell has the greatest score (n, k) of the boxes that its centre lies in, else 0.

    A box that is narrower than a cell, and may lie between the centres, is in the cell of its own centre.
    """
    centres = (torch.arange(map_size, device=boxes.device) + 0.5) / map_size
    cells = torch.arange(map_size, device=boxes.device)
    across, down = (
        ((boxes[..., axis, None] <= centres) & (centres < boxes[..., axis + 2, None]))
        | (((boxes[..., axis] + boxes[..., axis + 2]) / 2 * map_size).floor()[..., None] == cells)
        for axis in (0, 1)
    )
    inside = down[..., :, None] & across[..., None, :] & there[..., None, None]
    return torch.where(inside, scores[..., None, None], 0.0).amax(dim=1)


def _resampling(low: Tensor, high: Tensor, size: int, side: int) -> Tensor:
    """Weights (n, k, side, size) that bring the pixels from ``low`` to ``high`` (n, k) to ``side`` of them."""
    low, high = low[..., None, None], high[..., None, None]
    scale = (high - low) / side
    centres = low + (torch.arange(side, device=low.device)[:, None] + 0.5) * scale
    pixels = torch.arange(size, device=low.device) + 0.5
    weights = (1 - (pixels - centres).abs() / scale.clamp_min(1.0)).clamp_min(0.0) * ((pixels > low) & (pixels < high))
    return weights / weights.sum(-1, keepdim=True)
