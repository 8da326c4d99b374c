from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import InputError, Phrase
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models import dual_encoder
from rightlung.models.base import Embedder, FindingClassifier, Grounder, Matcher, Trainable, TrainingBatch
from rightlung.models.gloria import Gloria, GloriaConfig
from rightlung.models.gloria.losses.masks import AttentionInMask, MaskCrossEntropy
from rightlung.models.preprocessing import letterbox_all
from tests.models.gloria.plain import looped_similarity

TEXTS = ["left pleural effusion.", "no pneumothorax is seen.", "right lower lobe opacity", "the heart is enlarged."]
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}
CONVNEXT = {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1]}
SWIN = {"embed_dim": 8, "depths": [1, 1, 1], "num_heads": [1, 2, 2], "window_size": 4}
EFFICIENTNET = {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320}
VIT = {
    "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
}  # fmt: skip


def config(**changed: Any) -> dict[str, Any]:
    bert = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    plain: dict[str, Any] = {
        "image": {"kind": "resnet", "size": 64, "pyramid_levels": [1], "options": RESNET},
        "text": {"vocab_size": 120, "max_length": 24, "options": bert},
        "dimension": 16,
    }
    return plain | changed


def create(**changed: Any) -> Gloria:
    return Gloria.create(config(**changed), TEXTS * 3, seed=0).eval()


def picture(seed: int, shape: tuple[int, int] = (50, 70)) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def batch(**changed: Any) -> TrainingBatch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(4, 1, 64, 64, generator=generator)
    return TrainingBatch(images, TEXTS, ids=["a", "b", "c", "d"], **changed)


@pytest.mark.parametrize(
    ("kind", "options", "levels", "grid"),
    [
        ("resnet", RESNET, [2], (4, 4)),
        ("resnet", RESNET, [0, 1, 2, 3], (16, 16)),
        ("convnext", CONVNEXT, [1, -1], (8, 8)),
        ("swin", SWIN, [0, 1], (16, 16)),
        ("vit", VIT, [0], (8, 8)),
        ("efficientnet", EFFICIENTNET, [1, 3], (16, 16)),
    ],
)
def test_every_encoder_gives_a_map_on_the_grid_of_its_finest_level(
    kind: str, options: dict[str, Any], levels: list[int], grid: tuple[int, int]
) -> None:
    model = create(
        image={"kind": kind, "size": 64, "pyramid_levels": levels, "options": options, "position_embeddings": True}
    )
    answer = model.ground([picture(0)], ["left pleural effusion"])[0]
    assert answer.heatmap is not None
    assert answer.heatmap.grid == grid
    assert answer.heatmap.mass == pytest.approx(1.0, abs=1e-5)
    losses = model.train()(batch())
    sum(losses.values()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_it_can_do_what_it_says() -> None:
    model = create()
    for protocol in (Matcher, Grounder, FindingClassifier, Trainable):
        assert isinstance(model, protocol)


@pytest.mark.parametrize("softmax_over_words", [False, True])
def test_the_losses_equal_the_papers_written_out(softmax_over_words: bool) -> None:
    model = create(attention={"softmax_over_words": softmax_over_words, "no_attention_token": True})
    losses = {name: loss.detach() for name, loss in model(batch()).items()}
    images = model.image_encoder(batch().images)
    texts = model.embed_texts(TEXTS)
    logits = 10 * looped_similarity(
        texts.word_embeddings,
        texts.attention_mask,
        model.attention_keys(images.patch_embeddings),
        softmax_over_words,
        4.0,
        5.0,
    )
    cosines = torch.tensor(
        [
            [float(torch.cosine_similarity(text, image, dim=0)) for image in images.global_embedding.detach()]
            for text in texts.global_embedding.detach()
        ]
    )
    for name, table in (("local", logits), ("global", 10 * cosines)):
        expected = sum(
            -float(torch.log_softmax(way, dim=1).diagonal().mean()) for way in (table.detach(), table.detach().T)
        )
        assert float(losses[name]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("softmax_over_words", [False, True])
def test_images_and_texts_are_compared_as_in_training(softmax_over_words: bool) -> None:
    model = create(attention={"softmax_over_words": softmax_over_words})
    images = [picture(seed) for seed in range(len(TEXTS))]
    found = model.similarity(images, TEXTS).local_similarity
    assert found is not None
    squares, _ = letterbox_all(images, model.config.image.size)
    with torch.no_grad():
        keys = model.attention_keys(model.image_encoder(squares[:, None]).patch_embeddings)
        texts = model.embed_texts(TEXTS)
        summed = looped_similarity(texts.word_embeddings, texts.attention_mask, keys, softmax_over_words, 4.0, 5.0)
    np.testing.assert_allclose(found, summed.T.numpy() / 5, rtol=1e-4)  # (texts, images), of log-sum-exp over words


@pytest.mark.parametrize(
    "changed",
    [{}, {"attention": {"softmax_over_words": False, "no_attention_token": True}, "heatmap_from": "sentence"}],
)
def test_no_answer_depends_on_the_other_images_or_phrases(changed: dict[str, Any]) -> None:
    model = create(**changed).train()  # batch norms would use the batch if asking did not see to it
    images = [picture(seed) for seed in range(5)]
    phrases = [
        "left pleural effusion",
        "opacity",
        "no pneumothorax",
        "the heart is enlarged",
        "left lower lobe opacity",
    ]
    together = model.ground(images, phrases)
    similar = model.similarity(images, phrases)
    for number in range(5):
        alone = model.ground([images[number]], [phrases[number]])[0]
        assert alone.heatmap is not None
        other = together[number].heatmap
        assert other is not None
        np.testing.assert_allclose(alone.heatmap.values, other.values, rtol=1e-4, atol=1e-7)
        assert alone.abstention == pytest.approx(together[number].abstention, abs=1e-6)
        one = model.similarity([images[number]], [phrases[number]])
        assert one.global_similarity[0, 0] == pytest.approx(similar.global_similarity[number, number], abs=1e-5)
        assert one.local_similarity is not None
        assert similar.local_similarity is not None
        assert one.local_similarity[0, 0] == pytest.approx(similar.local_similarity[number, number], abs=1e-5)
    assert model.training


def test_the_map_of_a_phrase_is_the_mean_of_its_words() -> None:
    model = create(attention={"softmax_over_words": False, "similarity": "cosine", "no_attention_token": True})
    image = picture(3, (64, 64))
    answer = model.ground([image], ["right lower lobe opacity"])[0]
    with torch.no_grad():
        keys = model.attention_keys(model.image_encoder(torch.from_numpy(image)[None, None]).patch_embeddings)[0]
        texts = model.embed_texts(["right lower lobe opacity"])
        words = torch.nn.functional.normalize(texts.word_embeddings[0][texts.attention_mask[0]], dim=-1)
        mean = torch.softmax(4.0 * words @ keys.T, dim=1).mean(0)
    assert answer.heatmap is not None
    np.testing.assert_allclose(answer.heatmap.values.ravel(), mean[1:].numpy(), rtol=1e-4, atol=1e-7)
    assert answer.abstention == pytest.approx(float(mean[0]), abs=1e-6)


def test_pieces_are_summed_into_words_and_padding_is_left_out_of_the_mean() -> None:
    model = create()
    with torch.no_grad():
        alone = model.embed_texts(["the heart is enlarged."])
        beside = model.embed_texts(
            ["the heart is enlarged.", "right lower lobe opacity with an unheard-of qualification"]
        )
    torch.testing.assert_close(alone.global_embedding[0], beside.global_embedding[0], atol=1e-5, rtol=1e-5)
    count = int(alone.attention_mask[0].sum())
    assert count == int(model.tokenizer.encode(["the heart is enlarged."]).word_count[0]) == 5
    torch.testing.assert_close(alone.global_embedding[0], alone.word_embeddings[0, :count].mean(0))


@pytest.mark.parametrize(
    "text", ["x" * 10_000, "opacity " * 1250, "片側胸水", "☃", "́", "zyzzyva qwxz", "half \ud800 a pair"]
)
def test_any_text_has_an_answer(text: str) -> None:
    answer = create().ground([picture(0)], [text])[0]
    assert answer.heatmap is not None
    assert np.isfinite(answer.heatmap.values).all()


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_phrase_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a phrase must be a text"):
        create().ground([picture(0)], [text])


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected as many images as phrases.*got 2 images and 1 phrases"):
        create().ground([picture(0), picture(1)], [Phrase("left pleural effusion")])


def test_it_is_the_same_after_saving_and_loading() -> None:
    model = create(
        attention={"softmax_over_words": False, "no_attention_token": True, "learn_temperature": True},
        heatmap_from="sentence",
    )
    again = Gloria.from_parts(model.to_config(), model.tensors(), model.extra_files())
    assert again.to_config() == model.to_config()
    first, second = (one.ground([picture(0)], ["right lower lobe opacity"])[0] for one in (model, again))
    assert first.heatmap == second.heatmap


def test_a_model_stored_in_half_precision_is_saved_again_bit_for_bit() -> None:
    model = create(save_dtype="float16")
    once = Gloria.from_parts(model.to_config(), model.tensors(), model.extra_files())
    first, second = model.tensors(), once.tensors()
    assert first["image_encoder.global_projection.weight"].dtype == torch.float16
    assert first["image_encoder.global_projection.bias"].dtype == torch.float32
    assert all(torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first)


def test_the_same_seed_gives_the_same_model_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = create(), create()
    assert torch.equal(torch.rand(1), expected)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dimensions": 3}, "unknown field of GloriaConfig 'dimensions'; did you mean 'dimension'"),
        ({"attention": {"similarity": "cosin"}}, "attention.similarity 'cosin'; did you mean 'cosine'"),
        ({"losses": ["gobal"]}, "unknown loss 'gobal'; did you mean 'global'"),
        ({"losses": []}, "losses must name at least one loss"),
        (
            {"heatmap_from": "sentence", "attention": {"softmax_over_words": True}},
            "needs attention.softmax_over_words: false",
        ),
        ({"image": {"kind": "resnext"}}, "unknown image.kind 'resnext'; did you mean 'resnet'"),
        ({"image": {"options": {"hidden_size": 3}}}, "did you mean 'hidden_sizes'"),
        ({"image": {"size": 64, "options": RESNET, "pyramid_levels": [7]}}, "levels must lie between -4 and 3; got 7"),
        ({"text": {"pretrained": "/nowhere/bert"}}, "'/nowhere/bert': there is no such folder"),
    ],
)
def test_a_wrong_configuration_is_named(changed: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=message):
        create(**changed)


def test_pictures_of_another_size_than_the_models_are_refused_in_training() -> None:
    given = batch()
    with pytest.raises(
        InputError, match=r"data\.image_size must equal model\.config\.image\.size, 64 pixels; got images of 48"
    ):
        create()(TrainingBatch(given.images[..., :48, :48], given.texts))


@torch.no_grad()
def test_duplicate_texts_are_no_negatives_where_they_are_to_be_ignored() -> None:
    same = batch()
    object.__setattr__(same, "texts", [TEXTS[0], TEXTS[0], TEXTS[2], TEXTS[3]])
    counted, ignored = (create(duplicate_texts=way)(same)["global"] for way in ("negative", "ignore"))
    images, texts = (
        create().image_encoder(same.images).global_embedding,
        create().embed_texts(same.texts).global_embedding,
    )
    logits = 10 * torch.cosine_similarity(images[:, None], texts[None], dim=2)
    plain = sum(-torch.log_softmax(way, dim=1).diagonal().mean() for way in (logits, logits.T))
    assert float(counted) == pytest.approx(float(plain), abs=1e-4)
    logits[0, 1] = logits[1, 0] = -1e30
    left_out = sum(-torch.log_softmax(way, dim=1).diagonal().mean() for way in (logits, logits.T))
    assert float(ignored) == pytest.approx(float(left_out), abs=1e-4)


@pytest.mark.parametrize("loss", [MaskCrossEntropy, AttentionInMask])
def test_the_losses_of_masks_are_what_they_say(loss: type[MaskCrossEntropy | AttentionInMask]) -> None:
    attention = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25] * 4])
    masks = torch.tensor([[1.0, 0.5, 0.0], [0, 0, 0], [0, 0, 0], [1, 1, 1]])
    has_mask = torch.tensor([True, False, False, False])
    present = torch.tensor([1.0, 0.0, 1.0, float("nan")])
    losses = loss(GloriaConfig()).phrase_losses(attention.log(), masks, has_mask, present, has_token=True)
    if loss is MaskCrossEntropy:
        placed = -(np.log(0.6) * 1.0 + np.log(0.2) * 0.5) / 1.5
    else:
        placed = -np.log(0.6 * 1.0 + 0.2 * 0.5)
    assert losses.tolist() == pytest.approx([placed, -np.log(0.7), -np.log(0.6), 0.0], abs=1e-5)


def test_supervision_moves_the_map_into_the_mask() -> None:
    model = create(
        attention={"similarity": "cosine", "no_attention_token": True, "temperature": 10.0},
        heatmap_from="sentence", losses=["mask_cross_entropy"],
    ).train()  # fmt: skip
    masks = torch.zeros(2, 8, 8)
    masks[0, 5:7, 5:7] = 1
    phrases = {
        "texts": TEXTS[:2], "image_indices": [0, 1], "present": torch.tensor([1.0, 0.0]),
        "has_mask": torch.tensor([True, False]), "masks": masks,
    }  # fmt: skip
    asked = batch(targets={"phrases": phrases})
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        model(asked)["mask_cross_entropy"].backward()
        optimiser.step()
    images = [image[0].numpy() for image in asked.images[:2]]
    seen, unseen = model.ground(images, TEXTS[:2])
    assert seen.heatmap is not None
    assert seen.heatmap.values[5:7, 5:7].sum() > 0.5
    assert seen.abstention < 0.3 < 0.7 < unseen.abstention


@pytest.mark.parametrize("token", [True, False])
def test_findings_are_scored_by_their_prompts_one_by_one(token: bool) -> None:
    model = create(attention={"no_attention_token": token})
    images, findings = [picture(0), picture(1, (64, 64))], ["edema", "fracture", "pleural effusion"]
    found = model.classify(images, findings)
    assert found.shape == (2, 3)
    for row, image in enumerate(images):
        for column, name in enumerate(findings):
            said, denied = positive_prompts(name), negative_prompts(name)
            if token:
                expected = np.mean([1 - model.ground([image], [prompt])[0].abstention for prompt in said])
            else:
                logits = [
                    model.config.global_temperature * model.similarity([image], prompts).global_similarity.mean()
                    for prompts in (said, denied)
                ]
                expected = np.exp(logits[0]) / np.exp(logits).sum()
            assert found[row, column] == pytest.approx(expected, abs=1e-5)
    assert model.classify([], findings).shape == (0, 3)


def test_embeddings_are_of_unit_length_and_their_cosine_is_the_global_similarity() -> None:
    model, images = create(), [picture(seed) for seed in range(3)]
    assert isinstance(model, Embedder)
    of_images, of_texts = model.encode_image(images), model.encode_text(TEXTS)
    assert of_images.shape == (3, 16)
    assert of_images.dtype == of_texts.dtype == np.float32
    assert np.linalg.norm(of_images, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.abs(of_images @ of_texts.T - model.similarity(images, TEXTS).global_similarity).max() < 1e-6


def test_embeddings_do_not_depend_on_what_is_encoded_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = create().train(), [picture(seed, (40 + seed, 60)) for seed in range(5)]
    texts = [*TEXTS, TEXTS[0]]
    alone = np.concatenate([model.encode_image([image]) for image in images])
    alone_texts = np.concatenate([model.encode_text([text]) for text in texts])
    for at_once in (2, 16):
        monkeypatch.setattr(dual_encoder, "IMAGE_BATCH_SIZE", at_once)
        monkeypatch.setattr(dual_encoder, "PAIR_BATCH_SIZE", at_once)
        assert np.abs(model.encode_image(images) - alone).max() < 1e-5
        assert np.abs(model.encode_text(texts) - alone_texts).max() < 1e-5
    assert model.training  # left as it was
    assert model.encode_image([]).shape == model.encode_text([]).shape == (0, 16)
    with pytest.raises(InputError, match="a text"):
        model.encode_text([""])
