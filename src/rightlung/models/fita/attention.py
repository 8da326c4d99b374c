"""Multi-head attention with an additive bias, keys that can be kept, and weights that can be read."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention


class Attention(nn.Module):
    """Multi-head attention. Keys and values are made apart from queries, so that they can be cached."""

    def __init__(self, dimension: int, heads: int, dropout_probability: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout_probability
        self.queries, self.output = nn.Linear(dimension, dimension), nn.Linear(dimension, dimension)
        self.keys, self.values = nn.Linear(dimension, dimension), nn.Linear(dimension, dimension)

    def _split(self, features: Tensor) -> Tensor:
        return features.view(*features.shape[:-1], self.heads, -1).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (n, heads, m, d / heads) of a memory (n, m, d)."""
        return self._split(self.keys(memory)), self._split(self.values(memory))

    def forward(self, queries: Tensor, keys_values: tuple[Tensor, Tensor], bias: Tensor | None = None) -> Tensor:
        """Return what queries (n, q, d) attend to; ``bias`` (n or 1, heads or 1, q, m) is added to the logits."""
        keys, values = keys_values
        given = self._split(self.queries(queries))
        bias = None if bias is None else bias.to(given.dtype)
        probability = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(given, keys, values, attn_mask=bias, dropout_p=probability)
        found: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return found

    def with_weights(
        self, queries: Tensor, keys_values: tuple[Tensor, Tensor], bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what `forward` does, and the weights (n, q, m), the mean over the heads."""
        keys, values = keys_values
        given = self._split(self.queries(queries))
        logits = given @ keys.transpose(-1, -2) / math.sqrt(given.shape[-1])
        weights = (logits if bias is None else logits + bias).softmax(-1)
        attended = dropout(weights, self.dropout, self.training) @ values
        return self.output(attended.transpose(1, 2).flatten(2)), weights.mean(1)


class FeedForward(nn.Sequential):
    """Two linear layers with ReLU and dropout between them."""

    def __init__(self, dimension: int, hidden_size: int, dropout_probability: float) -> None:
        super().__init__(
            nn.Linear(dimension, hidden_size), nn.ReLU(), nn.Dropout(dropout_probability),
            nn.Linear(hidden_size, dimension),
        )  # fmt: skip
