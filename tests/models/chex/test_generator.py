"""The post decoder and the sentence generator (supp. D.1, Fig. 13)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rightlung.core.settings import read_settings
from rightlung.models.chex.config import ChexConfig, DecoderConfig
from rightlung.models.chex.generator import PostDecoder, SentenceGenerator
from rightlung.models.encoders.language import DecoderCondition, GenerationConfig
from tests.models.chex.tiny import CONFIG, TEXTS, drawn, louder, part_config

QUIET = DecoderConfig(2, 2, 32, dropout=0.0, attention_dropout=0.0, drop_path=0.0)


def post_decoder(**changed: Any) -> PostDecoder:
    torch.manual_seed(0)
    made = PostDecoder(part_config(post_decoder=QUIET, **changed)).eval()
    louder(made)
    return made


def generator(**prefix: Any) -> SentenceGenerator:
    config = read_settings(ChexConfig, CONFIG | {"prefix": {"length": 3, "hidden_size": 8} | prefix})
    tokenizer = config.generator.read_tokenizer(config.generator.tokenizer_file(TEXTS))
    torch.manual_seed(0)
    made = SentenceGenerator(config, tokenizer).eval()
    louder(made)
    return made


def test_a_new_post_decoder_returns_its_input() -> None:
    model = PostDecoder(part_config())
    tokens, has_boxes = drawn(2, 3, 16), torch.ones(2, 3, dtype=torch.bool)
    assert torch.equal(model(tokens, drawn(2, 3, 3, 16), has_boxes, drawn(2, 7, 16)), tokens)
    louder(model)
    assert not torch.allclose(model(tokens, drawn(2, 3, 3, 16), has_boxes, drawn(2, 7, 16)), tokens, atol=1e-2)


def test_regions_without_boxes_do_not_see_box_tokens() -> None:
    model, tokens, source = post_decoder(), drawn(2, 2, 16), drawn(2, 7, 16)
    has_boxes = torch.tensor([[True, False], [False, True]])
    with torch.no_grad():
        one, other = (model(tokens, drawn(2, 2, 3, 16, seed=seed), has_boxes, source) for seed in (1, 2))
        alone = tokens[:, :, None]
        for layer in model.layers:
            alone = layer(alone, source)
        alone = tokens + model.gate * alone[:, :, 0]
    assert torch.allclose(one[~has_boxes], other[~has_boxes])
    torch.testing.assert_close(one[~has_boxes], alone[~has_boxes])  # as if there were none
    assert float((one - other)[has_boxes].abs().amax(-1).min()) > 1e-3


def test_box_tokens_are_dropped_in_training_only() -> None:
    tokens, source, has_boxes = drawn(1, 2, 16), drawn(1, 7, 16), torch.ones(1, 2, dtype=torch.bool)
    boxes = drawn(1, 2, 3, 16, seed=1)
    with torch.no_grad():
        model = post_decoder(box_token_dropout=1.0)
        asked = model(tokens, boxes, has_boxes, source)
        without = model(tokens, boxes, ~has_boxes, source)
        torch.testing.assert_close(model.train()(tokens, boxes, has_boxes, source), without)
        kept = post_decoder(box_token_dropout=0.0)
        torch.testing.assert_close(kept.train()(tokens, boxes, has_boxes, source), asked)
    assert not torch.allclose(asked, without, atol=1e-3)


def test_regions_of_an_image_do_not_see_each_other() -> None:
    model, tokens, boxes, source = post_decoder(), drawn(1, 3, 16), drawn(1, 3, 3, 16), drawn(1, 7, 16)
    has_boxes = torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad():
        together = model(tokens, boxes, has_boxes, source)
        for q in range(3):
            alone = model(tokens[:, q : q + 1], boxes[:, q : q + 1], has_boxes[:, q : q + 1], source)
            torch.testing.assert_close(together[:, q], alone[:, 0], rtol=1e-5, atol=1e-5)


def test_the_prefix_has_keys_and_values_for_every_layer() -> None:
    model, features = generator(), drawn(4, 16)
    with torch.no_grad():
        keys_values = model.condition(features).keys_values
        flat = model.prefix(features)
    assert keys_values is not None
    assert keys_values.shape == (2, 2, 4, 2, 3, 8)  # layers, keys and values, texts, heads, length, size of a head
    assert flat.shape == (4, 3 * 2 * 2 * 16)
    # length varies slowest in the MLP's output, then layer, then key or value, then head
    torch.testing.assert_close(keys_values[1, 0, 2, 1, 2], flat[2].view(3, 2, 2, 2, 8)[2, 1, 0, 1])


def test_a_shared_prefix_is_the_same_in_every_layer() -> None:
    model = generator(shared=True, hidden_size=0)
    keys_values = model.condition(drawn(4, 16)).keys_values
    assert keys_values is not None
    assert keys_values.shape == (2, 2, 4, 2, 3, 8)
    assert torch.equal(keys_values[0], keys_values[1])
    assert sum(weight.numel() for weight in model.prefix.parameters()) == (16 + 1) * 3 * 2 * 16


def test_the_loss_is_the_mean_over_all_tokens_after_the_first() -> None:
    model, features, texts = generator(), drawn(2, 16), [TEXTS[0], TEXTS[5]]
    tokens = model.tokenizer.encode(texts)
    with torch.no_grad():
        terms = []
        for row in range(2):
            ids = tokens.ids[row, : int(tokens.attention_mask[row].sum())]
            own = model.tokenizer.encode([texts[row]])
            logits = model.language_model(own, model.condition(features[row : row + 1]))[0]
            terms += [-float(logits[k - 1].log_softmax(0)[ids[k]]) for k in range(1, len(ids))]
            assert int(ids[-1]) == model.tokenizer.end_id  # the end is learned
        assert float(model.loss(features, texts)) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_generation_is_bounded_and_depends_on_the_features_alone() -> None:
    model, features = generator(), drawn(5, 16)
    with torch.no_grad():
        output = model.language_model.model.lm_head.weight
        output[model.tokenizer.end_id] = -10 * output.mean(0)  # an end that is hardly ever chosen
        texts = model.write(features, 7)
        ids = model.language_model.generate(
            model.tokenizer.start(5), model.condition(features), GenerationConfig(max_new_tokens=7)
        )
        assert ids.shape[1] <= 7
        assert [model.write(features[row : row + 1], 7)[0] for row in range(5)] == texts
        unconditioned = model.language_model.generate(
            model.tokenizer.start(1), DecoderCondition(), GenerationConfig(max_new_tokens=7)
        )
    assert len(set(texts)) > 1
    assert model.tokenizer.decode(unconditioned)[0] not in texts
    assert model.write(features[:0], 7) == []
