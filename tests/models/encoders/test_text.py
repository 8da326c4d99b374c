"""Text encoders against the models of transformers with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextModel

from rightlung.core import InputError
from rightlung.models.encoders import TextEncoder, TextEncoderConfig, WordTokenizer, train_tokenizer

TEXTS = ["left pleural effusion.", "no pneumothorax is seen.", "right basal opacity with a small effusion."]
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2}


def build(kind: Any, options: dict[str, Any], **fields: Any) -> tuple[TextEncoder, WordTokenizer]:
    fields = {"summed_layers": 1, "end_token": True, "max_length": 24, **fields}
    config = TextEncoderConfig(kind, options, **fields)
    tokenizer = config.read_tokenizer(config.tokenizer_file(TEXTS * 2))
    torch.manual_seed(0)
    return TextEncoder(config, 8, len(tokenizer)).eval(), tokenizer


@pytest.mark.parametrize("pooling", ["mean", "cls", "eos"])
def test_the_global_embedding_is_pooled_from_the_hidden_states_of_the_text_alone(pooling: Any) -> None:
    encoder, tokenizer = build("bert", BERT, pooling=pooling)
    with torch.no_grad():
        found = encoder(tokenizer.encode(TEXTS))
        for row, text in enumerate(TEXTS):
            ids = tokenizer.encode([text]).ids
            hidden = encoder.backbone(input_ids=ids).last_hidden_state[0]
            pooled = {"mean": hidden.mean(0), "cls": hidden[0], "eos": hidden[-1]}[pooling]
            torch.testing.assert_close(found.global_embedding[row], encoder.projection(pooled), rtol=1e-5, atol=1e-5)
            words = found.word_embeddings[row]
            torch.testing.assert_close(words[: len(hidden)], encoder.projection(hidden), rtol=1e-5, atol=1e-5)
            assert not words[len(hidden) :].any()
            assert int(found.attention_mask[row].sum()) == len(hidden)


def test_words_are_sums_of_their_tokens_over_the_last_layers() -> None:
    encoder, tokenizer = build("bert", BERT, summed_layers=2, end_token=False, pooling="words")
    tokens = tokenizer.encode(["effusionless left"])
    numbers = tokens.word_index[0]
    with torch.no_grad():
        found = encoder(tokens)
        states = encoder.backbone(input_ids=tokens.ids, output_hidden_states=True).hidden_states
        hidden = (states[1] + states[2])[0]
        words = torch.stack([encoder.projection(hidden[numbers == word].sum(0)) for word in (1, 2)])
    torch.testing.assert_close(found.word_embeddings[0, :2], words, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.global_embedding[0], words.mean(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options", "fields"),
    [("bert", BERT, {"causal": True}), ("gpt2", GPT2, {}), ("clip_text_model", BERT, {})],
)
def test_later_tokens_change_nothing_before_them_in_a_causal_encoder(
    kind: str, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    encoder, tokenizer = build(kind, options, pooling="eos", **fields)
    first = tokenizer.encode(["left pleural effusion is seen.", "no pneumothorax"])
    second = tokenizer.encode(["left pleural opacity with right.", "no pneumothorax"])
    assert first.ids.shape == second.ids.shape
    same = int((first.ids[0] == second.ids[0]).long().cumprod(0).sum())
    with torch.no_grad():
        before, after = encoder(first), encoder(second)
    assert torch.equal(before.word_embeddings[0, :same], after.word_embeddings[0, :same])
    assert not torch.allclose(before.word_embeddings[0, same], after.word_embeddings[0, same])
    assert torch.equal(before.global_embedding[1], after.global_embedding[1])


def test_a_bert_sees_later_tokens_unless_it_is_causal() -> None:
    encoder, tokenizer = build("bert", BERT, pooling="cls")
    with torch.no_grad():
        embeddings = encoder(tokenizer.encode(["left effusion", "left opacity"])).global_embedding
    assert not torch.allclose(embeddings[0], embeddings[1])


def test_the_text_tower_of_a_clip_folder_is_read(tmp_path: Path) -> None:
    definition = train_tokenizer(TEXTS * 2, end_token=True)
    (tmp_path / "tokenizer.json").write_text(definition, encoding="utf-8")
    size = len(WordTokenizer(definition))
    text = {**BERT, "vocab_size": size, "max_position_embeddings": 24, "bos_token_id": 2, "eos_token_id": 4}
    vision = {**BERT, "image_size": 32, "patch_size": 16}
    torch.manual_seed(0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision)).save_pretrained(tmp_path)
    config = TextEncoderConfig(
        "clip_text_model", summed_layers=1, pooling="eos", end_token=True, max_length=24, pretrained=str(tmp_path)
    )
    tokenizer = WordTokenizer(definition, 24, end_token=True)
    encoder = TextEncoder(config, 8, size).eval()
    tokens = tokenizer.encode(TEXTS)
    with torch.no_grad():
        theirs = CLIPTextModel.from_pretrained(tmp_path)(tokens.ids, tokens.attention_mask.long()).pooler_output
        found = encoder(tokens).global_embedding
        torch.testing.assert_close(found, encoder.projection(theirs), rtol=1e-5, atol=1e-5)
    again = TextEncoder(encoder.config, 8, size).eval()
    again.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        assert torch.equal(again(tokens).global_embedding, found)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"pooling": "eos"}, "pooling 'eos' needs end_token: true"),
        ({"pooling": "cls", "causal": True}, "would see the start token alone"),
        ({"kind": "gpt2", "pooling": "cls"}, "would see the start token alone"),
        ({"max_length": 1}, "max_length must be from 2 to 4096; got 1"),
        ({"max_length": 2, "end_token": True}, "max_length must be from 3 to 4096; got 2"),
        ({"min_frequency": 0}, "min_frequency must be at least 1"),
        ({"vocab_size": 3}, "vocab_size must be from 50 to 200000; got 3"),
        ({"summed_layers": 0}, "summed_layers must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        TextEncoderConfig(**fields)
