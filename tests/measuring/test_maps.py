from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from rightlung.core import Extent, Heatmap
from rightlung.measuring.maps import AnswerMap, entropy, painted, symmetric_divergence, to_pixels

CPU = torch.device("cpu")
BOX = {"x0": 0.0, "y0": 0.0, "x1": 0.5, "y1": 1.0, "score": 0.2, "label": None}


@pytest.mark.parametrize("extent", [Extent(), Extent(-0.2, 0.0, 1.2, 1.0), Extent(0.3, 0.4, 0.7, 0.9)])
@pytest.mark.parametrize("size", [(64, 64), (37, 51), (5, 3)])
def test_maps_are_upsampled_as_heatmaps_are_with_a_maximum_of_one(extent: Extent, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    maps = [rng.random((7, 9), dtype=np.float32) * 5, rng.random((3, 4), dtype=np.float32)]
    answers = [AnswerMap(values, extent.as_tuple()) for values in (*maps, maps[0] * 2)]
    found = to_pixels(answers, size)
    for one, values in zip(found, maps, strict=False):
        expected = Heatmap(values, extent).to_size(size, keep_mass=False) / values.max()
        assert np.allclose(one, expected, atol=1e-6)
    assert np.array_equal(found[2], found[0])  # the scale does not count
    assert np.array_equal(to_pixels(answers, size, CPU).numpy(), found)


def test_a_peak_between_all_pixel_centres_is_not_lost() -> None:
    values = np.zeros((9, 9), dtype=np.float32)
    values[4, 4] = 1.0
    assert to_pixels([AnswerMap(values)], (2, 2)).sum() > 0
    assert to_pixels([AnswerMap(values)], (2, 2), CPU).sum() > 0
    assert to_pixels([AnswerMap(np.zeros((2, 2), np.float32))], (4, 4)).sum() == 0


def test_boxes_without_a_map_are_painted_with_their_scores() -> None:
    better = {"x0": 0.25, "y0": 0.0, "x1": 0.75, "y1": 1.0, "score": 0.9, "label": None}
    expected = np.tile(np.array([0.2, 0.9, 0.9, 0.0], dtype=np.float32), (4, 1))
    answer = AnswerMap(None, boxes=[better, BOX])
    assert np.array_equal(to_pixels([answer], (4, 4))[0], expected)
    assert np.array_equal(to_pixels([answer], (4, 4), CPU)[0].numpy(), expected)
    assert painted([{**BOX, "score": -3.0}], (4, 4)).max() == 1.0
    assert painted([], (4, 4)).max() == 0.0


def test_entropy_and_divergence_are_scipys() -> None:
    one, other = np.random.default_rng(1).random((2, 30))
    one, other = one / one.sum(), other / other.sum()
    assert entropy(one) == pytest.approx(scipy_entropy(one))
    expected = (scipy_entropy(one, other) + scipy_entropy(other, one)) / 2
    assert symmetric_divergence(one, other) == pytest.approx(expected)


def test_a_map_painted_from_regions_is_distributed_over_the_regions() -> None:
    boxes = [{**BOX, "label": "left lung", "score": 3.0}, {**BOX, "x1": 0.7, "label": "right lung", "score": 1.0}]
    answer = AnswerMap(np.ones((4, 4), np.float32), boxes=boxes)
    _, shares = answer.distribution({"left lung", "right lung"})
    assert shares is not None
    assert shares.tolist() == [0.75, 0.25]
    _, cells = answer.distribution({"left lung"})  # not all boxes are regions
    assert cells is not None
    assert cells.tolist() == [1 / 16] * 16
    assert AnswerMap(np.zeros((2, 2), np.float32)).distribution()[1] is None
