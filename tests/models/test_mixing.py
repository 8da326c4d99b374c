"""DACL, m²-mix and m³-mix against calculations by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import InputError
from rightlung.core.keyed import text_generator
from rightlung.models.mixing import (
    hard_negative_mix,
    joint_mix,
    mixed_views,
    slerp,
    unimodal_mix,
    view_pairs,
)
from rightlung.training.recipe_file import read_recipe
from tests.models.clip.tiny import TEXTS, batch, create

NOTHING = torch.zeros(2, 2, dtype=torch.bool)
Floats = NDArray[np.float64]
X, Y = [1.0, 0.0], [0.0, 1.0]


def cross_entropy(right: float, *others: float) -> float:
    return -right + math.log(sum(math.exp(one) for one in (right, *others)))


def test_slerp_moves_along_the_arc_and_is_safe_for_equal_and_opposite_vectors() -> None:
    first, second = torch.tensor([X, X, X]), torch.tensor([Y, X, [-1.0, 0.0]])
    third = math.pi / 2 * (1 - 0.25)
    found = slerp(first, second.requires_grad_(), 0.25)
    assert found[0].tolist() == pytest.approx([math.cos(third), math.sin(third)], abs=1e-6)
    assert found[1].tolist() == pytest.approx(X)
    assert torch.isfinite(found).all()
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert second.grad is not None
    assert torch.isfinite(second.grad).all()


def test_m2_mix_by_hand() -> None:
    # Image 0 = text 0 = x, image 1 = text 1 = y: mixtures are x and y; a negative's cosine is 0, the right one's is 1.
    vectors = torch.tensor([X, Y])
    loss = hard_negative_mix(vectors, vectors, 0.3, NOTHING)
    assert float(loss) == pytest.approx(cross_entropy(1 / 0.07, 0.0), abs=1e-6)
    # Texts exchanged: the right cosine is 0; the mixture of pair 1 (y, x) by 0.3 has the angle 63° from its text x.
    angle = 0.3 * math.pi / 2  # from the text x to the image y
    image_0, text_0 = math.cos(angle), math.sin(angle)  # cosines of x and y with it
    expected = (cross_entropy(0.0, image_0 / 0.07) + cross_entropy(0.0, text_0 / 0.07)) / 2
    assert float(hard_negative_mix(vectors, vectors.flip(0), 0.3, NOTHING)) == pytest.approx(expected, abs=1e-4)


def test_v_mix_by_hand_with_soft_targets() -> None:
    vectors, scale, share = torch.tensor([X, Y]), 5.0, 0.3
    mixed = slerp(vectors, vectors.flip(0), share)  # 0.3 of the row itself: 63° away from it
    near, far = math.cos(0.7 * math.pi / 2) * scale, math.sin(0.7 * math.pi / 2) * scale
    expected = share * cross_entropy(near, far) + (1 - share) * cross_entropy(far, near)
    assert float(unimodal_mix(mixed, vectors, share, scale, NOTHING)) == pytest.approx(expected, abs=1e-5)


def test_vl_mix_by_hand_counts_the_row_and_its_partner() -> None:
    vectors = torch.tensor([X, Y])
    mixed = slerp(vectors, vectors.flip(0), 0.3)
    cosine = math.cos(0.4 * math.pi / 2)  # 63° and 27°
    expected = cross_entropy(5.0, 5 * cosine) + cross_entropy(5 * cosine, 5.0)
    assert float(joint_mix(mixed, mixed, 5.0, NOTHING)) == pytest.approx(expected, abs=1e-5)


def test_texts_with_the_same_words_are_not_negatives_of_a_mixture() -> None:
    rows = normalize(torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), dim=-1)
    texts = rows[[0, 1, 2, 1]]  # rows 1 and 3 say the same
    ignored = torch.zeros(4, 4, dtype=torch.bool)
    ignored[1, 3] = ignored[3, 1] = True
    mixed = slerp(rows, rows.flip(0), 0.4)
    found = unimodal_mix(mixed, texts, 0.4, 3.0, ignored)
    logits = 3.0 * mixed @ texts.T
    # A mixture of rows 1 and 2 has text 1, so that text 3 is no negative of it; and so on.
    not_compared = [(0, 1), (1, 3), (2, 3), (3, 1)]  # mixture and text
    partners = [3, 2, 1, 0]
    losses: list[float] = []
    for table, left_out in ((logits, not_compared), (logits.T, [(text, row) for row, text in not_compared])):
        for row, values in enumerate(table.tolist()):
            whole = math.log(sum(math.exp(value) for at, value in enumerate(values) if (row, at) not in left_out))
            losses.append(0.4 * (whole - values[row]) + 0.6 * (whole - values[partners[row]]))
    assert float(found) == pytest.approx(np.mean(losses), abs=1e-5)


def test_dacl_ignores_twins_and_the_released_one_counts_them_as_negatives() -> None:
    given = batch(2, texts=TEXTS[:2])
    ours, released = view_pairs(given, True, False), view_pairs(given, True, True)
    assert ours.image_indices.tolist() == [0, 1, 2, 3]
    assert ours.duplicates is not None
    assert ours.duplicates.int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert released.duplicates is None


@pytest.mark.parametrize("name", ["dacl", "dacl_released"])
def test_dacl_by_hand(name: str) -> None:
    model, given = create(losses=[name], duplicate_texts="ignore"), replace(batch(4), seed=5)
    random = text_generator(5, "dacl")
    views: list[Tensor] = []
    for _ in range(2):
        shares = random.uniform(0.5, 1.0, 4)
        if name == "dacl_released":
            shares = np.full(4, random.beta(0.6, 0.6))
        else:
            assert shares.min() >= 0.5
        views.append(mixed_views(given.images, torch.from_numpy(shares), torch.from_numpy(random.permutation(4))))
    with torch.no_grad():
        images = normalize(model.image_encoder(torch.cat(views)).global_embedding, dim=-1)
        texts = normalize(model.embed_texts(TEXTS[:4]).global_embedding, dim=-1).repeat(2, 1)
        found = float(model(given)[name])
    logits = images @ texts.T / 0.07
    if name == "dacl":
        twins = torch.eye(8, dtype=torch.bool)[[4, 5, 6, 7, 0, 1, 2, 3]]
        logits = logits.masked_fill(twins, -math.inf)
    own = torch.arange(8)
    expected = torch.nn.functional.cross_entropy(logits, own) + torch.nn.functional.cross_entropy(logits.T, own)
    assert found == pytest.approx(float(expected) / 2, abs=1e-4)
    if name == "dacl_released":
        assert found > math.log(2)  # each text stands twice in the denominator


def test_a_released_m2_hardly_looks_at_its_negatives() -> None:
    model, given = create(losses=["m2_released", "m2"]), batch(4)
    with torch.no_grad():
        images = normalize(model.image_encoder(given.images).global_embedding, dim=-1)
        texts = normalize(model.embed_texts(TEXTS[:4]).global_embedding, dim=-1)
        found = model(given)
    right = (images * texts).sum(-1) / 0.07
    flat = torch.log(torch.exp(right) + 3) - right  # three negatives with logits of about 0
    assert float(found["m2_released"]) == pytest.approx(float(flat.mean()), abs=0.02)
    assert abs(float(found["m2"]) - float(found["m2_released"])) > 0.1


def slerped(first: Floats, second: Floats, share: float) -> Floats:
    angle = np.arccos((first * second).sum(1, keepdims=True))
    made: Floats = (np.sin(share * angle) * first + np.sin((1 - share) * angle) * second) / np.sin(angle)
    return made


def log_shares(logits: Floats) -> Floats:
    made: Floats = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return made


def m3_by_hand(images: Floats, texts: Floats, scale: float, shares: dict[str, float], temperature: float) -> Any:
    """Oh et al., section 4 and appendix: every term of m³-mix with loops over the pairs."""
    count = len(images)
    found = {"contrastive": 0.0, "m2": 0.0, "v_mix": 0.0, "l_mix": 0.0, "vl_mix": 0.0}
    plain = scale * images @ texts.T
    hard = slerped(images, texts, shares["m2"])
    mixed = {name: slerped(one, one[::-1], shares[name]) for name, one in (("v_mix", images), ("l_mix", texts))}
    both = [slerped(one, one[::-1], shares["vl_mix"]) for one in (images, texts)]
    tables = {
        "v_mix": scale * mixed["v_mix"] @ texts.T, "l_mix": scale * mixed["l_mix"] @ images.T,
        "vl_mix": scale * both[0] @ both[1].T,
    }  # fmt: skip
    for row in range(count):
        partner = count - 1 - row
        for one in (plain, plain.T):
            found["contrastive"] -= log_shares(one)[row, row] / (2 * count)
        for queries, own in ((images, texts), (texts, images)):
            right = np.exp(queries[row] @ own[row] / temperature)
            others = sum(np.exp(queries[row] @ hard[other] / temperature) for other in range(count) if other != row)
            found["m2"] -= np.log(right / (right + others)) / (2 * count)
        for name, table in tables.items():
            weights = (1.0, 1.0) if name == "vl_mix" else (shares[name], 1 - shares[name])
            for one in (table, table.T):
                logs = log_shares(one)[row]
                found[name] -= (weights[0] * logs[row] + weights[1] * logs[partner]) / (2 * count)
    return found


@pytest.mark.parametrize("settings", [{}, {"hard_negative_temperature": 0.2, "alpha": 0.9}])
def test_every_term_of_m3_mix_in_the_model_and_their_sum_by_hand(settings: dict[str, float]) -> None:
    recipe = read_recipe("eclip-clip-m3")
    weights = recipe.loss_weights(0)
    assert weights == {"contrastive": 1.0, "m2": 1.0, "v_mix": 1.0, "l_mix": 1.0, "vl_mix": 1.0}  # a plain sum
    model, given = create(losses=[*weights], mixing=settings), replace(batch(4), seed=11)
    with torch.no_grad():
        images = normalize(model.image_encoder(given.images).global_embedding, dim=-1).double().numpy()
        texts = normalize(model.embed_texts(TEXTS[:4]).global_embedding, dim=-1).double().numpy()
        found = {name: float(loss) for name, loss in model(given).items()}
    alpha = settings.get("alpha", 0.5)
    drawn = {"m2": "HardNegativeMix", "v_mix": "ImageMix", "l_mix": "TextMix", "vl_mix": "JointMix"}
    shares = {name: text_generator(11, keyed).beta(alpha, alpha) for name, keyed in drawn.items()}
    expected = m3_by_hand(images, texts, 1 / 0.07, shares, settings.get("hard_negative_temperature", 0.07))
    assert found == pytest.approx(expected, abs=2e-4)
    assert sum(weights[name] * one for name, one in found.items()) == pytest.approx(sum(expected.values()), abs=5e-4)


def test_l_mix_by_hand_with_soft_targets() -> None:
    # Images x, y; texts y, x. The mixture of text 0 holds 0.3 of y, so it is 27° away from x, the image 0.
    images, texts = torch.tensor([X, Y]), torch.tensor([Y, X])
    mixed = slerp(texts, texts.flip(0), 0.3)
    near, far = 5 * math.cos(0.3 * math.pi / 2), 5 * math.sin(0.3 * math.pi / 2)
    expected = 0.3 * cross_entropy(near, far) + 0.7 * cross_entropy(far, near)
    assert float(unimodal_mix(mixed, images, 0.3, 5.0, NOTHING)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("hard_negative_temperature", 0.0), ("alpha", -1.0), ("dacl_least_share", 1.5)]
)
def test_wrong_settings_of_mixing_name_their_field(name: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"mixing\.{name}"):
        create(losses=["m2"], mixing={name: value})


def test_dacls_least_share_is_a_setting() -> None:
    given = replace(batch(4), seed=5)
    plain, own = create(losses=["dacl"]), create(losses=["dacl"], mixing={"dacl_least_share": 1.0})
    with torch.no_grad():
        images = normalize(own.image_encoder(given.images).global_embedding, dim=-1)
        texts = normalize(own.embed_texts(TEXTS[:4]).global_embedding, dim=-1)
        found = float(own(given)["dacl"])
        assert abs(float(plain(given)["dacl"]) - found) > 1e-3
    # λ = 1: both views are the image itself. Each is compared with the other pairs' texts, in two copies.
    losses = []
    for logits in ((images @ texts.T / 0.07).tolist(), (texts @ images.T / 0.07).tolist()):
        for row, values in enumerate(logits):
            others = 2 * sum(math.exp(one) for place, one in enumerate(values) if place != row)
            losses.append(math.log(math.exp(values[row]) + others) - values[row])
    assert found == pytest.approx(np.mean(losses), abs=1e-4)


def test_what_is_drawn_follows_from_the_batchs_seed() -> None:
    names = ["contrastive", "dacl", "m2", "v_mix", "l_mix", "vl_mix"]
    model, given = create(losses=names), batch(4)
    with torch.no_grad():
        one, again, other = (model(replace(given, seed=seed)) for seed in (1, 1, 2))
    for name in names[1:]:
        assert torch.equal(one[name], again[name])
        assert not torch.equal(one[name], other[name])
    assert torch.equal(one["contrastive"], other["contrastive"])
