"""The single stream of UNITER (Chen et al., ECCV 2020): words and regions embedded, and one BERT over both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.models.encoders.pretrained import build_bert
from rightlung.models.uniter.config import UniterConfig


@dataclass(frozen=True, slots=True)
class Streamed:
    """What comes out: ``pieces`` (n, w, d), ``regions`` (n, k, d) and, if asked for, every layer's attention."""

    pieces: Tensor
    regions: Tensor
    attentions: tuple[Tensor, ...] = ()


class JointEncoder(nn.Module):
    """``[CLS]``, words, regions, as one sequence. Types tell words from regions: there is no ``[SEP]``."""

    def __init__(self, config: UniterConfig, vocabulary: int) -> None:
        super().__init__()
        backbone, options = build_bert(
            config.options, config.pretrained, "stream",
            vocab_size=vocabulary, max_position_embeddings=config.max_length, type_vocab_size=2,
        )  # fmt: skip
        self.config = replace(config, options=options, pretrained=None)
        backbone.set_attn_implementation("eager")  # the others do not give their attention
        self.words: Any = backbone.embeddings
        backbone.embeddings = _AsGiven()
        self.backbone = backbone
        bert = backbone.config
        self.width = int(bert.hidden_size)
        self.initializer_range = float(bert.initializer_range)
        self.pixels = nn.Linear(config.feature, self.width)
        self.location = nn.Linear(7, self.width)
        self.pixels_norm, self.location_norm, self.region_norm = (
            nn.LayerNorm(self.width, eps=bert.layer_norm_eps) for _ in range(3)
        )
        self.dropout = nn.Dropout(bert.hidden_dropout_prob)
        initialize_weights(self.initializer_range, self.pixels, self.location)
        nn.init.normal_(
            self.pixels.bias, std=self.initializer_range
        )  # a hidden region is zeros, of which a norm has no slope

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor,
        features: Tensor,
        places: Tensor,
        there: Tensor,
        attentions: bool = False,
    ) -> Streamed:
        """Read pieces (n, w) with the regions' features (n, k, feature) and places (n, k, 7), padding left out."""
        kinds = self.words.token_type_embeddings.weight
        regions = self.pixels_norm(self.pixels(features)) + self.location_norm(self.location(places)) + kinds[1]
        joint = torch.cat([self.words(ids), self.dropout(self.region_norm(regions))], dim=1)
        answer = self.backbone(
            inputs_embeds=joint,
            attention_mask=torch.cat([attention_mask, there], dim=1).long(),
            output_attentions=attentions,
        )
        found, count = answer.last_hidden_state, ids.shape[1]
        return Streamed(found[:, :count], found[:, count:], tuple(answer.attentions or ()))


class Head(nn.Module):
    """The transformation before BERT's and UNITER's predictions: dense, GELU, LayerNorm."""

    def __init__(self, width: int, spread: float) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        initialize_weights(spread, self.dense)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform (..., d)."""
        transformed: Tensor = self.norm(nn.functional.gelu(self.dense(hidden)))
        return transformed


def initialize_weights(spread: float, *layers: nn.Linear) -> None:
    """Begin as BERT does: a normal distribution, no bias."""
    for layer in layers:
        nn.init.normal_(layer.weight, std=spread)
        nn.init.zeros_(layer.bias)


class _AsGiven(nn.Module):
    """In place of BERT's embeddings: words and regions come embedded."""

    def forward(self, inputs_embeds: Tensor, **others: object) -> Tensor:
        return inputs_embeds
