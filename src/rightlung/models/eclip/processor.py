"""Heatmap processors: an image and an expert's map become an image (eCLIP, listing 2.1 and Table "ablation").

Shapes: images (n, channels, size, size), standardised; maps (n, 1, size, size) in 0 to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError

if TYPE_CHECKING:
    from rightlung.models.eclip.config import ExpertConfig


class AttentionProcessor(nn.Module):
    """Patches of the image, weighted by attention from the patches of image times map (the paper's processor).

    Attention has no positions: permuting the patches of image and map permutes those of the result. With ``residual``
    (ours), the result is added to the image and is zero at the start, so that an untrained processor changes nothing.
    """

    def __init__(self, channels: int, patch: int, width: int, heads: int, residual: bool = False) -> None:
        super().__init__()
        self.residual = residual
        self.to_patches = nn.Conv2d(channels, width, patch, patch)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.linear = nn.Linear(width, width)
        self.to_pixels = nn.ConvTranspose2d(width, channels, patch, patch)
        if residual:
            nn.init.zeros_(self.to_pixels.weight)
            assert self.to_pixels.bias is not None
            nn.init.zeros_(self.to_pixels.bias)

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        """Return images of the same shape."""
        shown = self.to_patches(images)
        keys = shown.flatten(2).transpose(1, 2)
        queries = self.to_patches(maps * images).flatten(2).transpose(1, 2)
        seen = self.linear(self.attention(queries, keys, keys, need_weights=False)[0])
        made: Tensor = self.to_pixels(seen.transpose(1, 2).reshape(shown.shape))
        return images + made if self.residual else made


class MaskProcessor(nn.Module):
    """The image times the map; without parameters."""

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        """Return images of the same shape."""
        return maps * images


class CnnProcessor(nn.Module):
    """Three convolutions of the image and the image times the map. The paper does not describe its CNN."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2 * channels, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU(),
            nn.Conv2d(width, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, images: Tensor, maps: Tensor) -> Tensor:
        """Return images of the same shape."""
        made: Tensor = self.layers(torch.cat([images, maps * images], dim=1))
        return made


def build_processor(config: ExpertConfig, channels: int, size: int) -> nn.Module:
    """Return an untrained processor of images with so many channels and pixels per side."""
    if config.processor == "mask":
        return MaskProcessor()
    if config.processor == "cnn":
        return CnnProcessor(channels, config.cnn_width)
    if size % config.patch:
        raise InputError(f"expert.patch must divide image.size, {size}; got {config.patch}")
    return AttentionProcessor(channels, config.patch, config.width, config.heads, config.processor == "residual")
