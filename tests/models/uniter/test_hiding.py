from __future__ import annotations

import pytest
import torch

from rightlung.models.uniter.hiding import choose, exchange, hide_pieces


def test_fifteen_in_a_hundred_are_chosen_and_never_what_may_not_be() -> None:
    may = torch.rand(400, 100, generator=torch.Generator().manual_seed(0)) < 0.5
    chosen = choose(may, 0.15, torch.Generator().manual_seed(1))
    assert not bool((chosen & ~may).any())
    assert float(chosen.sum() / may.sum()) == pytest.approx(0.15, abs=0.01)


def test_at_least_one_of_a_row_is_chosen_where_there_is_any() -> None:
    may = torch.zeros(300, 6, dtype=torch.bool)
    may[:200, 2:4] = True
    chosen = choose(may, 1e-6, torch.Generator().manual_seed(0))
    assert bool((chosen[:200].sum(1) == 1).all())
    assert not bool(chosen[200:].any())
    assert choose(torch.zeros(3, 0, dtype=torch.bool), 0.15).shape == (3, 0)


def test_chance_follows_torchs_seed() -> None:
    may = torch.ones(9, 30, dtype=torch.bool)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(choose(may, 0.15))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_of_the_chosen_eight_in_ten_are_masked_one_another_piece_one_the_same() -> None:
    ids = torch.full((300, 100), 7)
    chosen = torch.rand(300, 100, generator=torch.Generator().manual_seed(0)) < 0.5
    hidden = hide_pieces(ids, chosen, 3, 5000, torch.Generator().manual_seed(1))
    assert torch.equal(hidden[~chosen], ids[~chosen])
    of_chosen = hidden[chosen]
    assert float((of_chosen == 3).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float((of_chosen == 7).float().mean()) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_half_of_the_images_get_another_ones_text(count: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    for seed in range(20):
        whose, right = exchange(texts, torch.Generator().manual_seed(seed))
        assert int((whose != torch.arange(count)).sum()) == count // 2
        assert right.tolist() == [float(int(other) == own) for own, other in enumerate(whose)]


def test_the_same_words_from_another_image_are_right() -> None:
    texts = ["clear lungs"] * 3 + ["effusion"]
    seen = set()
    for seed in range(40):
        whose, right = exchange(texts, torch.Generator().manual_seed(seed))
        for own, other in enumerate(whose.tolist()):
            assert float(right[own]) == float((own == 3) == (other == 3))
            seen.add((own == other, float(right[own])))
    assert seen == {(True, 1.0), (False, 1.0), (False, 0.0)}
    assert exchange(["alone"])[1].tolist() == [1.0]
