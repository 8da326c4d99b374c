"""Matching and the losses of matched boxes (supp. D.2, Eq. 4 and 5) against calculations by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from rightlung.core import Box
from rightlung.models.boxes import generalized_iou, to_centres, to_corners
from rightlung.models.chex.matching import box_loss, focal_loss, match_boxes, matching_cost


@pytest.mark.parametrize(
    ("costs", "targets", "first"),
    [
        ([[3.0], [1.0], [2.0]], [0, 0, 0], [False, True, False]),
        ([[3.0, 9.0], [1.0, 2.0], [2.0, 8.0]], [0, 1, 0], [False, True, True]),
        ([[1.0, 9.0], [2.0, 9.0], [9.0, 3.0]], [0, 0, 1], [True, False, True]),
        ([[5.0, 1.0, 7.0, 6.0], [4.0, 2.0, 9.0, 9.0], [8.0, 3.0, 9.0, 2.0]], [1, 0, 3], [True, True, True]),
    ],
    ids=["1 target", "2 targets, the better sum wins", "2 targets, one left over", "4 targets"],
)
def test_every_box_is_matched_and_the_first_round_is_known(
    costs: list[list[float]], targets: list[int], first: list[bool]
) -> None:
    """The second case: 3 + 2 and 2 + 2 use both targets; 2 + 2 is less, so box 0 is left for the second round."""
    found = match_boxes(torch.tensor([costs, costs[::-1]]))
    assert [one.tolist() for one in found] == [[targets, targets[::-1]], [first, first[::-1]]]


def test_the_first_round_has_the_lowest_sum_of_all_pairings() -> None:
    random = np.random.default_rng(0)
    for boxes, count in itertools.product((1, 2, 3, 5, 7), (2, 3, 4, 5)):
        costs = random.random((boxes, count))
        targets, first = (one[0].tolist() for one in match_boxes(torch.tensor(costs)[None]))
        found = sum(costs[row, targets[row]] for row in range(boxes) if first[row])
        pairs = min(boxes, count)
        lowest = min(
            sum(costs[row, column] for row, column in zip(rows, columns, strict=True))
            for rows in itertools.combinations(range(boxes), pairs)
            for columns in itertools.permutations(range(count), pairs)
        )
        assert sum(first) == pairs
        assert found == pytest.approx(lowest)


def test_the_generalised_iou_is_that_of_the_core() -> None:
    corners = np.sort(np.random.default_rng(1).random((40, 2, 2)), axis=1).reshape(40, 4)
    pairs = torch.tensor(corners).view(20, 2, 4)
    expected = [Box(*one.tolist()).giou(Box(*other.tolist())) for one, other in pairs]
    assert generalized_iou(pairs[:, 0], pairs[:, 1]).tolist() == pytest.approx(expected)


def test_the_box_loss_by_hand() -> None:
    """Boxes [0, 0.4] x [0, 0.4] and [0.2, 0.6] x [0, 0.4]: they share 0.08 of 0.24, which is also their hull."""
    one, other = torch.tensor([0.2, 0.2, 0.4, 0.4]), torch.tensor([0.4, 0.2, 0.4, 0.4])
    assert float(box_loss(one, other)) == pytest.approx(5 * 0.2 + 2 * (1 - 1 / 3))
    assert float(box_loss(one, one)) == pytest.approx(0, abs=1e-6)
    # Apart: [0, 0.2] and [0.8, 1] in both directions, 0.08 of a hull of 1; gIoU is 0 - 0.92.
    apart = torch.tensor([0.1, 0.1, 0.2, 0.2]), torch.tensor([0.9, 0.9, 0.2, 0.2])
    assert float(box_loss(*apart)) == pytest.approx(5 * 1.6 + 2 * 1.92)
    torch.testing.assert_close(to_centres(to_corners(apart[1])), apart[1])


def test_a_believed_box_is_matched_first() -> None:
    """Eq. 5 is minimised, so probability and score are subtracted: the last of three equal boxes has both."""
    boxes, target = torch.full((3, 4), 0.5), torch.full((1, 4), 0.5)
    probabilities, scores = torch.tensor([0.1, 0.2, 0.9]), torch.tensor([0.5, 0.1, 0.6])
    cost = matching_cost(boxes, target, probabilities, scores)
    assert cost[:, 0].tolist() == pytest.approx([-0.1 - 1.5, -0.2 - 0.3, -0.9 - 1.8], abs=1e-6)
    assert match_boxes(cost[None])[1].tolist() == [[False, False, True]]


def test_the_focal_loss_by_hand_with_an_alpha_for_each_prompt() -> None:
    """Two images, two prompts, two boxes; the second image does not know the second prompt.

    Prompt 0 has 1 positive among 4: weights 5 / 2 and 5 / 4, so alpha = 2 / 3. Prompt 1 has none among 2: weights 3 / 1
    and 3 / 3, so alpha = 3 / 4.
    """
    scores = torch.tensor([[[0.9, 0.2], [0.3, 0.4]], [[0.6, 0.1], [0.5, 0.5]]])
    targets = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    known = torch.tensor([[True, True], [True, False]])
    found = focal_loss(scores, targets, known)
    expected = {
        (0, 0, 0): 2 / 3 * 0.1**2 * -math.log(0.9),
        (0, 0, 1): 1 / 3 * 0.2**2 * -math.log(0.8),
        (0, 1, 0): 1 / 4 * 0.3**2 * -math.log(0.7),
        (1, 0, 0): 1 / 3 * 0.6**2 * -math.log(0.4),
    }
    for place, value in expected.items():
        assert float(found[place]) == pytest.approx(value, rel=1e-4)
