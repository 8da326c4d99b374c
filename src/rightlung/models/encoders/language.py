"""Language models: next-token decoders (GPT-2, causal BERT) and masked language models (BERT).

A decoder can be conditioned in three ways (`DecoderCondition`): embeddings before the first token, keys and values for
every layer (P-tuning v2, Liu et al., 2022), or cross-attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rightlung.core.errors import InputError
from rightlung.models.encoders.pretrained import build_text_model
from rightlung.models.encoders.text import TextConfig
from rightlung.models.encoders.tokenizer import MASK, Tokens, WordTokenizer


@dataclass(frozen=True)
class LanguageModelConfig(TextConfig):
    """A language model. A BERT predicts masked tokens, or with ``causal`` the next one, as GPT-2 does.

    A prefix counts in ``max_length``. Cross-attention needs the option ``add_cross_attention: true``.
    """

    kind: Literal["gpt2", "bert"] = "gpt2"
    end_token: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class DecoderCondition:
    """What ``n`` generated texts depend on; give ``prefix`` or ``keys_values``, ``memory`` or nothing.

    ``prefix`` (n, p, hidden) are embeddings before the first token; ``keys_values`` (layers, 2, n, heads, p, hidden /
    heads) are what every layer attends to before it; ``memory`` (n, m, hidden) is read by cross-attention. The masks
    (n, p) and (n, m) say which of these are no padding; all, if they are None.
    """

    prefix: Tensor | None = None
    keys_values: Tensor | None = None
    prefix_mask: Tensor | None = None
    memory: Tensor | None = None
    memory_mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.prefix is not None and self.keys_values is not None:
            raise InputError("a condition has either prefix or keys_values, not both")

    def mask(self, count: int, device: torch.device) -> Tensor:
        """Return which prefix positions are no padding, (n, p) bool."""
        parts = ((self.prefix, 1), (self.keys_values, 4))
        length = next((part.shape[axis] for part, axis in parts if part is not None), 0)
        if self.prefix_mask is not None and length:
            return self.prefix_mask.bool()
        return torch.ones(count, length, dtype=torch.bool, device=device)


@dataclass(frozen=True)
class GenerationConfig:
    """How a text is generated: greedily with one beam, else by beam search; ``temperature`` applies to sampling."""

    max_new_tokens: int = 60
    beams: int = 1
    temperature: float = 1.0


class LanguageModel(nn.Module):
    """A transformer with a language-modelling head."""

    def __init__(self, config: LanguageModelConfig, tokenizer: WordTokenizer) -> None:
        super().__init__()
        self.causal = config.causal or config.kind == "gpt2"
        causal = {"is_decoder": True} if self.causal and config.kind == "bert" else {}
        self.model: Any
        self.model, options = build_text_model(
            config.kind, {**config.options, **causal}, config.pretrained, "language model",
            head="causal" if self.causal else "masked",
            vocab_size=len(tokenizer), max_position_embeddings=config.max_length,
        )  # fmt: skip
        self.config = replace(config, options=options, pretrained=None)
        self.end_id, self.padding_id = tokenizer.end_id, tokenizer.padding_id
        special = (tokenizer.padding_id, tokenizer.unknown_id, tokenizer.start_id, tokenizer.token_id(MASK))
        self.never_written = [one for one in special if one not in (tokenizer.end_id, None)]

    def forward(self, tokens: Tokens, condition: DecoderCondition | None = None) -> Tensor:
        """Return logits (n, length, vocabulary): of the next token, or of each token for a masked language model."""
        given = self._inputs(tokens.ids, tokens.attention_mask, condition or DecoderCondition())
        logits: Tensor = self.model(**given).logits
        return logits[:, -tokens.ids.shape[1] :]

    @torch.no_grad()
    def generate(
        self,
        begin: Tokens,
        condition: DecoderCondition | None = None,
        config: GenerationConfig | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Tensor:
        """Continue ``n`` beginnings and return the new token ids (n, at most ``max_new_tokens``), padded.

        A beginning is `WordTokenizer.start`, or a text encoded without its end token. With ``seeds``, one for each
        text, tokens are sampled. A text does not depend on the other texts of a call. Call it in evaluation mode.
        """
        from transformers import GenerationConfig as Settings
        from transformers import LogitsProcessorList

        condition, config = condition or DecoderCondition(), config or GenerationConfig()
        if not self.causal or self.end_id is None:
            raise InputError("generation needs a causal language model with end_token: true")
        if seeds is not None and (config.beams > 1 or len(seeds) != len(begin.ids)):
            raise InputError("sampling needs beams 1 and one seed for each text")
        ids, mask = _left_padded(begin)
        given = self._inputs(ids, mask, condition, config.beams)
        length = given["attention_mask"].shape[1]
        if length + config.max_new_tokens > self.model.config.max_position_embeddings:
            raise InputError(
                f"{length} tokens before and max_new_tokens {config.max_new_tokens} exceed the max_length "
                f"{self.model.config.max_position_embeddings} of the language model"
            )
        del given["position_ids"]  # generate derives them from the attention mask, as _inputs does
        if "input_ids" in given:  # generate takes what is in the cache for the first ids
            cached = ids.new_full((len(ids), length - ids.shape[1]), self.padding_id)
            given["input_ids"] = torch.cat([cached, ids], dim=1)
        processors = [] if seeds is None else [GumbelNoise(seeds, config.temperature)]
        settings = Settings(  # type: ignore[no-untyped-call]
            max_new_tokens=config.max_new_tokens, num_beams=config.beams, do_sample=False,
            eos_token_id=self.end_id, pad_token_id=self.padding_id, suppress_tokens=self.never_written or None,
        )  # fmt: skip
        found: Tensor = self.model.generate(
            **given, generation_config=settings, logits_processor=LogitsProcessorList(processors)
        )
        return found[:, length:] if "input_ids" in given else found

    def _inputs(self, ids: Tensor, mask: Tensor, condition: DecoderCondition, beams: int = 1) -> dict[str, Any]:
        """Return the arguments of the transformer."""
        joint = torch.cat([condition.mask(len(ids), ids.device), mask], dim=1).long()
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": joint}
        positions = (joint.cumsum(1) - 1).clamp_min(0)
        if condition.prefix is not None:
            embedded = self.model.get_input_embeddings()(given.pop("input_ids"))
            given["inputs_embeds"] = torch.cat([condition.prefix.to(embedded.dtype), embedded], dim=1)
        elif condition.keys_values is not None:
            positions = positions[:, -ids.shape[1] :]
            given["past_key_values"] = _cache(condition.keys_values, beams)
        if condition.memory is not None:
            given["encoder_hidden_states"] = condition.memory
            if condition.memory_mask is not None:
                given["encoder_attention_mask"] = condition.memory_mask.long()
        return {**given, "position_ids": positions}


def next_token_loss(logits: Tensor, tokens: Tokens) -> Tensor:
    """Return the mean cross-entropy of every token after the first, padding left out; logits (n, length, v)."""
    targets = tokens.ids.masked_fill(~tokens.attention_mask, -100)[:, 1:]
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=-100)


def _cache(keys_values: Tensor, beams: int) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(keys_values.repeat_interleave(beams, dim=2)):
        cache.update(keys, values, layer)
    return cache


def _left_padded(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Move the padding before the tokens, so that all texts continue at the same place."""
    length = tokens.ids.shape[1]
    padding = length - tokens.attention_mask.sum(1, keepdim=True)
    order = (torch.arange(length, device=tokens.ids.device) - padding) % length
    return tokens.ids.gather(1, order), tokens.attention_mask.gather(1, order)


class GumbelNoise:
    """Turn the choice of the best token into sampling: the argmax of logits plus Gumbel noise is a sample.

    Each text draws from its own generator, so that it does not depend on the others.
    """

    def __init__(self, seeds: Sequence[int], temperature: float) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Return noisy scores (n, vocabulary)."""
        drawn = [torch.empty(scores.shape[1]).exponential_(generator=one) for one in self.generators]
        return scores / self.temperature - torch.stack(drawn).log().to(scores.device)
