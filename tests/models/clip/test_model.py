from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models import dual_encoder
from rightlung.models.base import TrainingBatch
from rightlung.models.chex import Chex
from rightlung.models.clip import Clip
from rightlung.models.folder import load_folder, save_model
from rightlung.models.preprocessing import letterbox_all
from rightlung.models.registry import abilities
from tests.models.clip.tiny import CLIP_TEXT, RESNET, SWIN, TEXTS, create, picture

MEAN = {"size": 64, "kind": "resnet", "options": RESNET, "pooling": "mean", "pyramid_levels": [2, 3]}


def test_it_can_do_what_a_contrastive_model_can() -> None:
    assert abilities(Clip) == ("match", "ground", "classify", "detect", "embed")
    assert create().reads("left pleural effusion").complete


@pytest.mark.parametrize("shift", ["unit", "minimum"])
def test_a_map_is_the_cosine_of_the_phrase_with_each_projected_patch(shift: str) -> None:
    model = create(heatmap_shift=shift)
    images = [picture(0), picture(1, (64, 40)), picture(0, (32, 32))]
    order = [0, 1, 0, 2]
    answers = model.ground([images[index] for index in order], TEXTS[:4])
    squares, extents = letterbox_all(images, 64)
    with torch.no_grad():
        hidden = model.image_encoder.backbone(_standard(squares)).last_hidden_state[:, 1:]
        projection: Any = model.image_encoder.patch_projections[0]
        patches = hidden @ projection.weight[:, :, 0, 0].T
        for answer, index, text in zip(answers, order, TEXTS[:4], strict=True):
            sentence = model.embed_texts([text]).global_embedding
            cosines = torch.cosine_similarity(patches[index], sentence, dim=-1).reshape(4, 4)
            expected = (1 + cosines) / 2 if shift == "unit" else cosines - cosines.min()
            assert answer.heatmap is not None
            assert answer.heatmap.values.min() >= 0
            np.testing.assert_allclose(answer.heatmap.values, expected.numpy(), atol=1e-5)
            assert answer.heatmap.extent == extents[index]
            assert answer.abstention == 0.0


def _standard(squares: torch.Tensor) -> torch.Tensor:
    flat = squares.flatten(1)
    return ((flat - flat.mean(1, keepdim=True)) / flat.std(1, correction=0, keepdim=True)).reshape(-1, 1, 64, 64)


@pytest.mark.parametrize("image", [MEAN, {"size": 64, "kind": "resnet", "options": RESNET},
                                   {"size": 64, "kind": "swin", "options": SWIN}])  # fmt: skip
def test_the_global_embedding_is_the_mean_of_the_patches_where_the_backbone_averages(image: dict[str, Any]) -> None:
    """With one projection for both, an average-pooled backbone gives the mean of its projected patches."""
    embeddings = create(image=image).image_encoder(torch.rand(3, 1, 64, 64))
    torch.testing.assert_close(embeddings.global_embedding, embeddings.patch_embeddings.mean((2, 3)))


def test_answers_do_not_depend_on_what_is_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = create(image=MEAN).train(), [picture(seed, (40 + seed, 60)) for seed in range(5)]
    alone = [model.ground(image, text)[0] for image, text in zip(images, TEXTS[:5], strict=True)]
    similar = np.array([[model.similarity(image, text).global_similarity[0, 0] for text in TEXTS] for image in images])
    for at_once in (2, 16):
        monkeypatch.setattr(dual_encoder, "IMAGE_BATCH_SIZE", at_once)
        monkeypatch.setattr(dual_encoder, "PAIR_BATCH_SIZE", at_once)
        for one, together in zip(alone, model.ground(images, TEXTS[:5]), strict=True):
            assert one.heatmap is not None
            assert together.heatmap is not None
            np.testing.assert_allclose(together.heatmap.values, one.heatmap.values, atol=1e-5)
        assert np.abs(model.similarity(images, TEXTS).global_similarity - similar).max() < 1e-5
    assert model.training
    assert model.ground([], []) == []


def test_zero_shot_is_a_softmax_over_the_mean_of_positive_and_of_negative_prompts() -> None:
    model, images, findings = create(), [picture(seed) for seed in range(3)], ["pleural effusion", "nodule"]
    scores = model.classify(images, findings)
    assert scores.dtype == np.float32
    for row, image in enumerate(images):
        vector = model.encode_image(image)[0].astype(np.float64)
        for column, name in enumerate(findings):
            logits = []
            for prompts in (positive_prompts(name), negative_prompts(name)):
                assert len(prompts) > 1
                mean = np.mean([model.encode_text(prompt)[0] for prompt in prompts], axis=0)
                logits.append(vector @ mean / np.linalg.norm(mean) / 0.07)
            expected = np.exp(logits[0]) / (np.exp(logits[0]) + np.exp(logits[1]))
            assert scores[row, column] == pytest.approx(expected, abs=1e-5)
    assert model.classify(images, []).shape == (3, 0)
    assert model.classify([], findings).shape == (0, 2)
    with pytest.raises(InputError, match="fluffiness"):
        model.classify(images, ["fluffiness"])


def test_multiclass_is_a_softmax_over_the_positive_prompts_of_all_findings() -> None:
    model, findings = create(), ["pleural effusion", "pneumothorax", "edema"]
    found = model.classify([picture(0)], findings, multiclass=True)[0]
    means = [np.mean([model.encode_text(text)[0] for text in positive_prompts(name)], axis=0) for name in findings]
    cosines = [mean @ model.encode_image([picture(0)])[0] / np.linalg.norm(mean) for mean in means]
    exponentials = np.exp(model.scale.item() * np.array(cosines))
    np.testing.assert_allclose(found, exponentials / exponentials.sum(), rtol=1e-4)


def test_prompts_are_averaged_by_group() -> None:
    model = create()
    vectors = model.encode_prompts([TEXTS[:2], TEXTS[2:3]])
    mean = model.encode_text(TEXTS[:2]).mean(axis=0)
    np.testing.assert_allclose(vectors, [mean / np.linalg.norm(mean), model.encode_text(TEXTS[2])[0]], atol=1e-6)
    with pytest.raises(InputError, match="at least one prompt"):
        model.encode_prompts([TEXTS, []])


def test_retrieval_ranks_texts_for_images_and_images_for_texts() -> None:
    model, images = create(), [picture(seed) for seed in range(4)]
    table = model.similarity(images, TEXTS).global_similarity
    texts = model.retrieve_texts(images, TEXTS)
    for row in range(4):
        assert sorted(texts[row]) == list(range(8))
        assert np.all(np.diff(table[row, texts[row]]) <= 0)
    assert np.array_equal(model.retrieve_texts(images, TEXTS, 3), texts[:, :3])
    best = model.retrieve_images(TEXTS, images, 1)
    assert best.shape == (8, 1)
    assert best[:, 0].tolist() == table.argmax(axis=0).tolist()


@pytest.mark.parametrize("changed", [{}, {"image": MEAN, "text": CLIP_TEXT}])
def test_a_saved_model_gives_equal_answers(tmp_path: Path, changed: dict[str, Any]) -> None:
    model, images = create(**changed), [picture(seed) for seed in range(2)]
    with torch.no_grad():
        model.logit_scale.fill_(3.0)
    save_model(model, tmp_path / "model")
    again = load_folder(tmp_path / "model")
    assert isinstance(again, Clip)
    assert again.config == model.config
    assert again.ground(images, TEXTS[:2]) == model.ground(images, TEXTS[:2])
    for method, given in (("encode_image", images), ("encode_text", TEXTS)):
        assert np.array_equal(getattr(again, method)(given), getattr(model, method)(given))
    assert np.array_equal(again.classify(images, ["nodule"]), model.classify(images, ["nodule"]))


@pytest.mark.parametrize("changed", [{}, {"image": MEAN, "text": CLIP_TEXT}])
def test_a_chex_takes_encoders_and_projections_of_a_saved_clip(tmp_path: Path, changed: dict[str, Any]) -> None:
    save_model(create(**changed), tmp_path / "model")
    clip = load_folder(tmp_path / "model")
    decoder = {"layers": 1, "heads": 2, "hidden_size": 16}
    generator = {"vocab_size": 120, "options": {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_inner": 16}}
    parts = {"detector": decoder, "post_decoder": decoder, "generator": generator}
    chex = Chex.from_encoders(clip, parts, TEXTS * 3, seed=0).eval()
    pixels, tokens = torch.rand(2, 1, 64, 64), clip.tokenizer.encode(TEXTS)
    with torch.no_grad():
        assert torch.equal(chex.image_encoder(pixels).patch_embeddings, clip.image_encoder(pixels).patch_embeddings)
        assert torch.equal(chex.text_encoder(tokens).global_embedding, clip.text_encoder(tokens).global_embedding)


def test_a_subclass_can_add_a_loss_of_the_projected_patches() -> None:
    from tests.models.clip.extended import WithPatches

    model = WithPatches.create({**create().to_config(), "losses": ["contrastive", "patches"]}, TEXTS * 3, 0)
    losses = model(TrainingBatch(torch.rand(2, 1, 64, 64), TEXTS[:2]))
    assert set(losses) == {"contrastive", "patches"}
    losses["patches"].backward()
    projection: Any = model.image_encoder.patch_projections[0]
    assert projection.weight.grad.abs().max() > 0
