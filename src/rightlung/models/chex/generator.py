"""The sentence generator of ChEX (supp. D.1, Fig. 13): post decoder, prefix and language model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rightlung.models.chex.layers import DecoderLayer, mlp
from rightlung.models.encoders.language import (
    DecoderCondition,
    GenerationConfig,
    LanguageModel,
    next_token_loss,
)
from rightlung.models.encoders.tokenizer import WordTokenizer

if TYPE_CHECKING:
    from rightlung.models.chex.config import ChexConfig


class PostDecoder(nn.Module):
    """Decoder layers that look at the whole image again, for each region on its own.

    The released code lets tokens attend to those of other regions, too (its masks are inverted twice), and normalises
    the output; ours follows the paper.
    """

    def __init__(self, config: ChexConfig) -> None:
        super().__init__()
        self.box_token_dropout = config.box_token_dropout
        layers = config.post_decoder.layers
        self.layers = nn.ModuleList(DecoderLayer(config.dimension, config.post_decoder) for _ in range(layers))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, tokens: Tensor, box_tokens: Tensor, has_boxes: Tensor, source: Tensor) -> Tensor:
        """Return the features (n, q, d) of regions with tokens (n, q, d) and box tokens (n, q, m, d).

        ``has_boxes`` (n, q) bool says which regions have box tokens (those asked by a box have none). ``source``
        (n, s, d) are the patches and the global embedding.
        """
        kept = has_boxes[..., None].expand(box_tokens.shape[:3])
        if self.training:
            kept = kept & (torch.rand(kept.shape, device=kept.device) >= self.box_token_dropout)
        kept = torch.cat([torch.ones_like(kept[..., :1]), kept], dim=-1)
        attended = torch.cat([tokens[:, :, None], box_tokens], dim=2)
        for layer in self.layers:
            attended = layer(attended, source, kept)
        return tokens + self.gate * attended[:, :, 0]


class SentenceGenerator(nn.Module):
    """A language model whose layers attend to keys and values made from a region's features (P-tuning v2)."""

    def __init__(self, config: ChexConfig, tokenizer: WordTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.language_model = LanguageModel(config.generator, tokenizer)
        described = self.language_model.model.config
        self.layers, self.heads = int(described.num_hidden_layers), int(described.num_attention_heads)
        width, prefix = int(described.hidden_size), config.prefix
        self.shared, self.length = prefix.shared, prefix.length
        outputs = (1 if prefix.shared else self.layers) * 2 * width * prefix.length
        hidden = (prefix.hidden_size,) if prefix.hidden_size else ()
        self.prefix = mlp(config.dimension, *hidden, outputs, dropout=config.post_decoder.dropout, last_dropout=False)

    def condition(self, features: Tensor) -> DecoderCondition:
        """Return the keys and values that features (s, d) give to every layer."""
        count = len(features)
        found = self.prefix(features).view(count, self.length, 1 if self.shared else self.layers, 2, self.heads, -1)
        keys_values = found.permute(2, 3, 0, 4, 1, 5)
        if self.shared:
            keys_values = keys_values.expand(self.layers, -1, -1, -1, -1, -1)
        return DecoderCondition(keys_values=keys_values)

    def loss(self, features: Tensor, texts: Sequence[str]) -> Tensor:
        """Return the language-model loss of texts, each conditioned on features (s, d)."""
        tokens = self.tokenizer.encode(texts).to(features.device)
        return next_token_loss(self.language_model(tokens, self.condition(features)), tokens)

    def write(self, features: Tensor, max_new_tokens: int) -> list[str]:
        """Return the sentence of each of the features (s, d), of at most so many tokens."""
        if not len(features):
            return []
        begin = self.tokenizer.start(len(features)).to(features.device)
        generated = self.language_model.generate(
            begin, self.condition(features), GenerationConfig(max_new_tokens=max_new_tokens)
        )
        return [readable(text) for text in self.tokenizer.decode(generated)]


def readable(text: str) -> str:
    """Return a text of tokens between spaces as people write it.

    >>> readable("a medium - sized nodule , 2 . 7 cm ( right ) .")
    'A medium-sized nodule, 2.7 cm (right).'
    >>> readable("the heart is large . no effusion .")
    'The heart is large. No effusion.'
    """
    text = re.sub(r"(\d) ([.,]) (?=\d)", r"\1\2", text)
    text = re.sub(r"(?<=\w) ([-/']) (?=\w)", r"\1", text)
    text = re.sub(r" (?=[.,;:!?)\]%])|(?<=[(\[]) ", "", text)
    return re.sub(r"(^|[.!?] )([a-z])", lambda found: found[1] + found[2].upper(), text)
