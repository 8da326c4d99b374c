"""The region-relationship-augmented (RRA) encoder of KiUT: self-attention of patches with a geometric bias.

The bias is that of RSTNet (Zhang et al., CVPR 2021) and relation networks (Hu et al., CVPR 2018): a sinusoidal
embedding of the relative position of two patches, a linear layer and a ReLU for each head, and the logarithm. As
published, it rests on |Δx| and |Δy| and cannot tell left from right; ``signed`` positions can (ours).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rightlung.models.fita.attention import Attention, FeedForward
from rightlung.models.fita.config import FitaConfig

EMBEDDING_SIZE, WAVELENGTH, SCALE = 64, 1000.0, 100.0
LOWEST_DISTANCE, LOWEST_WEIGHT = 1e-3, 1e-6


def relative_positions(grid: tuple[int, int], signed: bool) -> Tensor:
    """Return the relative position of every patch n seen from every patch m, (p, p, 4), in patches.

    Published: log |Δx|, log |Δy| (of at least 1e-3), and the logarithms of the ratios of width and height, which are 0
    on a grid. Signed: sign(Δ) · log(1 + |Δ|) in place of the first two.
    """
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    places = torch.stack([columns.flatten(), rows.flatten()], dim=-1).float()
    difference = places[None] - places[:, None]
    if signed:
        geometry = difference.sign() * difference.abs().log1p()
    else:
        geometry = difference.abs().clamp_min(LOWEST_DISTANCE).log()
    return torch.cat([geometry, torch.zeros_like(geometry)], dim=-1)


def sinusoidal(positions: Tensor, size: int = EMBEDDING_SIZE) -> Tensor:
    """Return sines and cosines of positions (..., 4) at geometric wavelengths, (..., size)."""
    waves = size // (2 * positions.shape[-1])
    frequencies = WAVELENGTH ** -(torch.arange(waves, dtype=positions.dtype) / waves)
    angles = (SCALE * positions[..., None] * frequencies).flatten(-2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class RegionRelations(nn.Module):
    """The bias that relative positions give to attention: log(max(ReLU(Emb(λ) · W_G), 1e-6)) for each head."""

    geometry: Tensor

    def __init__(self, heads: int, grid: tuple[int, int], signed: bool) -> None:
        super().__init__()
        self.project = nn.Linear(EMBEDDING_SIZE, heads)
        self.register_buffer("geometry", sinusoidal(relative_positions(grid, signed)), persistent=False)

    def forward(self) -> Tensor:
        """Return the bias (1, heads, p, p)."""
        bias: Tensor = self.project(self.geometry).relu().clamp_min(LOWEST_WEIGHT).log()
        return bias.permute(2, 0, 1)[None]


class EncoderLayer(nn.Module):
    """Self-attention and an MLP with residuals; pre-norm, as in R2Gen."""

    def __init__(self, config: FitaConfig, grid: tuple[int, int]) -> None:
        super().__init__()
        self.relations = RegionRelations(config.heads, grid, config.positions == "signed") if config.rra else None
        self.attention = Attention(config.dimension, config.heads, config.dropout)
        self.feed_forward = FeedForward(config.dimension, config.hidden_size, config.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(config.dimension) for _ in range(2))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, patches: Tensor) -> Tensor:
        """Return patches (n, p, d) that have seen each other."""
        given = self.norms[0](patches)
        bias = None if self.relations is None else self.relations()
        patches = patches + self.dropout(self.attention(given, self.attention.keys_values(given), bias))
        changed: Tensor = patches + self.dropout(self.feed_forward(self.norms[1](patches)))
        return changed


class RegionEncoder(nn.Module):
    """The layers of the encoder. Each has a norm of its own for the decoder layer that reads it."""

    def __init__(self, config: FitaConfig, grid: tuple[int, int]) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.ReLU(), nn.Dropout(config.visual_dropout))  # after the projection, as in R2Gen
        self.layers = nn.ModuleList(EncoderLayer(config, grid) for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(config.dimension) for _ in range(config.layers))

    def forward(self, patches: Tensor) -> list[Tensor]:
        """Return the output (n, p, d) of each layer for projected patches (n, p, d); the last one is V."""
        features, found = self.visual(patches), []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            features = layer(features)
            found.append(norm(features))
        return found
