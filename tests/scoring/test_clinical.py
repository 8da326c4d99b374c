"""Clinical efficacy against scikit-learn and hand calculations."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, precision_recall_fscore_support

from rightlung.core import InputError
from rightlung.lexicon import swap_sides
from rightlung.lexicon.labeller import OBSERVATIONS
from rightlung.scoring.clinical import (
    averaged,
    class_scores,
    example_f1,
    of_classes,
    positive_observations,
    score,
    sided_findings,
)

RNG = np.random.default_rng(2)
TRUE = (RNG.random((40, 6)) < 0.3).astype(float)
CALLED = np.where(RNG.random((40, 6)) < 0.7, TRUE, 1 - TRUE)
COUNTS = RNG.integers(0, 3, (2, 40)).astype(float)
REPORTS = ["Small left pleural effusion.", "Moderate cardiomegaly. Right basal atelectasis.", "Lungs are clear."]


def test_scores_of_classes_are_scikit_learns_and_counts_are_repetitions() -> None:
    found = class_scores(CALLED, TRUE, COUNTS)
    for row, counts in enumerate(COUNTS):
        called, true = (np.repeat(part, counts.astype(int), axis=0) for part in (CALLED, TRUE))
        expected = precision_recall_fscore_support(true, called, zero_division=0.0)
        for own, values in zip((found["precision"], found["recall"], found["f1"]), expected[:3], strict=True):
            assert own[row] == pytest.approx(values)
        mcc = [matthews_corrcoef(true[:, k], called[:, k]) for k in range(6)]
        assert found["mcc"][row] == pytest.approx(mcc)
        for average in ("micro", "macro"):
            expected_f1 = f1_score(true, called, average=average)
            assert averaged(CALLED, TRUE, COUNTS, average)[row] == pytest.approx(expected_f1)
        expected_f1 = f1_score(true, called, average="samples", zero_division=0.0)
        assert example_f1(CALLED, TRUE, COUNTS)[row] == pytest.approx(expected_f1)
        pooled = matthews_corrcoef(true.ravel(), called.ravel())
        assert averaged(CALLED, TRUE, COUNTS, "micro", "mcc")[row] == pytest.approx(pooled)


def test_a_constant_answer_has_mcc_zero_and_a_class_without_positives_is_left_out() -> None:
    true = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    called = np.array([[1.0, 1.0, 0.0]] * 2)
    found = of_classes(called, true, ["a", "b", "c"])
    assert found["a"] == pytest.approx({"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "mcc": 0.0, "positives": 1.0})
    assert np.isnan([found["b"][name] for name in ("precision", "recall", "f1", "mcc")]).all()
    assert np.isnan(found["c"]["mcc"])
    once = np.ones((1, 2))
    assert averaged(called, true, once, "macro")[0] == pytest.approx((2 / 3 + 0) / 2)
    assert averaged(called, true, once, "micro")[0] == pytest.approx(2 * 1 / (4 + 3))
    assert averaged(called, true, once, "macro", "mcc")[0] == 0.0


def test_references_score_best_against_themselves_and_exchanged_sides_cost_only_the_sided_score() -> None:
    same = score(REPORTS, REPORTS)
    assert {same.averages[group][f"{kind}_f1"] for group in ("14", "13", "5") for kind in ("micro", "macro")} == {1.0}
    assert same.averages["14"]["example_f1"] == 1.0
    assert same.pairs == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "pairs": 2.0}
    swapped = score([swap_sides(text) for text in REPORTS], REPORTS)
    assert (swapped.averages, swapped.pairs["f1"]) == (same.averages, 0.0)


def test_uncertain_findings_count_as_the_policy_says() -> None:
    text = "Possible left pleural effusion. No edema."
    assert positive_observations(text) == ()
    assert positive_observations(text, "positive") == ("Pleural Effusion",)
    assert (sided_findings(text), sided_findings(text, "positive")) == ((), ("left pleural effusion",))
    found = score([text], ["Left pleural effusion."], uncertain="positive")
    assert (found.averages["5"]["micro_f1"], found.uncertain) == (1.0, "positive")
    assert score([text], ["Left pleural effusion."]).averages["5"]["micro_f1"] == 0.0
    with pytest.raises(InputError, match="policy for uncertain findings 'maybe'"):
        positive_observations(text, "maybe")


def test_no_finding_carries_averages_over_14_and_not_over_13() -> None:
    found = score(["The lungs are clear."] * 3, REPORTS)
    assert set(found.classes) == set(OBSERVATIONS)
    assert found.averages["14"]["micro_f1"] == pytest.approx(2 * 1 / (3 + 4))
    assert found.averages["13"]["micro_f1"] == found.averages["13"]["macro_mcc"] == 0.0
