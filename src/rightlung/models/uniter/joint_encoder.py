"""UNITER's joint encoder (Chen et al., ECCV 2020): embedded tokens and regions as one sequence through one BERT."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rightlung.models.encoders.pretrained import build_text_model
from rightlung.models.uniter.regions import Regions

if TYPE_CHECKING:
    from rightlung.models.uniter.config import UniterConfig


@dataclass(frozen=True, slots=True)
class JointEmbeddings:
    """Tokens (n, w, d), regions (n, k, d) and, on request, the attention of every layer (n, heads, w + k, w + k)."""

    token_embeddings: Tensor
    region_embeddings: Tensor
    attentions: tuple[Tensor, ...] = ()


class JointEncoder(nn.Module):
    """``[CLS]``, tokens and regions through one BERT. Type embeddings mark regions: there is no ``[SEP]``."""

    def __init__(self, config: UniterConfig, vocab_size: int) -> None:
        super().__init__()
        backbone, options = build_text_model(
            "bert", config.options, config.pretrained, "joint encoder",
            vocab_size=vocab_size, max_position_embeddings=config.max_length, type_vocab_size=2,
        )  # fmt: skip
        self.config = replace(config, options=options, pretrained=None)
        backbone.set_attn_implementation("eager")  # the others do not return attention
        self.token_embedder: Any = backbone.embeddings
        backbone.embeddings = _GivenEmbeddings()
        self.backbone = backbone
        bert = backbone.config
        self.width = int(bert.hidden_size)
        self.initializer_range = float(bert.initializer_range)
        self.feature_projection = nn.Linear(config.feature_size, self.width)
        self.location_projection = nn.Linear(7, self.width)
        self.feature_norm, self.location_norm, self.region_norm = (
            nn.LayerNorm(self.width, eps=bert.layer_norm_eps) for _ in range(3)
        )
        self.dropout = nn.Dropout(bert.hidden_dropout_prob)
        initialize_weights(self.initializer_range, self.feature_projection, self.location_projection)
        # A masked region is all zeros; without a bias its norm would have no gradient.
        nn.init.normal_(self.feature_projection.bias, std=self.initializer_range)

    def forward(
        self, ids: Tensor, attention_mask: Tensor, regions: Regions, output_attentions: bool = False
    ) -> JointEmbeddings:
        """Encode token ids (n, w) together with regions; padding is ignored."""
        ids, attention_mask = (part.to(regions.features.device) for part in (ids, attention_mask))
        features = self.feature_norm(self.feature_projection(regions.features))
        embedded = features + self.location_norm(self.location_projection(regions.locations))
        embedded = embedded + self.token_embedder.token_type_embeddings.weight[1]
        joint = torch.cat([self.token_embedder(ids), self.dropout(self.region_norm(embedded))], dim=1)
        output = self.backbone(
            inputs_embeds=joint,
            attention_mask=torch.cat([attention_mask, regions.present], dim=1).long(),
            output_attentions=output_attentions,
        )
        hidden, count = output.last_hidden_state, ids.shape[1]
        return JointEmbeddings(hidden[:, :count], hidden[:, count:], tuple(output.attentions or ()))


def initialize_weights(std: float, *layers: nn.Linear) -> None:
    """Initialize as BERT does: normally distributed weights, biases of zero."""
    for layer in layers:
        nn.init.normal_(layer.weight, std=std)
        nn.init.zeros_(layer.bias)


class _GivenEmbeddings(nn.Module):
    """Replaces BERT's embeddings: the input is embedded already."""

    def forward(self, inputs_embeds: Tensor, **others: object) -> Tensor:
        return inputs_embeds
