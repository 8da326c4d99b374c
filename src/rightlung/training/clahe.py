"""Contrast-limited adaptive histogram equalisation (CLAHE) of whole batches on their device."""

from __future__ import annotations

import torch
from torch import Tensor


def clahe(images: Tensor, tiles: int = 8, limit: float = 4.0, bins: int = 64) -> Tensor:
    """Return images (n, 1, h, w) in 0 to 1 with contrast-limited adaptive histogram equalisation (Zuiderveld, 1994).

    Each of ``tiles`` x ``tiles`` parts has a histogram of ``bins``, clipped at ``limit`` times its mean; the rest
    is spread over all bins. A pixel's value comes from the cumulative histograms of the four nearest parts.
    """
    count, _, height, width = images.shape
    levels = (images[:, 0].clamp(0.0, 1.0) * (bins - 1)).round().long()
    nearest = [_tile_positions(length, tiles, images.device) for length in (height, width)]
    down, across = (positions.round().long().clamp(0, tiles - 1) for positions in nearest)
    tile = down[:, None] * tiles + across[None]
    flat = (
        tile * bins + levels + (torch.arange(count, device=images.device) * tiles**2 * bins)[:, None, None]
    ).flatten()
    histograms = torch.bincount(flat, minlength=count * tiles**2 * bins).view(count, tiles, tiles, bins).float()
    mean = histograms.mean(-1, keepdim=True)
    clipped = torch.minimum(histograms, limit * mean)
    spread = clipped + (histograms - clipped).mean(-1, keepdim=True)
    curves = spread.cumsum(-1) / spread.sum(-1, keepdim=True).clamp_min(1.0)
    image = torch.arange(count, device=images.device)[:, None, None]
    result = torch.zeros_like(images[:, 0])
    for row, row_weight in _neighbours(nearest[0], tiles):
        for column, column_weight in _neighbours(nearest[1], tiles):
            value = curves[image, row[None, :, None], column[None, None], levels]
            result = result + row_weight[None, :, None] * column_weight[None, None] * value
    return result[:, None].to(images.dtype)


def _tile_positions(length: int, tiles: int, device: torch.device) -> Tensor:
    """Return where pixels lie among the centres of tiles, counted from 0."""
    return (torch.arange(length, device=device) + 0.5) * tiles / length - 0.5


def _neighbours(positions: Tensor, tiles: int) -> list[tuple[Tensor, Tensor]]:
    """Return the tiles before and after each position, and their weights."""
    low = positions.floor()
    pairs = [(low, 1.0 - (positions - low)), (low + 1, positions - low)]
    return [(index.long().clamp(0, tiles - 1), weight) for index, weight in pairs]
