from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from rightlung.models.uniter import regions
from rightlung.models.uniter.regions import box_locations, crop_regions, paint, region_saliency
from tests.models.uniter.tiny import some_boxes


@pytest.mark.parametrize(("size", "side"), [(48, 45), (160, 45), (31, 7)])
def test_crops_equal_cutting_and_resizing_one_by_one(size: int, side: int) -> None:
    images, boxes = torch.rand(3, 1, size, size, generator=torch.Generator().manual_seed(0)), some_boxes(3, 6)
    boxes[1, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    boxes[2, 0] = torch.tensor([0.999, 0.999, 1.0, 1.0])
    found = crop_regions(images, boxes, side)
    assert found.shape == (3, 6, side, side)
    for n in range(3):
        for k in range(6):
            x0, y0, x1, y1 = (round(value * size) for value in boxes[n, k].tolist())
            x0, y0 = min(x0, size - 1), min(y0, size - 1)
            crop = images[n : n + 1, :, y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)]
            expected = interpolate(crop, (side, side), mode="bilinear", align_corners=False, antialias=True)
            torch.testing.assert_close(found[n, k], expected[0, 0], atol=1e-5, rtol=1e-5)


def test_crops_made_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images, boxes = torch.rand(5, 1, 32, 32, generator=torch.Generator().manual_seed(0)), some_boxes(5, 3)
    whole = crop_regions(images, boxes, 9)
    monkeypatch.setattr(regions, "NUMBERS_AT_ONCE", 2 * 3 * 9 * 32)
    torch.testing.assert_close(crop_regions(images, boxes, 9), whole, atol=0, rtol=0)


def test_a_place_is_corners_width_height_and_area() -> None:
    found = box_locations(torch.tensor([[[0.25, 0.5, 0.75, 0.75]]]))
    assert found.tolist() == [[[0.25, 0.5, 0.75, 0.75, 0.5, 0.25, 0.125]]]


def test_saliency_equals_a_mean_written_out() -> None:
    chance = np.random.default_rng(3)
    pairs, heads, words, most = 3, 4, 5, 4
    attentions = tuple(
        torch.softmax(torch.from_numpy(chance.normal(size=(pairs, heads, words + most, words + most))), -1).float()
        for _ in range(2)
    )
    said = torch.tensor(
        [[False, True, True, True, True], [False, True, True, False, False], [False, True, *[False] * 3]]
    )
    there = torch.tensor([[True] * 4, [True, True, True, False], [False, True, False, False]])
    found = region_saliency(attentions, said, there)
    for pair in range(pairs):
        of_words = []
        for word in [word for word in range(words) if said[pair, word]]:
            spent = [0.0] * most
            for region in [region for region in range(most) if there[pair, region]]:
                for layer in attentions:
                    for head in range(heads):
                        spent[region] += float(layer[pair, head, word, words + region])
                        spent[region] += float(layer[pair, head, words + region, word])
            of_words.append([value / sum(spent) for value in spent])
        expected = np.mean(of_words, axis=0)
        np.testing.assert_allclose(found[pair].numpy(), expected, rtol=1e-5, atol=1e-7)
        assert float(found[pair].sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(found[2, 1]) == pytest.approx(1.0)  # the only region has it all


def test_both_directions_of_attention_count_by_their_size_in_the_saliency() -> None:
    """One word, two regions: it spends 0.1 and 0.3 on them, they spend 0.6 and 0.2 on it."""
    attention = torch.tensor([[[[0.6, 0.1, 0.3], [0.6, 0.2, 0.2], [0.2, 0.4, 0.4]]]])
    found = region_saliency((attention,), torch.tensor([[True]]), torch.tensor([[True, True]]))
    assert found[0].tolist() == pytest.approx([0.7 / 1.2, 0.5 / 1.2])  # not (0.25 + 0.75) / 2 each


def test_a_pixel_has_the_greatest_score_of_the_boxes_around_it() -> None:
    boxes, side = some_boxes(2, 5, seed=8), 23
    boxes[..., 2:] = torch.maximum(boxes[..., 2:], boxes[..., :2] + 1.01 / side)  # narrower ones are the next test's
    boxes[0, 0] = torch.tensor([0.1, 0.1, 0.9, 0.9])
    scores = torch.rand(2, 5, generator=torch.Generator().manual_seed(2))
    there = torch.ones(2, 5, dtype=torch.bool)
    there[1, 2] = False
    found = paint(boxes, there, scores, side)
    for n in range(2):
        for row in range(side):
            for column in range(side):
                y, x = (row + 0.5) / side, (column + 0.5) / side
                around = [
                    float(scores[n, k])
                    for k, (x0, y0, x1, y1) in enumerate(boxes[n].tolist())
                    if there[n, k] and x0 <= x < x1 and y0 <= y < y1
                ]
                assert float(found[n, row, column]) == pytest.approx(max(around, default=0.0), abs=1e-7)


def test_a_box_between_the_cells_centres_is_painted_where_it_lies() -> None:
    sliver = torch.tensor([[[0.26, 0.6, 0.27, 0.61]]])
    found = paint(sliver, torch.ones(1, 1, dtype=torch.bool), torch.tensor([[0.7]]), 4)[0]
    assert found.nonzero().tolist() == [[2, 1]]
    assert float(found[2, 1]) == pytest.approx(0.7)
