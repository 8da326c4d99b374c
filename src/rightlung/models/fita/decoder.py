"""The decoder of the U-Transformer, with KiUT's knowledge distiller as its last step (Eq. 2).

Layer j of N reads layer N + 1 − j of the encoder. The distiller attends from the decoder's state h_t to the patches V,
the symptoms Ĉ and the refined text W_1..W_t: r_{t+1} ~ softmax(W_vocab · LN(h_t + MHA(h_t, [V; Ĉ; W_{1:t}]))).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.models.fita.attention import Attention, FeedForward
from rightlung.models.fita.config import FitaConfig

VISUAL, SYMPTOM, TEXT = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What ``n`` reports are written from, as keys and values of attention.

    - ``crossed`` (n, layers, 2, heads, p, d / heads): of the patches that each decoder layer reads.
    - ``sources`` (n, 2, heads, p + k, d / heads): of patches and symptoms, for the distiller.
    """

    crossed: Tensor
    sources: Tensor


def connected(connection: str, layers: int) -> list[int]:
    """Return the encoder layer that each decoder layer reads, counted from 0.

    >>> connected("u", 3)
    [2, 1, 0]
    """
    last = layers - 1
    return [{"u": last - layer, "last": last, "parallel": layer}[connection] for layer in range(layers)]


def causal_bias(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return 0 where a query may read a key and -inf elsewhere, (1, 1, q, m); the last query reads all keys."""
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return torch.zeros(queries, keys, device=device).masked_fill(~allowed, -torch.inf)[None, None]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to patches and an MLP with residuals; pre-norm."""

    def __init__(self, config: FitaConfig) -> None:
        super().__init__()
        self.own, self.crossed = (Attention(config.dimension, config.heads, config.dropout) for _ in range(2))
        self.feed_forward = FeedForward(config.dimension, config.hidden_size, config.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(config.dimension) for _ in range(3))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, patches: tuple[Tensor, Tensor], cache: Any, number: int) -> Tensor:
        """Return states (n, t, d) after the layer."""
        given = self.norms[0](states)
        own = self.own.keys_values(given)
        if cache is not None:
            own = cache.update(*own, number)
        bias = causal_bias(states.shape[1], own[0].shape[2], states.device)
        states = states + self.dropout(self.own(given, own, bias))
        states = states + self.dropout(self.crossed(self.norms[1](states), patches))
        changed: Tensor = states + self.dropout(self.feed_forward(self.norms[2](states)))
        return changed


class ReportDecoder(nn.Module):
    """Predicts each word from those before it, patches, symptoms and refined text."""

    positions: Tensor

    def __init__(self, config: FitaConfig, vocabulary: int, text_size: int | None) -> None:
        super().__init__()
        size = config.dimension
        self.reads = connected(config.connection, config.layers)
        self.embedding = nn.Embedding(vocabulary, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        self.register_buffer("positions", _waves(config.writing.max_words + 2, size), persistent=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm, self.distilled = nn.LayerNorm(size), nn.LayerNorm(size)
        self.distiller = Attention(size, config.heads, config.dropout)
        self.types = nn.Parameter(torch.randn(3, size) * 0.02)  # of the three sources
        self.text = None if text_size is None else nn.Linear(text_size, size)
        self.head = nn.Linear(size, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.without_words = False  # W is zero: an intervention

    def memory(self, levels: Sequence[Tensor], symptoms: Tensor | None) -> Memory:
        """Prepare the outputs (n, p, d) of the encoder's layers, and symptoms (n, k, d), for writing."""
        layers: Iterable[Any] = self.layers
        pairs = zip(layers, self.reads, strict=True)
        crossed = [torch.stack(layer.crossed.keys_values(levels[number]), 1) for layer, number in pairs]
        sources = [levels[-1] + self.types[VISUAL]]
        sources += [] if symptoms is None else [symptoms + self.types[SYMPTOM]]
        return Memory(torch.stack(crossed, 1), torch.stack(self.distiller.keys_values(torch.cat(sources, 1)), 1))

    def refined(self, words: Tensor) -> Tensor:
        """Return W (n, t, d) for the text refiner's states (n, t, hidden)."""
        assert self.text is not None
        projected: Tensor = self.text(words)
        return torch.zeros_like(projected) if self.without_words else projected

    def forward(
        self, ids: Tensor, memory: Memory, words: Tensor | None, cache: Any = None, done: int = 0,
        keep_words: bool = True,
    ) -> Tensor:  # fmt: skip
        """Return the logits (n, t, v) of the word after each of ``ids`` (n, t), after ``done`` words in the cache.

        ``words`` are W: of the ids or, with ``keep_words`` false, of all words so far, which then enter no cache.
        """
        states, sources, bias = self._distilling(ids, memory, words, cache, done, keep_words)
        found = self.distiller(states, sources, bias)
        logits: Tensor = self.head(self.distilled(states + self.dropout(found)))
        return logits

    def attention(self, ids: Tensor, memory: Memory, words: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return logits as `forward` does, and the distiller's attention (n, t, p + k + t), the mean of its heads."""
        states, sources, bias = self._distilling(ids, memory, words, None, 0, True)
        found, weights = self.distiller.with_weights(states, sources, bias)
        return self.head(self.distilled(states + found)), weights

    def _distilling(
        self, ids: Tensor, memory: Memory, words: Tensor | None, cache: Any, done: int, keep_words: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """Return the decoder's states, and keys and values of all sources with the bias that hides later words."""
        places = self.positions[done : done + ids.shape[1]]
        states = self.dropout(self.embedding(ids) * math.sqrt(self.embedding.embedding_dim) + places)
        for number, layer in enumerate(self.layers):
            patches = memory.crossed[:, number, 0], memory.crossed[:, number, 1]
            states = layer(states, patches, cache, number)
        states = self.norm(states)
        keys, values = memory.sources[:, 0], memory.sources[:, 1]
        if words is None:
            return states, (keys, values), None
        own = self.distiller.keys_values(words + self.types[TEXT])
        if cache is not None and keep_words:
            own = cache.update(*own, len(self.layers))
        hidden = causal_bias(states.shape[1], own[0].shape[2], states.device)
        bias = torch.cat([hidden.new_zeros(1, 1, hidden.shape[2], keys.shape[2]), hidden], dim=-1)
        return states, (torch.cat([keys, own[0]], 2), torch.cat([values, own[1]], 2)), bias


def _waves(count: int, size: int) -> Tensor:
    """Return the sinusoidal positions (count, size) of transformers."""
    frequencies = 10_000.0 ** -(torch.arange((size + 1) // 2) * 2 / size)
    angles = torch.arange(count)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :size]
