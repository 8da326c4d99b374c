"""Every kind of map beside its definition, computed one pair at a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rightlung
from rightlung.core import InputError
from rightlung.explain import encoder_grad_cam
from rightlung.models.folder import save_model
from rightlung.models.maps import MAP_KINDS, use_map
from rightlung.models.preprocessing import letterbox_all
from tests.models.chex import tiny as chex
from tests.models.clip.tiny import CONVNEXT, RESNET, SWIN, TEXTS, create, picture
from tests.models.gloria.test_model import create as create_gloria

IMAGES = [picture(1), picture(2)]
PAIRS = [(IMAGES[0], TEXTS[0]), (IMAGES[1], TEXTS[1]), (IMAGES[0], TEXTS[2])]


def cosine(vector: torch.Tensor, encoded: Any) -> torch.Tensor:
    """Return the cosine of each image's embedding and a text's."""
    return torch.cosine_similarity(encoded.global_embedding, vector)


def maps(model: Any, kind: str) -> list[Any]:
    """Return the maps of all pairs, asked at once."""
    use_map(model, kind)
    return [one.heatmap.values for one in model.ground([image for image, _ in PAIRS], [text for _, text in PAIRS])]


def pixels(model: Any, image: Any) -> torch.Tensor:
    return letterbox_all([image], model.config.image.size)[0][:, None]


@pytest.mark.parametrize(
    ("kind", "options", "layer"),
    [("resnet", RESNET, "encoder"), ("convnext", CONVNEXT, "encoder"), ("swin", SWIN, "encoder"),
     ("vit", None, "layers.1.layernorm_before")],
)  # fmt: skip
def test_grad_cam_is_that_of_the_cosine_of_image_and_text(kind: str, options: Any, layer: str) -> None:
    image = {"kind": kind, "size": 64, "pooling": "mean", **({"options": options} if options else {})}
    model = create() if options is None else create(image=image)
    found = maps(model, "grad-cam")
    for (picture_, text), values in zip(PAIRS, found, strict=True):
        vector = model.embed_texts([text]).global_embedding.detach()
        expected = encoder_grad_cam(
            model.image_encoder, f"backbone.{layer}",
            partial(cosine, vector),
            pixels(model, picture_), grid=model.image_encoder.grid if options is None else None,
        )  # fmt: skip
        np.testing.assert_allclose(values, expected[0].numpy(), rtol=1e-3, atol=1e-7)
    assert max(values.max() for values in found) > 0


def test_similarity_is_the_cosine_of_patches_and_text_above_its_minimum() -> None:
    for model in (create(), create_gloria(), chex.create()):
        for (image, text), values in zip(PAIRS, maps(model, "similarity"), strict=True):
            with torch.no_grad():
                patches = model.image_encoder(pixels(model, image)).patch_embeddings[0]
                text_vector = model.text_vectors([text])[0]
            cosine = torch.cosine_similarity(patches, text_vector[:, None, None], dim=0)
            np.testing.assert_allclose(values, (cosine - cosine.min()).numpy(), atol=1e-5)


def test_gradient_attention_of_a_vit_follows_the_text_and_rollout_does_not() -> None:
    model = create()
    relevance, rollout = maps(model, "gradient-attention"), maps(model, "rollout")
    image = pixels(model, IMAGES[0])
    model.image_encoder.backbone.set_attn_implementation("eager")
    output = model.image_encoder.backbone(image.sub(image.mean()).div(image.std()), output_attentions=True)
    assert [layer.shape for layer in output.attentions] == [(1, 2, 17, 17)] * 2
    assert np.array_equal(rollout[0], rollout[2])
    assert not np.allclose(relevance[0], relevance[2])
    assert all((values >= 0).all() and values.shape == (4, 4) for values in (*relevance, *rollout))
    assert rollout[0].sum() < 1  # the class token's own share is missing


def test_gradient_attention_of_gloria_is_attention_times_the_derivative_of_the_local_similarity() -> None:
    model = create_gloria()
    found = maps(model, "gradient-attention")[0].ravel()
    with torch.no_grad():
        keys = model.image_encoder(pixels(model, IMAGES[0])).patch_embeddings[0].flatten(1).T.double()
        encoded = model.embed_texts([TEXTS[0]])
        words = encoded.word_embeddings[0, encoded.attention_mask[0]].double()
        attention = (model.temperature * words @ keys.T).softmax(-1)

    def similarity(weights: torch.Tensor) -> torch.Tensor:
        cosines = torch.cosine_similarity(words, weights @ keys, dim=-1)
        return (model.config.word_temperature * cosines).logsumexp(0)

    step, expected = 1e-6, torch.zeros_like(attention)
    for word in range(attention.shape[0]):
        for patch in range(attention.shape[1]):
            moved = torch.zeros_like(attention)
            moved[word, patch] = step
            slope = (similarity(attention + moved) - similarity(attention - moved)) / (2 * step)
            expected[word, patch] = (attention[word, patch] * slope).clamp_min(0)
    np.testing.assert_allclose(found, expected.mean(0).numpy(), rtol=1e-3, atol=1e-6)


def test_the_models_own_map_can_be_named_and_a_kind_changes_nothing_but_maps() -> None:
    for model, own in ((create(), "similarity"), (create_gloria(), "attention")):
        before, classified = maps(model, "own"), model.classify(IMAGES, ["pneumonia"])
        for one, other in zip(before, maps(model, own), strict=True):
            assert np.array_equal(one, other)
        use_map(model, "grad-cam")
        assert np.array_equal(model.classify(IMAGES, ["pneumonia"]), classified)


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (lambda: create(image={"kind": "resnet", "size": 64, "options": RESNET, "pooling": "mean"}), "rollout",
         "a Clip cannot give rollout maps: its image encoder, a resnet, has no self-attention over the whole image"),
        (create, "attention", "a Clip cannot give attention maps: its texts have no attention over patches"),
        (chex.create, "gradient-attention", "a Chex cannot give gradient-attention maps: its image encoder"),
        (object, "grad-cam", "the model cannot give grad-cam maps: a object has only its own"),
        (create, "gradcam", "did you mean 'grad-cam'"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_give_a_kind_says_why(make: Any, kind: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        use_map(make(), kind)


def test_a_models_name_chooses_its_map_and_random_weights(tmp_path: Path) -> None:
    save_model(create(seed=3), tmp_path / "clip")
    loaded = rightlung.load(f"{tmp_path / 'clip'}?map=grad-cam&logit_scale=5")
    assert (loaded.map_kind, loaded.config.logit_scale) == ("grad-cam", 5)
    untrained = rightlung.load(f"{tmp_path / 'clip'}?weights=random")
    assert not np.allclose(untrained.encode_text(TEXTS), create(seed=3).encode_text(TEXTS))
    assert untrained.reads("effusion").known == create(seed=3).reads("effusion").known
    with pytest.raises(InputError, match="weights"):
        rightlung.load(f"{tmp_path / 'clip'}?weights=zero")


@pytest.mark.parametrize("kind", sorted(MAP_KINDS))
def test_every_kind_is_documented(kind: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "explain.md"
    assert f"| `{kind}` |" in page.read_text(encoding="utf-8")
