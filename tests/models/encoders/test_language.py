"""Language models against transformers: logits, losses, and generation step by step without a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from rightlung.core import InputError
from rightlung.models.encoders import DecoderCondition, LanguageModel, LanguageModelConfig, WordTokenizer
from rightlung.models.encoders.language import GenerationConfig, next_token_loss

TEXTS = ["left pleural effusion.", "no pneumothorax is seen.", "right basal opacity with a small effusion."]
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2}
DECODERS = [("gpt2", GPT2), ("bert", BERT)]
HEADS, HEAD_SIZE, LAYERS, HIDDEN = 2, 8, 2, 16


def build(kind: Any, options: dict[str, Any], causal: bool = True) -> tuple[LanguageModel, WordTokenizer]:
    config = LanguageModelConfig(kind, options, tokenizer="words", max_length=48, causal=causal)
    tokenizer = config.read_tokenizer(config.tokenizer_file(TEXTS * 2))
    torch.manual_seed(0)
    model = LanguageModel(config, tokenizer).eval()
    for parameter in model.parameters():  # far from uniform, so that no two tokens tie
        torch.nn.init.normal_(parameter, std=0.4)
    return model, tokenizer


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conditions(model: LanguageModel, kind: str, count: int) -> DecoderCondition:
    if kind == "prefix":
        return DecoderCondition(prefix=drawn(count, 5, HIDDEN))
    if kind == "keys_values":
        return DecoderCondition(keys_values=drawn(LAYERS, 2, count, HEADS, 5, HEAD_SIZE))
    return DecoderCondition()


def rows(condition: DecoderCondition, chosen: list[int]) -> DecoderCondition:
    def part(value: Tensor | None, axis: int = 0) -> Tensor | None:
        return None if value is None else value.index_select(axis, torch.tensor(chosen))

    return DecoderCondition(
        part(condition.prefix), part(condition.keys_values, 2), part(condition.prefix_mask), part(condition.memory),
        part(condition.memory_mask),
    )  # fmt: skip


def greedy(model: LanguageModel, start: int, condition: DecoderCondition, steps: int) -> list[int]:
    """Choose the best token again and again, each time from the beginning, with the transformer itself."""
    ids = [start]
    for _ in range(steps):
        tokens = torch.tensor([ids])
        given: dict[str, Any] = {"input_ids": tokens}
        if condition.prefix is not None:
            embedded = model.model.get_input_embeddings()(tokens)
            given = {"inputs_embeds": torch.cat([condition.prefix, embedded], dim=1)}
        if condition.keys_values is not None:
            cache = DynamicCache()
            for layer in range(LAYERS):
                cache.update(condition.keys_values[layer, 0], condition.keys_values[layer, 1], layer)
            given["past_key_values"] = cache
        if condition.memory is not None:
            given["encoder_hidden_states"] = condition.memory
        with torch.no_grad():
            logits = model.model(**given).logits[0, -1]
        logits[model.never_written] = -torch.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == model.end_id:
            break
    return ids[1:]


@pytest.mark.parametrize(("kind", "options"), DECODERS)
@pytest.mark.parametrize("conditioned", ["nothing", "prefix", "keys_values"])
def test_greedy_generation_with_a_cache_equals_steps_without_one(
    kind: str, options: dict[str, Any], conditioned: str
) -> None:
    model, tokenizer = build(kind, options)
    condition = conditions(model, conditioned, 3)
    together = model.generate(tokenizer.start(3), condition, GenerationConfig(max_new_tokens=12))
    for row in range(3):
        expected = greedy(model, tokenizer.start_id, rows(condition, [row]), 12)
        assert together[row, : len(expected)].tolist() == expected
        assert set(together[row, len(expected) :].tolist()) <= {model.padding_id}


@pytest.mark.parametrize("conditioned", ["prefix", "keys_values"])
def test_a_text_is_the_same_alone_and_among_others_whatever_is_padded(conditioned: str) -> None:
    model, tokenizer = build("gpt2", GPT2)
    full = conditions(model, conditioned, 3)
    mask = torch.tensor([[True] * 5, [False, False, True, True, True], [False, True, True, True, True]])
    condition = DecoderCondition(full.prefix, full.keys_values, mask)
    begin = tokenizer.encode(["left", "right basal opacity", "no"], end_token=False)
    for config in (GenerationConfig(10), GenerationConfig(10, beams=3)):
        together = model.generate(begin, condition, config)
        for row, text in enumerate(["left", "right basal opacity", "no"]):
            alone = model.generate(tokenizer.encode([text], end_token=False), rows(condition, [row]), config)
            length = alone.shape[1]
            assert together[row, :length].tolist() == alone[0].tolist()
    first = DecoderCondition(
        None if full.prefix is None else full.prefix[1:2, 2:],
        None if full.keys_values is None else full.keys_values[:, :, 1:2, :, 2:],
    )
    unpadded = model.generate(tokenizer.encode(["right basal opacity"], end_token=False), first, GenerationConfig(10))
    padded = model.generate(begin, condition, GenerationConfig(10))[1, : unpadded.shape[1]]
    assert padded.tolist() == unpadded[0].tolist()


def test_cross_attention_reads_the_memory() -> None:
    model, tokenizer = build("gpt2", {**GPT2, "add_cross_attention": True})
    condition = DecoderCondition(memory=drawn(2, 4, HIDDEN))
    found = model.generate(tokenizer.start(2), condition, GenerationConfig(8))
    for row in range(2):
        expected = greedy(model, tokenizer.start_id, rows(condition, [row]), 8)
        assert found[row, : len(expected)].tolist() == expected
    tokens = tokenizer.encode(TEXTS[:2])
    padded = torch.cat([drawn(2, 4, HIDDEN), drawn(2, 3, HIDDEN, seed=9)], dim=1)
    mask = torch.arange(7)[None] < torch.tensor([[4], [4]])
    with torch.no_grad():
        torch.testing.assert_close(
            model(tokens, DecoderCondition(memory=padded, memory_mask=mask)),
            model(tokens, condition),
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize(("kind", "options"), DECODERS)
@pytest.mark.parametrize("conditioned", ["nothing", "prefix", "keys_values"])
def test_logits_in_training_are_those_of_generation(kind: str, options: dict[str, Any], conditioned: str) -> None:
    model, tokenizer = build(kind, options)
    condition = conditions(model, conditioned, 3)
    tokens = tokenizer.encode(TEXTS)
    with torch.no_grad():
        logits = model(tokens, condition)
    assert logits.shape == (*tokens.ids.shape, len(tokenizer))
    begin = tokenizer.start(3)
    assert logits[:, 0].argmax(1).tolist() == model.generate(begin, condition, GenerationConfig(1))[:, 0].tolist()


def test_the_loss_is_the_one_that_transformers_computes() -> None:
    model, tokenizer = build("gpt2", GPT2)
    tokens = tokenizer.encode(TEXTS)
    labels = tokens.ids.masked_fill(~tokens.attention_mask, -100)
    with torch.no_grad():
        theirs = model.model(input_ids=tokens.ids, attention_mask=tokens.attention_mask.long(), labels=labels).loss
        torch.testing.assert_close(next_token_loss(model(tokens), tokens), theirs)


def test_a_prefix_learns_from_the_loss_and_a_frozen_model_stays() -> None:
    model, tokenizer = build("gpt2", GPT2)
    model.requires_grad_(False)
    keys_values = drawn(LAYERS, 2, 3, HEADS, 5, HEAD_SIZE).requires_grad_()
    tokens = tokenizer.encode(TEXTS)
    next_token_loss(model(tokens, DecoderCondition(keys_values=keys_values)), tokens).backward()  # type: ignore[no-untyped-call]
    assert keys_values.grad is not None
    assert float(keys_values.grad.abs().amin(dim=(2, 3, 4, 5)).min()) >= 0
    assert float(keys_values.grad.abs().amax(dim=(2, 3, 4, 5)).min()) > 0


def test_samples_have_the_models_probabilities_and_follow_their_seeds() -> None:
    model, tokenizer = build("gpt2", GPT2)
    with torch.no_grad():
        logits = model(tokenizer.start(1))[0, 0] / 4.0
        logits[model.never_written] = -torch.inf
        expected = logits.softmax(0)
    config = GenerationConfig(1, temperature=4.0)
    found = model.generate(tokenizer.start(4000), None, config, seeds=range(4000))[:, 0]
    frequency = torch.bincount(found, minlength=len(expected)) / 4000
    assert float((frequency - expected).abs().max()) < 0.03
    longer = GenerationConfig(6, temperature=4.0)
    together = model.generate(tokenizer.start(3), None, longer, seeds=[5, 6, 5])
    alone = model.generate(tokenizer.start(1), None, longer, seeds=[6])
    assert together[0].tolist() == together[2].tolist()
    assert together[1, : alone.shape[1]].tolist() == alone[0].tolist()


def test_a_masked_language_model_becomes_a_causal_one_with_the_same_weights() -> None:
    masked, tokenizer = build("bert", BERT, causal=False)
    causal, _ = build("bert", BERT, causal=True)
    causal.load_state_dict(masked.state_dict())
    tokens = tokenizer.encode(["left pleural effusion."])
    other = tokenizer.encode(["left pleural opacity."])
    with torch.no_grad():
        assert torch.equal(causal(tokens)[:, :3], causal(other)[:, :3])
        assert not torch.allclose(masked(tokens)[:, :3], masked(other)[:, :3])
        theirs = masked.model(input_ids=tokens.ids, attention_mask=tokens.attention_mask.long()).logits
        assert torch.equal(masked(tokens), theirs)


def test_the_configuration_builds_the_model_again() -> None:
    for kind, options in DECODERS:
        model, tokenizer = build(kind, options)
        again = LanguageModel(model.config, tokenizer).eval()
        again.load_state_dict(model.state_dict())
        tokens = tokenizer.encode(TEXTS)
        with torch.no_grad():
            assert torch.equal(again(tokens), model(tokens))


def test_what_cannot_be_generated_is_refused() -> None:
    masked, tokenizer = build("bert", BERT, causal=False)
    with pytest.raises(InputError, match="needs a causal language model"):
        masked.generate(tokenizer.start(1))
    model, tokenizer = build("gpt2", GPT2)
    with pytest.raises(InputError, match="6 tokens before and max_new_tokens 43 exceed the max_length 48"):
        model.generate(tokenizer.start(1), conditions(model, "prefix", 1), GenerationConfig(43))
    with pytest.raises(InputError, match="one seed for each text"):
        model.generate(tokenizer.start(2), seeds=[1])
    with pytest.raises(InputError, match="either prefix or keys_values"):
        DecoderCondition(prefix=drawn(1, 2, 16), keys_values=drawn(2, 2, 1, 2, 5, 8))
