"""eCLIP: expert images in one joint matrix, priming, +Tied, starting from a host, and answers without maps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from rightlung.core import Heatmap, InputError
from rightlung.models.base import TrainingBatch
from rightlung.models.clip import Clip
from rightlung.models.eclip import Eclip
from rightlung.models.eclip.model import mixing_weight
from rightlung.models.folder import load_folder, save_model
from rightlung.models.gloria import Gloria
from rightlung.models.preprocessing import standardise
from rightlung.models.registry import abilities
from tests.models.clip.tiny import TEXTS, picture
from tests.models.eclip.tiny import CONFIG, GLORIA, batch, create, create_gloria


def test_main_and_expert_images_stand_in_one_matrix() -> None:
    model, given = create(), batch()
    share = mixing_weight(3, 0.3, "expert mixup")
    assert 0 < share < 1
    with torch.no_grad():
        plain = standardise(given.images)
        spread = torch.nn.functional.interpolate(given.targets["expert"]["maps"][:, None], (64, 64), mode="bilinear")
        mixed = share * plain[4:] + (1 - share) * model.processor(plain[4:], spread)
        images = model.image_encoder(torch.cat([given.images[:4], mixed])).global_embedding
        texts = model.embed_texts(TEXTS[:6]).global_embedding
        logits = normalize(images, dim=-1) @ normalize(texts, dim=-1).T / 0.07
        loss = model(given)["contrastive"]
    own = torch.arange(6)
    assert float(loss) == pytest.approx(float(cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2, abs=1e-4)


def test_one_share_for_a_batch_follows_from_its_seed() -> None:
    drawn = np.array([mixing_weight(seed, 0.3, "expert mixup") for seed in range(2000)])
    assert mixing_weight(7, 0.3, "expert mixup") == drawn[7]
    assert np.mean((drawn < 0.1) | (drawn > 0.9)) == pytest.approx(0.57, abs=0.04)  # the fact sheet's share
    assert mixing_weight(7, 0.0, "expert mixup") == 0.0


def test_a_batch_without_annotated_images_has_the_hosts_loss() -> None:
    given = batch(annotated=0)
    eclip, clip = create(), Clip.create(CONFIG | {"duplicate_texts": "ignore"}, TEXTS * 3, 0).eval()
    with torch.no_grad():
        assert torch.equal(eclip(given)["contrastive"], clip(given)["contrastive"])  # the same weights, too


def test_the_same_images_may_be_there_with_and_without_their_map() -> None:
    model, given = create(expert={"same_images": True}), batch()
    told = model.with_expert_images(given)
    assert told.images.shape[0] == 8
    assert torch.equal(told.images[:6], standardise(given.images))
    assert list(told.texts) == [*TEXTS[:6], *TEXTS[4:6]]
    assert list(told.image_of_text) == list(range(8))
    with torch.no_grad():
        images = normalize(model.embed_images(told).global_embedding, dim=-1)
        texts = normalize(model.embed_texts(list(told.texts)).global_embedding, dim=-1)
        logits = images @ texts.T / 0.07
        for one, twin in ((4, 6), (5, 7)):
            logits[one, twin] = logits[twin, one] = -math.inf  # twins are no negatives of each other
        loss = model(given)["contrastive"]
    own = torch.arange(8)
    assert float(loss) == pytest.approx(float(cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2, abs=1e-4)


def test_priming_compares_the_main_images_with_what_the_processor_makes_of_ones() -> None:
    model, given = create(losses=["contrastive", "priming"]), batch()
    with torch.no_grad():
        main = standardise(given.images[:4])
        expected = (model.processor(main, torch.ones_like(main)) - main).square().mean()
        assert float(model(given)["priming"]) == pytest.approx(float(expected), abs=1e-6)


def test_tied_moves_the_plain_embedding_only() -> None:
    model, given = create(losses=["contrastive", "tied"], expert={"mixup_alpha": 0.0}), batch()
    told = model.with_expert_images(given)
    with torch.no_grad():
        plain = model.image_encoder(given.images[4:]).global_embedding
        expert = model.embed_images(told).global_embedding[4:]
    loss = model(given)["tied"]
    assert float(loss.detach()) == pytest.approx(1 - float(cosine_similarity(plain, expert).mean()), abs=1e-5)
    loss.backward()
    assert all(weight.grad is None or not weight.grad.any() for weight in model.processor.parameters())
    assert any(weight.grad is not None and weight.grad.any() for weight in model.image_encoder.parameters())
    assert float(model(batch(annotated=0))["tied"].detach()) == 0.0


@pytest.mark.parametrize("host", ["clip", "gloria"])
def test_a_map_target_is_the_cross_entropy_with_the_plain_images_map(host: str) -> None:
    names = ["contrastive" if host == "clip" else "global", "map_target"]
    model: Any = (create if host == "clip" else create_gloria)(losses=names)
    given = batch()
    with torch.no_grad():
        encoded, texts = model.image_encoder(given.images[4:]), model.embed_texts(TEXTS[4:6])
        if host == "clip":
            patches = normalize(encoded.patch_embeddings.flatten(2), dim=1)
            cosines = torch.einsum("ndp,nd->np", patches, normalize(texts.global_embedding, dim=-1))
            attention = (cosines / 0.07).softmax(-1)
        else:
            keys = model.attention_keys(encoded.patch_embeddings)
            attention = model.log_attention(texts, keys, [0, 1]).exp()
        rows, columns = model.image_encoder.grid
        assert (rows, columns) == (4, 4)
        cell = 1 * 4 + 2  # the only cell of the map, rows 4 to 8 and columns 8 to 12 of 16
        expected = -attention[:, cell].log().mean()
        assert float(model(given)["map_target"]) == pytest.approx(float(expected), abs=1e-4)
        other = {**given.targets["expert"], "matches_text": torch.tensor([False, False])}
        assert float(model(replace(given, targets={"expert": other}))["map_target"]) == 0.0


def test_expert_images_join_all_losses_of_gloria() -> None:
    names = ["local", "global", "priming"]
    model, given = create_gloria(losses=names, expert={"mixup_alpha": 0.0}), batch()
    host = Gloria.create({**GLORIA, "losses": ["local", "global"], "duplicate_texts": "ignore"}, TEXTS * 3, 0).eval()
    told = model.with_expert_images(given)
    host.embed_images = model.embed_images  # type: ignore[method-assign]
    with torch.no_grad():
        found, expected = model(given), host(TrainingBatch(told.images, told.texts))
    for name in ("local", "global"):
        assert float(found[name]) == pytest.approx(float(expected[name]), abs=1e-4)


def test_expert_images_that_hardly_vary_do_not_drown_the_gradients_of_the_others() -> None:
    model = create(expert={"mixup_alpha": 0.0}).train()
    with torch.no_grad():
        model.processor.to_pixels.weight.mul_(1e-6)  # type: ignore[operator, union-attr]
    model(batch())["contrastive"].backward()
    norms = [float(weight.grad.norm()) for weight in model.processor.parameters() if weight.grad is not None]
    assert norms
    assert max(norms) < 10


def test_every_parameter_learns_in_an_expert_step() -> None:
    model = create(losses=["contrastive", "priming", "tied", "map_target"]).train()
    sum(model(batch()).values()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize("host", ["clip", "gloria"])
def test_an_eclip_starts_from_a_trained_host_and_answers_as_it_does(host: str, tmp_path: Path) -> None:
    kind, config = (Clip, CONFIG) if host == "clip" else (Gloria, GLORIA)
    trained: Any = kind.create(config, TEXTS * 3, 5).eval()
    target = type(create() if host == "clip" else create_gloria())
    losses = ["contrastive"] if host == "clip" else ["global"]
    started: Any = target.from_encoders(trained, {"expert": {"width": 16, "heads": 2}, "losses": losses}, [], 1).eval()
    save_model(started, tmp_path / "model")
    model: Any = load_folder(tmp_path / "model")
    assert set(abilities(trained)) == set(abilities(model))
    images = [picture(1), picture(2)]
    np.testing.assert_array_equal(model.encode_image(images), trained.encode_image(images))
    np.testing.assert_array_equal(model.encode_text(TEXTS), trained.encode_text(TEXTS))
    np.testing.assert_array_equal(
        model.similarity(images, TEXTS).global_similarity, trained.similarity(images, TEXTS).global_similarity
    )
    for one, other in zip(model.ground(images, TEXTS[:2]), trained.ground(images, TEXTS[:2]), strict=True):
        assert one.heatmap == other.heatmap
    np.testing.assert_array_equal(model.classify(images, ["edema"]), trained.classify(images, ["edema"]))
    with pytest.raises(InputError, match=r"starts from a clip, not from a gloria"):
        Eclip.from_encoders(Gloria.create(GLORIA, TEXTS, 0), {}, [], 0)


def test_an_image_can_be_embedded_with_a_map() -> None:
    model, images = create(), [picture(1), picture(2)]
    whole, corner = np.ones((50, 70), dtype=np.float32), np.zeros((50, 70), dtype=np.float32)
    corner[:20, :20] = 1.0
    with_whole, with_corner = (model.encode_image(images, maps=[one, one]) for one in (whole, corner))
    assert np.linalg.norm(with_whole, axis=1) == pytest.approx(1.0)
    assert np.abs(with_whole - with_corner).max() > 1e-4
    same = model.encode_image(images, maps=[Heatmap(np.full((5, 7), 0.3))] * 2)  # scaled to a maximum of 1
    np.testing.assert_allclose(same, with_whole, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((8, 8)), r"must have the size of its image, 50 x 70 pixels; got \(8, 8\)"),
        (np.full((50, 70), -1.0), "finite and non-negative; got -1"),
        (np.full((50, 70), np.nan), "finite and non-negative; got nan"),
        (np.zeros((50, 70)), "above 0 somewhere"),
    ],
)
def test_a_bad_map_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create().encode_image([picture(1)], maps=[given])
    with pytest.raises(InputError, match="1 images need as many expert maps; got 2"):
        create().encode_image([picture(1)], maps=[given, given])


def test_a_stream_without_maps_is_refused() -> None:
    with pytest.raises(InputError, match=r"expert, which the batch lacks: set data\.train\[\.\.\.\]\.expert_map"):
        create()(replace(batch(), targets={}))


@pytest.mark.parametrize(
    ("kind", "options", "millions"),
    [
        ("swin", {}, 27.5),
        ("vit", {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}, 21.7),
        ("vit", {}, 85.8),
    ],
)
def test_the_papers_encoders_have_their_sizes(kind: str, options: dict[str, Any], millions: float) -> None:
    from rightlung.models.encoders.pretrained import build_config, build_model

    with torch.device("meta"):
        backbone = build_model(build_config(kind, options, "image encoder"), "image encoder")
    assert sum(weight.numel() for weight in backbone.parameters()) / 1e6 == pytest.approx(millions, abs=0.15)
