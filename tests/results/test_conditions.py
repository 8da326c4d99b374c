"""The model against a baseline under two conditions: the test is that of a hand calculation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from rightlung.results.conditions import compare_conditions
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.scoring.statistics import fewest_clusters, smallest_p


def compared(model: list[float], other: list[float], name: str = "average_precision") -> Comparison:
    """Return the comparison of scores, one for each patient, whose rows are in different orders."""
    count = len(model)
    rows = [("none", number, model[number]) for number in range(count)]
    rows += [("blind", number, other[number]) for number in reversed(range(count))]
    columns = {
        "condition": [row[0] for row in rows], "study": [f"s{row[1]}" for row in rows],
        "patient": [f"p{row[1]}" for row in rows], "query": ["phrase:0"] * len(rows), "target": ["own"] * len(rows),
        "finding_score": [row[2] for row in rows], "finding_label": [float(row[1] % 2) for row in rows],
        "average_precision": [row[2] for row in rows],
    }  # fmt: skip
    return compare_conditions(pa.table(columns), name, "none", "blind", BootstrapSettings(4096))


def test_the_clearest_difference_needs_six_patients() -> None:
    for count, verdict in ((2, "too few patients to tell"), (5, "too few patients to tell"), (6, "difference shown")):
        found = compared([0.9 - number / 100 for number in range(count)], [0.2] * count)
        assert found.excludes(0.0)
        assert found.p == found.smallest_p == 2.0 ** (1 - count)  # this pattern of signs, and its opposite
        assert found.verdict == verdict


def test_the_p_value_of_a_mean_counts_all_patterns_of_signs() -> None:
    model, other = [0.8, 0.6, 0.9, 0.5, 0.7, 0.4, 0.6, 0.9], [0.5, 0.7, 0.4, 0.3, 0.6, 0.5, 0.2, 0.6]
    gains = np.subtract(model, other)
    flipped = [abs(np.dot(gains, signs)) for signs in product((1, -1), repeat=8)]
    found = compared(model, other)
    assert found.value == pytest.approx(gains.mean())
    assert found.p == pytest.approx(np.mean(np.array(flipped) >= gains.sum() - 1e-9))


def test_the_p_value_of_an_auroc_counts_all_swaps_of_patients() -> None:
    from sklearn.metrics import roc_auc_score

    model, other = [0.1, 0.9, 0.3, 0.4, 0.2, 0.7, 0.6, 0.8], [30.0, 20.0, 80.0, 10.0, 50.0, 70.0, 60.0, 40.0]
    present = np.arange(8) % 2
    ranked = np.argsort(np.argsort([model, other], axis=1), axis=1)  # the scales of two models do not matter
    differences = []
    for swapped in product((0, 1), repeat=8):
        first, second = (np.where(np.array(swapped) == side, *ranked) for side in (0, 1))
        differences.append(roc_auc_score(present, first) - roc_auc_score(present, second))
    found = compared(model, other, "finding_auroc")
    assert found.value == pytest.approx(roc_auc_score(present, model) - roc_auc_score(present, other))
    assert found.p == pytest.approx(np.mean(np.abs(differences) >= abs(found.value) - 1e-9))


def test_the_fewest_patients_are_those_with_which_the_smallest_p_value_is_significant() -> None:
    for level in (0.8, 0.9, 0.9375, 0.95, 0.99):
        fewest = fewest_clusters(level)
        assert smallest_p(fewest, 2**fewest) < 1 - level <= smallest_p(fewest - 1, 2**fewest)
