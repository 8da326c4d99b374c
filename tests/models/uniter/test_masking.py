from __future__ import annotations

import pytest
import torch

from rightlung.models.uniter.losses import draw_mask, exchange_texts, mask_tokens


def test_fifteen_in_a_hundred_are_chosen_and_never_what_may_not_be() -> None:
    candidates = torch.rand(400, 100, generator=torch.Generator().manual_seed(0)) < 0.5
    mask = draw_mask(candidates, 0.15, torch.Generator().manual_seed(1))
    assert not bool((mask & ~candidates).any())
    assert float(mask.sum() / candidates.sum()) == pytest.approx(0.15, abs=0.01)


def test_at_least_one_of_a_row_is_chosen_where_there_is_any() -> None:
    candidates = torch.zeros(300, 6, dtype=torch.bool)
    candidates[:200, 2:4] = True
    mask = draw_mask(candidates, 1e-6, torch.Generator().manual_seed(0))
    assert bool((mask[:200].sum(1) == 1).all())
    assert not bool(mask[200:].any())
    assert draw_mask(torch.zeros(3, 0, dtype=torch.bool), 0.15).shape == (3, 0)


def test_chance_follows_torchs_seed() -> None:
    candidates = torch.ones(9, 30, dtype=torch.bool)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(draw_mask(candidates, 0.15))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_of_the_chosen_eight_in_ten_are_masked_one_another_piece_one_the_same() -> None:
    ids = torch.full((300, 100), 7)
    mask = torch.rand(300, 100, generator=torch.Generator().manual_seed(0)) < 0.5
    hidden = mask_tokens(ids, mask, 3, 5000, torch.Generator().manual_seed(1))
    assert torch.equal(hidden[~mask], ids[~mask])
    of_chosen = hidden[mask]
    assert float((of_chosen == 3).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float((of_chosen == 7).float().mean()) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_half_of_the_images_get_another_ones_text(count: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    for seed in range(20):
        indices, matches = exchange_texts(texts, torch.Generator().manual_seed(seed))
        assert int((indices != torch.arange(count)).sum()) == count // 2
        assert matches.tolist() == [float(int(other) == own) for own, other in enumerate(indices)]


def test_the_same_words_from_another_image_are_right() -> None:
    texts = ["clear lungs"] * 3 + ["effusion"]
    seen = set()
    for seed in range(40):
        indices, matches = exchange_texts(texts, torch.Generator().manual_seed(seed))
        for own, other in enumerate(indices.tolist()):
            assert float(matches[own]) == float((own == 3) == (other == 3))
            seen.add((own == other, float(matches[own])))
    assert seen == {(True, 1.0), (False, 1.0), (False, 0.0)}
    assert exchange_texts(["alone"])[1].tolist() == [1.0]
