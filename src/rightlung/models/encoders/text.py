"""Text encoders: a BERT whose last layers are summed, and whose pieces are summed into words (GLoRIA)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.models.encoders.pretrained import build_bert
from rightlung.models.encoders.tokenizer import Tokens


@dataclass(frozen=True)
class TextEncoderConfig:
    """A BERT of `transformers`.

    ``options`` go to its configuration; ``vocabulary`` is how large a WordPiece vocabulary is trained for it at most.
    ``pretrained`` names a folder or a hub id to take configuration, weights and tokenizer from; a saved model no longer
    needs it. The last ``layers`` are summed.
    """

    kind: Literal["bert"] = "bert"
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    vocabulary: int = 4000
    max_length: int = 96
    layers: int = 4
    pretrained: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        if not 50 <= self.vocabulary <= 200_000:
            raise InputError(f"vocabulary must be 50 to 200000 pieces; got {self.vocabulary}")
        if not 2 <= self.max_length <= 4096:
            raise InputError(f"max_length must be 2 to 4096; got {self.max_length}")
        if self.layers < 1:
            raise InputError(f"layers must be at least 1; got {self.layers}")


@dataclass(frozen=True, slots=True)
class TextEmbeddings:
    """``n`` encoded texts: word embeddings (n, w, d), which of them are no padding (n, w), global embedding (n, d)."""

    word_embeddings: Tensor
    attention_mask: Tensor
    global_embedding: Tensor

    def __getitem__(self, chosen: Tensor) -> TextEmbeddings:
        return TextEmbeddings(self.word_embeddings[chosen], self.attention_mask[chosen], self.global_embedding[chosen])


class TextEncoder(nn.Module):
    """A BERT with a projection to ``dimension``."""

    def __init__(self, config: TextEncoderConfig, dimension: int, vocabulary: int) -> None:
        super().__init__()
        self.backbone, options = build_bert(
            config.options,
            config.pretrained,
            "text encoder",
            vocab_size=vocabulary,
            max_position_embeddings=config.max_length,
        )
        self.config = replace(config, options=options, pretrained=None)
        self.projection = nn.Linear(int(self.backbone.config.hidden_size), dimension)

    def forward(self, tokens: Tokens) -> TextEmbeddings:
        """Encode texts: words are sums of their pieces, the whole is the mean of the words, padding left out."""
        answer = self.backbone(
            input_ids=tokens.ids, attention_mask=tokens.attention_mask.long(), output_hidden_states=True
        )
        # hidden_states[0] is the embedding layer, which is no layer of attention.
        pieces = torch.stack(answer.hidden_states[1:][-self.config.layers :]).sum(0)
        count, _, width = pieces.shape
        most = int(tokens.word.shape[1])
        place = tokens.word[..., None].expand(-1, -1, width)
        words = pieces.new_zeros(count, most, width).scatter_add(1, place, pieces)[:, 1:]
        mask = torch.arange(1, most, device=pieces.device)[None] <= tokens.words[:, None]
        projected = self.projection(words)
        kept = projected * mask[..., None]
        return TextEmbeddings(kept, mask, kept.sum(1) / tokens.words[:, None].to(kept.dtype))
