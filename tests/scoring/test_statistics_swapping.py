"""The swap test of statistics that are no means, against SciPy's permutation test and all swaps by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from rightlung.scoring.recognition import SortedScores
from rightlung.scoring.statistics import swap_test

GENERATOR = np.random.default_rng(5)
LABELS = np.array([1, 0, 1, 0, 0, 1, 1, 0, 1, 0], np.float64)
FIRST = (LABELS + GENERATOR.normal(size=10)).round(2)
SECOND = (0.2 * LABELS + GENERATOR.normal(size=10)).round(2)


def pooled(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return SortedScores(np.concatenate([FIRST, SECOND]), np.tile(LABELS, 2)).auroc(weights)


def test_the_p_value_of_two_aurocs_equals_scipys_permutation_test() -> None:
    p, exact = swap_test(pooled, range(10), flips=2000)
    theirs = stats.permutation_test(
        (FIRST, SECOND), lambda x, y: roc_auc_score(LABELS, x) - roc_auc_score(LABELS, y), permutation_type="samples"
    )
    assert exact
    assert p == pytest.approx(theirs.pvalue, abs=1e-12)


def test_all_results_of_a_patient_are_swapped_together() -> None:
    patients = np.repeat(["a", "b", "c", "d", "e"], 2)
    differences = []
    for swapped in itertools.product((False, True), repeat=5):
        where = np.repeat(swapped, 2)
        one, two = np.where(where, SECOND, FIRST), np.where(where, FIRST, SECOND)
        differences.append(roc_auc_score(LABELS, one) - roc_auc_score(LABELS, two))
    expected = np.mean(np.abs(differences) >= abs(differences[0]) - 1e-12)
    p, exact = swap_test(pooled, patients)
    assert exact
    assert p == pytest.approx(expected)


def test_random_swaps_come_near_all_swaps_and_never_give_zero() -> None:
    all_swaps, _ = swap_test(pooled, range(10), flips=2000)
    some, exact = swap_test(pooled, range(10), flips=1000, seed=3)
    assert not exact
    assert some == pytest.approx(all_swaps, abs=4 * np.sqrt(all_swaps * (1 - all_swaps) / 1000))
    better = LABELS + np.linspace(0, 0.1, 10)
    far = SortedScores(np.concatenate([better, -better]), np.tile(LABELS, 2))
    assert swap_test(far.auroc, range(10), flips=500)[0] >= 1 / 501


def test_an_undefined_statistic_has_no_p_value() -> None:
    p, exact = swap_test(lambda weights: np.full(len(weights), np.nan), range(4))
    assert np.isnan(p)
    assert not exact
