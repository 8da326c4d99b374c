from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import Box, Extent, InputError, Phrase
from rightlung.core.settings import read_settings
from rightlung.models.base import Grounder, Matcher, Reader, RegionGrounder, Trainable, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.models.preprocessing import letterbox, standardise
from rightlung.models.registry import abilities
from rightlung.models.uniter import Uniter, UniterConfig
from rightlung.models.uniter.regions import paint, region_saliency
from tests.models.uniter.tiny import BERT, REGIONS, TEXTS, batch, create, picture, some_boxes, with_regions

SURE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PHRASES = ["left pleural effusion", "opacity", "no pneumothorax is seen", "the heart is enlarged", "right effusion"]


def regions_of(seed: int, count: int) -> dict[str, Box]:
    return {f"region {k}": Box(*box) for k, box in enumerate(some_boxes(1, count + 1, seed)[0, 1:].double().tolist())}


def test_it_can_do_what_it_says_and_does_not_pose_as_one_that_needs_no_boxes() -> None:
    model = create()
    assert isinstance(model, RegionGrounder)
    assert isinstance(model, Trainable)
    assert isinstance(model, Reader)
    assert not isinstance(model, Grounder)
    assert not isinstance(model, Matcher)
    assert abilities(model) == abilities(Uniter) == ("ground-regions",)


def test_every_parameter_learns() -> None:
    model = create().train()
    losses = model(batch())
    assert set(losses) == {"mlm", "mrm", "itm"}
    sum(losses.values()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("name", ["mlm", "mrm", "itm"])
def test_only_the_losses_asked_for_are_computed(name: str) -> None:
    assert set(create(losses=[name])(batch())) == {name}


def test_eight_pairs_can_be_learned_by_heart() -> None:
    torch.manual_seed(0)
    model = create(
        options={**BERT, **SURE, "initializer_range": 0.2}
    ).train()  # so narrow a one begins too quietly else
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    given, history = batch(), []
    for _ in range(60):
        losses = model(given)
        optimiser.zero_grad()
        sum(losses.values()).backward()
        optimiser.step()
        history.append({name: float(loss.detach()) for name, loss in losses.items()})
    for name, least in (("mlm", 0.5), ("mrm", 0.8), ("itm", 0.7)):
        before, after = (np.mean([row[name] for row in part]) for part in (history[:5], history[-5:]))
        assert after < least * before, (name, before, after)


def test_the_losses_of_regions_and_of_matching_equal_their_definitions() -> None:
    """What the stream is shown is caught, and each loss is worked out from it one by one."""
    model, given = create(), batch()
    shown: list[tuple[Any, ...]] = []
    encoded: list[Any] = []

    def caught(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        shown.append(inputs)
        encoded.append(output)

    model.encoder.register_forward_hook(caught)
    with torch.no_grad():
        losses = {name: float(loss) for name, loss in model(given).items()}
    tokens = model.tokenizer.encode(given.texts)
    target = given.targets["regions"]
    mrm: Any = model.losses["mrm"]
    itm: Any = model.losses["itm"]
    features = model.encode_regions(given.images, target["boxes"], target["present"]).features
    (masked, *_), (unchanged, _, regions), (exchanged, *_) = shown
    hidden, there = regions.features, regions.present
    assert torch.equal(unchanged, tokens.ids)
    assert torch.equal(shown[0][2].features, features)
    assert torch.equal(shown[2][2].features, features)

    changed = masked != tokens.ids
    assert bool(changed.any())
    assert not bool((changed & (tokens.word_index == 0)).any())  # neither [CLS] nor padding
    with torch.no_grad():
        squares = []
        for n in range(8):
            zeroed = [k for k in range(5) if there[n, k] and not hidden[n, k].any()]
            assert zeroed
            for k in zeroed:
                predicted = model.encoder.feature_projection.weight.T @ mrm._transform(
                    encoded[1].region_embeddings[n, k]
                )
                squares.append(float((predicted + mrm.bias - features[n, k]).square().mean()))
        assert losses["mrm"] == pytest.approx(np.mean(squares), rel=1e-4)

        entropies = []
        for n in range(8):
            logit = itm.classifier(torch.tanh(itm.pooler(encoded[2].token_embeddings[n, 0])))[0]
            probability = float(torch.sigmoid(logit))
            own = torch.equal(exchanged[n], tokens.ids[n])
            entropies.append(-np.log(probability if own else 1 - probability))
        assert sum(not torch.equal(exchanged[n], tokens.ids[n]) for n in range(8)) == 4
        assert losses["itm"] == pytest.approx(np.mean(entropies), rel=1e-4)


def test_hidden_words_are_given_their_own_piece_as_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every chosen piece masked, the loss is the mean over all masked places."""
    from rightlung.models.uniter import losses

    monkeypatch.setattr(losses, "REPLACED", 0.0)
    monkeypatch.setattr(losses, "KEPT", 0.0)
    model, given = create(losses=["mlm"]), batch()
    mlm: Any = model.losses["mlm"]
    seen: list[Any] = []
    model.encoder.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    with torch.no_grad():
        loss = float(model(given)["mlm"])
        ((ids, output),) = seen
        tokens = model.tokenizer.encode(given.texts)
        places = (ids == model.tokenizer.token_id("[MASK]")).nonzero().tolist()
        table = model.encoder.token_embedder.word_embeddings.weight
        terms = [
            -float((table @ mlm._transform(output.token_embeddings[n, w]) + mlm.bias).log_softmax(0)[tokens.ids[n, w]])
            for n, w in places
        ]
    assert {n for n, _ in places} == set(range(8))
    assert all(tokens.word_index[n, w] > 0 for n, w in places)
    assert loss == pytest.approx(np.mean(terms), rel=1e-5)


def test_words_hidden_by_the_recipe_are_no_answers() -> None:
    model = create(losses=["mlm"])
    given = batch(2, 3, boxes=some_boxes(2, 3), present=torch.ones(2, 3, dtype=torch.bool))
    loss = model(replace(given, texts=["[MASK]", "[MASK] [MASK]"]))["mlm"]
    assert loss.item() == 0.0


def test_chance_follows_the_seed_in_training_and_stands_still_otherwise() -> None:
    model, given = create(options={**BERT, **SURE}), batch()

    def losses(seed: int) -> list[float]:
        torch.manual_seed(seed)
        with torch.no_grad():
            return [float(loss) for loss in model(given).values()]

    assert losses(1) == losses(2)
    model.train()
    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_padded_regions_and_images_without_regions_change_nothing() -> None:
    model, given = create(losses=["itm"]), batch(4, 5, present=torch.tensor([[True] * 3 + [False] * 2] * 4))
    other = given.targets["regions"]["boxes"].clone()
    other[:, 3:] = torch.tensor([0.2, 0.2, 0.8, 0.8])
    first, second = (
        model(with_regions(given, boxes=boxes))["itm"].item() for boxes in (given.targets["regions"]["boxes"], other)
    )
    assert first == pytest.approx(second, abs=1e-6)
    without = with_regions(
        given, present=given.targets["regions"]["present"] & torch.tensor([[True], [True], [True], [False]])
    )
    darker = without.images.clone()
    darker[3] *= torch.linspace(0, 1, 48)
    alike = [model(replace(without, images=images))["itm"].item() for images in (without.images, darker)]
    assert alike[0] == pytest.approx(alike[1], abs=1e-6)


@pytest.mark.parametrize(
    "missing",
    [
        {"boxes": torch.zeros(0, 0, 4), "present": torch.zeros(0, 0, dtype=torch.bool)},
        {"boxes": torch.zeros(8, 0, 4), "present": torch.zeros(8, 0, dtype=torch.bool)},
        {"present": torch.zeros(8, 5, dtype=torch.bool)},
    ],
)
def test_a_batch_without_boxes_names_the_field_that_gives_them(missing: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"Add regions to data\.targets"):
        create()(batch(**missing))


def test_pictures_of_another_size_are_refused() -> None:
    given = batch()
    with pytest.raises(
        InputError, match=r"data\.image_size must equal model\.config\.image_size, 48 .* got images of 40"
    ):
        create()(TrainingBatch(given.images[..., :40, :40], given.texts, targets=given.targets))


def test_a_map_is_the_attention_between_words_and_regions_painted_on_the_boxes() -> None:
    model = create(seed=3)
    image = picture(1, (60, 40))  # letterboxed: the regions lie elsewhere in the square than in the image
    (answer,) = model.ground_regions([image], [Phrase("left pleural effusion")], [REGIONS])
    square, extent = letterbox(image, 48)
    corner, size = torch.tensor([extent.x0, extent.y0]), torch.tensor([extent.x1 - extent.x0, extent.y1 - extent.y0])
    boxes = ((torch.tensor([box.as_tuple() for box in REGIONS.values()]) - corner.repeat(2)) / size.repeat(2))[None]
    assert float(boxes[0, 0, 0]) == pytest.approx((8 + 0.1 * 32) / 48)  # 40 columns become 32, with 8 on either side
    tokens = model.tokenizer.encode(["left pleural effusion"])
    there = torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad():
        regions = model.encode_regions(square[None, None], boxes, there)
        joint = model.encoder(tokens.ids, tokens.attention_mask, regions, output_attentions=True)
    assert len(joint.attentions) == 2
    assert joint.attentions[0].shape == (1, 4, tokens.ids.shape[1] + 3, tokens.ids.shape[1] + 3)
    scores = region_saliency(joint.attentions, tokens.word_index > 0, there)
    own = torch.tensor([[box.as_tuple() for box in REGIONS.values()]])
    assert answer.heatmap is not None
    assert answer.heatmap.extent == Extent()
    assert answer.abstention == 0.0
    np.testing.assert_allclose(answer.heatmap.values, paint(own, there, scores, 20)[0].numpy(), rtol=1e-5, atol=1e-7)
    values = sorted(set(np.round(answer.heatmap.values.ravel(), 6)))
    assert values == sorted({0.0, *np.round(scores[0].numpy(), 6)})
    assert {scored.label: scored.box for scored in answer.boxes} == REGIONS
    assert [scored.score for scored in answer.boxes] == pytest.approx(scores[0].tolist(), rel=1e-5)


def test_a_regions_vector_is_its_standardised_pixels_and_then_zeros() -> None:
    model = create()
    images = torch.rand(1, 1, 48, 48, generator=torch.Generator().manual_seed(4))
    box = torch.tensor([[[0.5, 0.25, 0.625, 0.375]]])  # exactly 6 x 6 pixels
    found = model.encode_regions(images, box, torch.ones(1, 1, dtype=torch.bool)).features[0, 0]
    plain = standardise(images)[0, 0, 12:18, 24:30]
    torch.testing.assert_close(found[:36].reshape(6, 6), plain, atol=1e-5, rtol=1e-5)
    assert found[36:].tolist() == [0.0] * 4


def test_no_answer_depends_on_the_other_images_or_phrases() -> None:
    model = create().train()  # dropout would run if asking did not see to it
    images = [picture(seed, shape) for seed, shape in enumerate([(50, 70), (64, 30), (48, 48), (20, 90), (33, 34)])]
    regions = [regions_of(seed, count) for seed, count in enumerate([3, 7, 1, 12, 5])]
    together = model.ground_regions(images, PHRASES, regions)
    similar = model.similarity_regions(images, PHRASES, regions)
    assert similar.shape == (5,)
    assert np.ptp(similar) > 0
    for number in range(5):
        alone, other = model.ground_regions([images[number]], [PHRASES[number]], [regions[number]])[0], together[number]
        assert alone.heatmap is not None
        assert other.heatmap is not None
        np.testing.assert_allclose(alone.heatmap.values, other.heatmap.values, rtol=1e-4, atol=1e-7)
        assert {scored.label: scored.box for scored in other.boxes} == regions[number]
        assert sum(scored.score for scored in other.boxes) == pytest.approx(1.0, abs=1e-5)
        assert [one.score for one in alone.boxes] == pytest.approx([one.score for one in other.boxes], rel=1e-4)
        one = model.similarity_regions([images[number]], [PHRASES[number]], [regions[number]])
        assert float(one[0]) == pytest.approx(float(similar[number]), abs=1e-5)
    assert model.training


def test_many_pairs_and_images_that_come_again_are_answered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from rightlung.models.uniter import model as module

    monkeypatch.setattr(module, "PAIR_BATCH_SIZE", 3)
    model, images, places = create(), [picture(seed) for seed in range(3)], [regions_of(seed, 4) for seed in range(3)]
    order = [0, 0, 2, 1, 2, 0, 1]
    phrases = [PHRASES[number % 5] for number in range(7)]
    asked = [images[which] for which in order], phrases, [places[which] for which in order]
    maps, similar = model.ground_regions(*asked), model.similarity_regions(*asked)
    for number, which in enumerate(order):
        (expected,) = model.ground_regions([images[which]], [phrases[number]], [places[which]])
        assert expected.heatmap is not None
        found = maps[number].heatmap
        assert found is not None
        np.testing.assert_allclose(found.values, expected.heatmap.values, rtol=1e-4, atol=1e-7)
        one = model.similarity_regions([images[which]], [phrases[number]], [places[which]])
        assert float(similar[number]) == pytest.approx(float(one[0]), abs=1e-5)


def test_an_image_without_regions_is_abstained_from() -> None:
    model = create()
    images, places = [picture(0), picture(1)], [REGIONS, {}]
    seen, unseen = model.ground_regions(images, ["opacity", "opacity"], places)
    assert seen.abstention == 0.0
    assert unseen.heatmap is not None
    assert (unseen.abstention, unseen.heatmap.mass) == (1.0, 0.0)
    assert (unseen.has_boxes, unseen.boxes) == (True, ())
    similar = model.similarity_regions(images, ["opacity", "opacity"], places)
    assert np.isnan(similar).tolist() == [False, True]
    assert model.ground_regions([], [], []) == []


@pytest.mark.parametrize(
    ("images", "phrases", "regions", "sentence"),
    [
        (1, ["a", "b"], [REGIONS], "got 1 images, 2 texts and the regions of 1 images"),
        (1, [" "], [REGIONS], "a phrase"),
        (1, ["a"], [{"lung": (0, 0, 1, 1)}], "regions must map names to Box values"),
    ],
)
def test_a_wrong_question_gets_a_sentence(images: int, phrases: list[str], regions: list[Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        create().ground_regions([picture(0)] * images, phrases, regions)


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_a_folder_gives_the_same_model_bit_by_bit(tmp_path: Path, storage: str) -> None:
    model = create(seed=7, save_dtype=storage)
    save_model(model, tmp_path / "one")
    loaded = load_folder(tmp_path / "one")
    assert isinstance(loaded, Uniter)
    assert loaded.config == model.config
    for name, weight in model.tensors().items():
        assert torch.equal(weight, loaded.tensors()[name]), name
    save_model(loaded, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    if storage == "float32":
        asked = [picture(0)], ["left pleural effusion"], [REGIONS]
        assert loaded.ground_regions(*asked) == model.ground_regions(*asked)
        assert loaded.similarity_regions(*asked) == model.similarity_regions(*asked)


def test_a_pretrained_bert_brings_weights_and_words(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from rightlung.models.encoders import train_tokenizer

    definition = train_tokenizer(TEXTS * 3, 150)
    (tmp_path / "tokenizer.json").write_text(definition)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))  # type: ignore[no-untyped-call]
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "max_position_embeddings": 24, **BERT}
    theirs = BertModel(BertConfig(**sizes), add_pooling_layer=False)  # type: ignore[no-untyped-call]
    theirs.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    model = create(pretrained=str(tmp_path / "bert"), options={})
    assert torch.equal(model.encoder.token_embedder.word_embeddings.weight, theirs.embeddings.word_embeddings.weight)
    ours = model.encoder.backbone.state_dict()
    assert all(torch.equal(ours[f"encoder.{name}"], weight) for name, weight in theirs.encoder.state_dict().items())
    save_model(model, tmp_path / "saved")
    (tmp_path / "bert" / "model.safetensors").unlink()
    assert load_folder(tmp_path / "saved").config.pretrained is None


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"region_size": 46}, "feature_size must be at least region_size squared, 2116; got 2048"),
        ({"losses": []}, "losses must name at least one loss"),
        ({"losses": ["alignment"]}, "unknown loss 'alignment'"),
        ({"mask_probability": 1.0}, "mask_probability must be above 0 and below 1; got 1.0"),
        ({"map_size": 0}, "map_size must be from 1 to 1024; got 0"),
        ({"region_sizes": 45}, "unknown field of UniterConfig 'region_sizes'; did you mean 'region_size'"),
    ],
)
def test_a_wrong_configuration_is_named(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_settings(UniterConfig, changed)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({**BERT, "type_vocab_size": 1}, "type_vocab_size of at least 2; got 1"),
        ({**BERT, "max_position_embeddings": 8}, "max_position_embeddings of at least 24; got 8"),
        ({**BERT, "hidden_sise": 8}, "option of joint encoder 'bert': 'hidden_sise'; did you mean 'hidden_size'"),
        ({**BERT, "num_attention_heads": 5}, "contradict each other"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        create(options=options)


def test_the_defaults_are_the_papers() -> None:
    config = UniterConfig()
    assert (config.region_size, config.feature_size, config.mask_probability) == (45, 2048, 0.15)
    from rightlung.models.encoders.pretrained import build_config

    bert = build_config("bert", config.options, "joint encoder")
    assert bert.num_hidden_layers * bert.num_attention_heads == 144


def test_hidden_regions_do_not_blow_up_the_gradient() -> None:
    model = create(losses=["mrm"]).train()
    model(batch())["mrm"].backward()
    norms = [float(weight.grad.norm()) for weight in model.parameters() if weight.grad is not None]
    assert max(norms) < 10


def test_several_texts_an_image_are_refused() -> None:
    given = batch(8)
    several = replace(given, texts=[text for text in given.texts for _ in range(2)],
                      image_of_text=[number // 2 for number in range(16)])  # fmt: skip
    with pytest.raises(InputError, match=r"needs one text per image; got 16 texts for 8 images.*texts_per_image: 1"):
        create()(several)
