"""Text encoders for contrastive models: a transformer of `transformers`, a pooling and a projection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.models.encoders.pretrained import build_text_model, load_tokenizer_file
from rightlung.models.encoders.tokenizer import TokenizerKind, Tokens, WordTokenizer, train_tokenizer

TextPooling = Literal["words", "mean", "cls", "eos"]


@dataclass(frozen=True)
class TextConfig:
    """A transformer and its tokenizer: the fields that text encoders and language models share.

    - ``options``: fields of the transformer's configuration in `transformers`, such as ``hidden_size``.
    - ``pretrained``: a folder or a hub id to take configuration, weights and tokenizer from; a saved model no longer
      needs it. Without it, a tokenizer is trained.
    - ``tokenizer``, ``vocab_size``, ``min_frequency``: the kind of tokenizer to train, the most tokens it has, and how
      often each of them occurs at least.
    - ``max_length``: tokens read of a text, including the start token and the end token, which ``end_token`` adds.
    - ``causal``: a BERT's tokens attend only to those before them, as GPT-2's and CLIP's always do.
    """

    kind: str = "bert"
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    tokenizer: TokenizerKind = "wordpiece"
    vocab_size: int = 4000
    min_frequency: int = 2
    max_length: int = 96
    end_token: bool = False
    causal: bool = False
    pretrained: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        check_limits(self.vocab_size, "vocab_size", 50, 200_000)
        check_limits(self.max_length, "max_length", 2 + self.end_token, 4096)
        check_limits(self.min_frequency, "min_frequency", 1)

    def tokenizer_file(self, texts: Iterable[str]) -> str:
        """Return the pretrained model's tokenizer, or one trained on texts, as the JSON of a `tokenizers` file."""
        if self.pretrained is not None:
            return load_tokenizer_file(self.pretrained)
        return train_tokenizer(texts, self.vocab_size, self.min_frequency, self.tokenizer, self.end_token)

    def read_tokenizer(self, definition: str) -> WordTokenizer:
        """Return the tokenizer of such a file with this ``max_length`` and ``end_token``."""
        return WordTokenizer(definition, self.max_length, self.end_token)


@dataclass(frozen=True)
class TextEncoderConfig(TextConfig):
    """A text encoder. ``pooling`` makes the global embedding, and the word embeddings of a text:

    - ``words``: GLoRIA's. Tokens are summed to words; the global embedding is the mean of the words.
    - ``mean``, ``cls``, ``eos``: the mean of all tokens, the first, or the last. Each token is a word embedding.

    Hidden states are the sum of those of the last ``summed_layers`` layers; with 1, they are the transformer's output.
    ``projection_bias`` says whether their projection has a bias.
    """

    kind: Literal["bert", "gpt2", "clip_text_model"] = "bert"
    summed_layers: int = 4
    pooling: TextPooling = "words"
    projection_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self.summed_layers, "summed_layers", 1)
        if self.pooling == "eos" and not self.end_token:
            raise InputError("pooling 'eos' needs end_token: true")
        if self.pooling == "cls" and (self.causal or self.kind in ("gpt2", "clip_text_model")):
            raise InputError("pooling 'cls' of a causal encoder would see the start token alone; use 'eos' or 'mean'")


@dataclass(frozen=True, slots=True)
class TextEmbeddings:
    """``n`` encoded texts: word embeddings (n, w, d), their attention mask (n, w) and global embedding (n, d)."""

    word_embeddings: Tensor
    attention_mask: Tensor
    global_embedding: Tensor

    def __getitem__(self, chosen: Tensor) -> TextEmbeddings:
        return TextEmbeddings(self.word_embeddings[chosen], self.attention_mask[chosen], self.global_embedding[chosen])


class TextEncoder(nn.Module):
    """A transformer with a projection to ``dimension``."""

    def __init__(self, config: TextEncoderConfig, dimension: int, vocab_size: int) -> None:
        super().__init__()
        causal = {"is_decoder": True} if config.causal and config.kind == "bert" else {}
        self.backbone, options = build_text_model(
            config.kind, {**config.options, **causal}, config.pretrained, "text encoder",
            vocab_size=vocab_size, max_position_embeddings=config.max_length,
        )  # fmt: skip
        self.config = replace(config, options=options, pretrained=None)
        self.projection = nn.Linear(int(self.backbone.config.hidden_size), dimension, bias=config.projection_bias)

    def forward(self, tokens: Tokens) -> TextEmbeddings:
        """Encode texts. Padding is zero and counts in no mean."""
        mask = tokens.attention_mask
        output = self.backbone(input_ids=tokens.ids, attention_mask=mask.long(), output_hidden_states=True)
        hidden = output.last_hidden_state
        if self.config.summed_layers > 1:  # hidden_states[0] is the embedding layer
            hidden = torch.stack(output.hidden_states[1:][-self.config.summed_layers :]).sum(0)
        if self.config.pooling == "words":
            hidden, mask = _word_sums(hidden, tokens)
        embeddings = self.projection(hidden) * mask[..., None]
        counts = mask.sum(1, keepdim=True)
        if self.config.pooling in ("words", "mean"):
            return TextEmbeddings(embeddings, mask, embeddings.sum(1) / counts.to(embeddings.dtype))
        chosen = torch.zeros_like(counts) if self.config.pooling == "cls" else counts - 1
        pooled = embeddings.take_along_dim(chosen[..., None], 1)[:, 0]
        return TextEmbeddings(embeddings, mask, pooled)


def _word_sums(hidden: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Sum the tokens (n, length, d) of each word to (n, w, d), and return which of these are not padding (n, w)."""
    count, length, width = hidden.shape
    word_index = tokens.word_index[..., None].expand(-1, -1, width)
    words = hidden.new_zeros(count, length, width).scatter_add(1, word_index, hidden)[:, 1:]  # 0: special tokens
    return words, torch.arange(1, length, device=hidden.device)[None] <= tokens.word_count[:, None]
