"""Transformer decoder layers whose tokens attend to those of their own prompt only (supp. D.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from rightlung.models.chex.config import DecoderConfig


def mlp(*sizes: int, dropout: float = 0.0, last_dropout: bool = True) -> nn.Sequential:
    """Return linear layers of these sizes with GELU and dropout between them, and dropout at the end."""
    layers: list[nn.Module] = []
    for number, (size, following) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(size, following))
        last = number == len(sizes) - 2
        layers += [] if last else [nn.GELU()]
        layers += [nn.Dropout(dropout)] if not last or last_dropout else []
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """The end of a residual branch: a learned scale of each feature, and leaving the branch out by chance."""

    def __init__(self, dimension: int, scale: float, drop_path: float = 0.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((dimension,), scale))
        self.drop_path = drop_path

    def forward(self, branch: Tensor) -> Tensor:
        """Return the scaled branch (n, ..., d). In training it is zero for some samples and larger for the others."""
        branch = branch * self.scale
        if not self.training or not self.drop_path:
            return branch
        kept = torch.rand(len(branch), *[1] * (branch.ndim - 1), device=branch.device) >= self.drop_path
        return branch * kept / (1 - self.drop_path)


class DecoderLayer(nn.Module):
    """Self-attention among the tokens of a prompt, cross-attention to the image's patches, and an MLP; pre-norm.

    The cross-attention has no drop-path, as in the released code; the paper does not say.
    """

    def __init__(self, dimension: int, config: DecoderConfig) -> None:
        super().__init__()
        heads, dropout = config.heads, config.attention_dropout
        self.self_norm, self.cross_norm, self.source_norm, self.mlp_norm = (nn.LayerNorm(dimension) for _ in range(4))
        self.self_attention = nn.MultiheadAttention(dimension, heads, dropout=dropout, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(dimension, heads, dropout=dropout, batch_first=True)
        self.mlp = mlp(dimension, config.hidden_size, dimension, dropout=config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.self_residual = Residual(dimension, config.layer_scale, config.drop_path)
        self.cross_residual = Residual(dimension, config.layer_scale)
        self.mlp_residual = Residual(dimension, config.layer_scale, config.drop_path)

    def forward(self, tokens: Tensor, source: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return tokens (n, q, m, d): m for each of q prompts. ``source`` is (n, s, d).

        ``kept`` (n, q, m) bool are the tokens that others attend to.
        """
        count, prompts, each, dimension = tokens.shape
        within = self.self_norm(tokens).flatten(0, 1)
        hidden = None if kept is None else ~kept.flatten(0, 1)
        attended, _ = self.self_attention(within, within, within, key_padding_mask=hidden, need_weights=False)
        tokens = tokens + self.self_residual(self.dropout(attended).view_as(tokens))
        keys = self.source_norm(source)
        queries = self.cross_norm(tokens).view(count, prompts * each, dimension)
        attended, _ = self.cross_attention(queries, keys, keys, need_weights=False)
        tokens = tokens + self.cross_residual(self.dropout(attended).view_as(tokens))
        branch: Tensor = self.mlp_residual(self.mlp(self.mlp_norm(tokens)))
        return tokens + branch
