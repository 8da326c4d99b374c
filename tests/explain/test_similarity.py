"""Cosine maps beside scikit-learn, and their shifts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from rightlung.core import InputError
from rightlung.explain import as_heatmaps, cosine_maps, shifted


def vectors() -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    return torch.randn(2, 12, 5, generator=chance), torch.randn(2, 5, generator=chance)


def test_each_cell_is_the_cosine_of_its_region_with_the_text_shifted_into_0_to_1() -> None:
    regions, texts = vectors()
    maps = cosine_maps(regions, texts, (3, 4))
    for image in range(2):
        cosines = cosine_similarity(regions[image].numpy(), texts[image : image + 1].numpy()).reshape(3, 4)
        np.testing.assert_allclose(maps[image].numpy(), (1 + cosines) / 2, atol=1e-6)
    # A vector of zeros has the cosine zero.
    assert cosine_maps(torch.zeros(1, 4, 3), torch.ones(1, 3), (2, 2)).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


@pytest.mark.parametrize("shift", ["unit", "minimum"])
def test_a_shift_keeps_the_order_of_the_regions_and_makes_a_heatmap(shift: str) -> None:
    cosines = 2 * torch.rand(4, 5, 5, generator=torch.Generator().manual_seed(1)) - 1
    maps = shifted(cosines, shift)  # type: ignore[arg-type]
    assert torch.equal(maps.flatten(1).argsort(dim=1), cosines.flatten(1).argsort(dim=1))
    assert len(as_heatmaps(maps)) == 4


def test_the_minimum_shift_brings_the_least_to_zero_and_the_positive_one_cuts() -> None:
    cosines = torch.tensor([[[-0.5, 0.25, 0.75]]])
    assert shifted(cosines, "minimum").tolist() == [[[0.0, 0.75, 1.25]]]
    assert shifted(cosines, "positive").tolist() == [[[0.0, 0.25, 0.75]]]


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"\(n, 4, d\)"):
        cosine_maps(torch.zeros(1, 5, 3), torch.zeros(1, 3), (2, 2))
    with pytest.raises(InputError, match="did you mean 'minimum'"):
        shifted(torch.zeros(1, 2, 2), "minimun")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(n, rows, cols\)"):
        shifted(torch.zeros(2, 2))
