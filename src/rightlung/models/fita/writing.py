"""Writing reports: beam search, greedy choice and sampling of `transformers`, with caches for decoder and TFR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from rightlung.core.errors import InputError
from rightlung.models.encoders.language import GumbelNoise
from rightlung.models.fita.config import WritingConfig
from rightlung.models.fita.decoder import Memory, ReportDecoder
from rightlung.models.fita.text_refiner import TextRefiner
from rightlung.models.fita.vocabulary import ReportVocabulary


class Writer(PreTrainedModel, GenerationMixin):
    """Decoder and text refiner as `transformers` generates with them; it has no weights of its own."""

    config_class = PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, decoder: ReportDecoder, refiner: TextRefiner | None) -> None:
        layers = len(decoder.layers)
        described: dict[str, Any] = {"num_hidden_layers": layers, "vocab_size": decoder.head.out_features}
        super().__init__(PreTrainedConfig(**described))
        self.decoder, self.refiner = decoder, refiner
        self.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]

    def prepare_inputs_for_generation(self, input_ids: Any, *_: Any, **kwargs: Any) -> dict[str, Any]:
        """Pass on all words so far; `forward` knows from the cache which are new."""
        names = ("past_key_values", "crossed", "sources")
        return {"input_ids": input_ids} | {name: kwargs.get(name) for name in names}

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, crossed: Any = None, sources: Any = None,
        attention_mask: Tensor | None = None, return_dict: bool = True,
    ) -> CausalLMOutputWithPast:  # fmt: skip
        """Return the logits after the last word. ``crossed`` and ``sources`` are a `Memory`'s."""
        own, of_text = past_key_values.self_attention_cache, past_key_values.cross_attention_cache
        done, words, keep = own.get_seq_length(), None, True
        if self.refiner is not None:
            everything = torch.ones_like(input_ids, dtype=torch.bool)
            if keep := self.refiner.causal:
                states = self.refiner(input_ids, everything, of_text, done)
            else:  # every new word changes the states of those before it
                states = self.refiner(input_ids, everything)
            words = self.decoder.refined(states)
        logits = self.decoder(input_ids[:, done:], Memory(crossed, sources), words, own, done, keep)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)


@torch.no_grad()
def write(
    decoder: ReportDecoder,
    refiner: TextRefiner | None,
    memory: Memory,
    vocabulary: ReportVocabulary,
    config: WritingConfig,
    seeds: Sequence[int] | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Return the words (n, at most ``max_words``) of a report for each row of a memory, padded.

    With ``seeds``, one for each report, words are sampled. A report does not depend on the other reports of a call.
    Call it in evaluation mode.
    """
    count, device = len(memory.crossed), memory.crossed.device
    if seeds is not None and (config.beams > 1 or len(seeds) != count):
        raise InputError("sampling needs beams: 1 and one seed for each image")
    processors = [] if seeds is None else [GumbelNoise(seeds, temperature)]
    search: dict[str, Any] = {"length_penalty": config.length_penalty} if config.beams > 1 else {}
    settings = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=config.max_words, min_new_tokens=config.min_words, num_beams=config.beams, do_sample=False,
        **search, no_repeat_ngram_size=config.blocked_ngram,
        eos_token_id=vocabulary.end_id, pad_token_id=vocabulary.padding_id, suppress_tokens=vocabulary.never_written,
    )  # fmt: skip
    start = vocabulary.start(count).ids.to(device)
    writer: Any = Writer(decoder, refiner)
    found: Tensor = writer.eval().generate(
        input_ids=start, attention_mask=torch.ones_like(start), crossed=memory.crossed, sources=memory.sources,
        past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()),
        generation_config=settings, logits_processor=LogitsProcessorList(processors),
    )  # fmt: skip
    return found[:, 1:]
