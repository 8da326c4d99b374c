from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from rightlung.scoring.selective import RiskCoverage

CONFIDENCE = np.array([0.9, 0.5, 0.5, 0.5, 0.1, 0.1])
LOSS = np.array([1.0, 0.0, 1.0, 0.25, 0.0, 1.0])


def by_hand(confidence: list[float], loss: list[float]) -> tuple[float, list[float]]:
    """Average the risks over all orders that the confidences allow."""
    orders = [o for o in permutations(range(len(loss))) if all(confidence[a] >= confidence[b] for a, b in pairwise(o))]
    risks = [[sum(loss[n] for n in o[:k]) / k for k in range(1, len(loss) + 1)] for o in orders]
    return float(np.mean(risks)), np.mean(risks, axis=0).tolist()


def test_area_and_risks_are_the_mean_over_all_orders_of_tied_answers() -> None:
    answers, (area, risks) = RiskCoverage(CONFIDENCE, LOSS), by_hand(CONFIDENCE.tolist(), LOSS.tolist())
    once = np.ones((1, 6))
    assert answers.area(once) == pytest.approx([area])
    assert [answers.risk(once, k / 6)[0] for k in range(1, 7)] == pytest.approx(risks)


def test_the_area_of_three_answers_by_hand() -> None:
    # Sorted by confidence, the losses are 0, 1, 0: risks 0, 1/2, 1/3, whose mean is 5/18.
    assert RiskCoverage(np.array([1.0, 3.0, 2.0]), np.array([0.0, 0.0, 1.0])).area(np.ones((1, 3))) == pytest.approx(
        [5 / 18]
    )


def test_counts_repeat_and_leave_out_answers() -> None:
    counts = np.array([[2, 0, 1, 1, 0, 1], [0, 0, 0, 0, 3, 1], [0, 0, 0, 0, 0, 0]], float)
    found, answers = RiskCoverage(CONFIDENCE, LOSS).area(counts), RiskCoverage(CONFIDENCE, LOSS)
    for row, area in zip(counts[:2].astype(int), found, strict=False):
        expected, risks = by_hand(np.repeat(CONFIDENCE, row).tolist(), np.repeat(LOSS, row).tolist())
        assert area == pytest.approx(expected)
        assert answers.risk(row[None].astype(float), 1.0) == pytest.approx([risks[-1]])
        assert answers.risk(row[None].astype(float), 1 / row.sum()) == pytest.approx([risks[0]])
    assert np.isnan(found[2])


def test_equal_confidences_give_the_mean_loss_at_every_coverage() -> None:
    answers = RiskCoverage(np.zeros(4), np.array([1.0, 0.0, 0.0, 1.0]))
    assert answers.area(np.ones((1, 4))) == pytest.approx([0.5])
    assert answers.risk(np.ones((1, 4)), 0.25) == pytest.approx([0.5])
