"""Attention weights beside plain loops."""

from __future__ import annotations

import pytest
import torch

from rightlung.core import InputError
from rightlung.explain import as_heatmaps, attention_maps


def random_attention(words: int = 4, regions: int = 7) -> torch.Tensor:
    return torch.randn(3, words, regions, generator=torch.Generator().manual_seed(0)).softmax(dim=2)


def test_the_map_is_the_mean_over_the_words_that_count_and_the_first_slot_is_the_abstention() -> None:
    weights = random_attention()
    counts = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]]).bool()
    maps, abstention = attention_maps(weights, (2, 3), words=counts)
    for image in range(3):
        chosen = [weights[image, word] for word in range(4) if counts[image, word]]
        for region in range(6):
            expected = sum(float(word[region + 1]) for word in chosen) / len(chosen)
            assert float(maps[image, region // 3, region % 3]) == pytest.approx(expected, abs=1e-6)
        assert float(abstention[image]) == pytest.approx(sum(float(word[0]) for word in chosen) / len(chosen), abs=1e-6)


def test_without_a_slot_nothing_is_abstained() -> None:
    weights = random_attention(regions=6)
    maps, abstention = attention_maps(weights, (3, 2))
    assert abstention.tolist() == [0, 0, 0]
    torch.testing.assert_close(maps.flatten(1), weights.mean(dim=1))


def test_one_word_gives_that_words_map() -> None:
    weights = random_attention()
    only = torch.arange(weights.shape[1]).eq(2).expand(len(weights), -1)
    maps, abstention = attention_maps(weights, (2, 3), words=only)
    torch.testing.assert_close(maps.flatten(1), weights[:, 2, 1:])
    torch.testing.assert_close(abstention, weights[:, 2, 0])


def test_the_abstention_is_a_share_even_where_weights_do_not_add_up_to_one() -> None:
    _, abstention = attention_maps(torch.tensor([[[3.0, 0.5, 0.5]]]), (1, 2))
    assert abstention.tolist() == [0.75]


def test_a_text_without_words_abstains_wholly_and_makes_a_heatmap_all_the_same() -> None:
    maps, abstention = attention_maps(random_attention(), (2, 3), words=torch.zeros(3, 4, dtype=torch.bool))
    heatmaps = as_heatmaps(maps, abstentions=abstention.tolist())
    assert [(heatmap.mass, heatmap.abstention) for heatmap in heatmaps] == [(0.0, 1.0)] * 3


@pytest.mark.parametrize(
    ("weights", "options", "part"),
    [
        (torch.zeros(1, 2, 9), {}, r"got \(1, 2, 9\)"),
        (-torch.ones(1, 2, 6), {}, "non-negative"),
        (torch.full((1, 2, 6), torch.nan), {}, "finite"),
        (torch.ones(1, 2, 6), {"words": torch.ones(2, 2)}, r"\(2, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(weights: torch.Tensor, options: dict[str, object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        attention_maps(weights, (2, 3), **options)  # type: ignore[arg-type]
