"""Calibration of finding scores: against hand calculation, scikit-learn and simulated coverage."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from rightlung import open_source
from rightlung.core import InputError
from rightlung.measuring.calibrating import Rules, Scored, calibrate_findings, scored, share
from rightlung.models.finding_calibration import fit_curve, keep_threshold, operating_threshold
from rightlung.predictions import Batch, Prediction
from rightlung.predictions.prediction import IMAGE_QUERY

FIT, TEST = open_source("phantom?count=2&seed=1&size=64"), open_source("phantom?count=2&seed=2&size=64")


def drawn(seed: int, studies: int, power: float, name: str) -> Scored:
    """Return scores whose true probability is score ** power, two studies of each patient."""
    generator = np.random.default_rng(seed)
    scores = generator.random(studies)
    patients = np.array([f"{name}-{place // 2}" for place in range(studies)])
    return Scored(patients, scores, generator.random(studies) < scores**power)


def test_the_curve_is_isotonic_with_enough_studies_and_recovers_the_probability() -> None:
    many = drawn(1, 6000, 2, "a")
    curve, grid = fit_curve(many.scores, many.present), np.linspace(0.05, 0.95, 19)
    assert curve.method == "isotonic"
    assert np.abs(curve.probabilities(grid) - grid**2).max() < 0.08
    expected = IsotonicRegression().fit(many.scores, many.present).predict(grid)
    assert np.abs(curve.probabilities(grid) - expected).max() < 2e-4  # never 0 or 1
    few = drawn(2, 150, 1, "a")
    assert fit_curve(few.scores, few.present).method == "platt"
    odd = fit_curve(few.scores * 4 - 2, few.present)  # no probabilities: no log-odds
    assert (np.diff(odd.probabilities([-2, 0, 2])) > 0).all()


def test_thresholds_are_those_of_a_count_by_hand() -> None:
    scores, present = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]), np.array([0, 0, 1, 0, 0, 1, 1], bool)
    sums = {t: (scores >= t)[present].mean() + (scores < t)[~present].mean() for t in scores.tolist()}
    assert operating_threshold(scores, present) == max(sums, key=lambda one: sums[one]) == 0.6
    assert operating_threshold(scores, present, 0.9) == 0.3
    assert operating_threshold(scores, present, 0.6) == 0.6
    assert keep_threshold([1, 2, 3, 4, 5, 6, 7, 8, 9], 0.9) == 1
    assert keep_threshold([1, 2, 3, 4, 5, 6, 7, 8], 0.9) is None


def test_what_is_present_is_kept_with_the_promised_probability() -> None:
    generator, kept = np.random.default_rng(3), []
    for _ in range(4000):
        *some, new = generator.beta(2, 5, 31)
        threshold = keep_threshold(some, 0.8)
        assert threshold is not None
        kept.append(new >= threshold)
    assert np.mean(kept) == pytest.approx(1 - 6 / 31, abs=0.02)  # floor(31 · 0.2) = 6: at least 0.8


def test_a_finding_is_measured_on_the_other_patients() -> None:
    fitted, tested = drawn(4, 800, 1, "a"), drawn(5, 1200, 1, "b")
    found = calibrate_findings(FIT, {"edema": fitted}, TEST, {"edema": tested}, Rules(sensitivity=0.8))
    one = found.findings["edema"]
    probabilities = one.curve.probabilities(tested.scores)
    assert one.brier[0] == pytest.approx(brier_score_loss(tested.present, probabilities), abs=1e-4)
    base = np.full(len(tested.scores), fitted.present.mean())
    assert one.brier_blind[0] == pytest.approx(brier_score_loss(tested.present, base), abs=1e-4)
    assert one.brier[2] < one.brier_blind[1]
    above = tested.scores >= one.threshold
    assert one.sensitivity[0] == pytest.approx(above[tested.present].mean(), abs=1e-4)
    assert one.specificity[0] == pytest.approx((~above)[~tested.present].mean(), abs=1e-4)
    assert 0.75 < one.sensitivity[0] < 0.85
    assert one.kept[1] < 0.9 < one.kept[2]
    assert sum(count for count, *_ in found.reliability) == 1200
    said = one.reading(one.threshold)
    assert (said["present"], said["excluded"]) == (True, False)
    assert one.keep_threshold is not None
    assert one.reading(one.keep_threshold - 1e-9)["excluded"] is True
    assert replace(one, keep_threshold=0.99).reading(one.threshold)["excluded"] is False  # present is never excluded


def test_what_cannot_be_calibrated_is_left_out_with_a_reason() -> None:
    good, rare, wrong = drawn(6, 400, 1, "a"), drawn(7, 400, 60, "a"), drawn(8, 400, 1, "a")
    wrong = wrong._replace(present=~wrong.present)
    tested: dict[str, Any] = dict.fromkeys(("good", "rare", "wrong"), drawn(9, 400, 1, "b"))
    found = calibrate_findings(FIT, {"good": good, "rare": rare, "wrong": wrong}, TEST, tested, Rules())
    assert [*found.findings] == ["good"]
    assert "are needed" in found.left_out["rare"]
    assert "does not rank" in found.left_out["wrong"]
    with pytest.raises(InputError, match="patients are also in"):
        calibrate_findings(FIT, {"good": good}, TEST, {"good": good}, Rules())
    with pytest.raises(InputError, match="--keep"):
        Rules(keep=1)


def test_one_study_of_each_patient_counts_and_shares_of_all_have_an_interval() -> None:
    some = drawn(10, 400, 1, "a")
    each = some.drawn(True, "edema")
    assert len(each.patients) == len(set(some.patients[some.present])) == len(set(each.patients))
    assert each.present.all()
    assert share([True] * 6, ["a", "b", "c", "d", "e", "e"]) == (1.0, round(0.025**0.2, 4), 1.0)


def test_labels_that_are_missing_are_negative_only_if_wished() -> None:
    rows = [Prediction(one.id, IMAGE_QUERY, finding_scores={"edema": 0.3, "hernia": 0.1}) for one in FIT]
    found = scored(FIT, [Batch.of(rows)], "unknown")
    assert [*found] == ["edema", "hernia"]  # the phantom knows what is absent
    truth = [str(one.findings["edema"]) == "positive" for one in FIT]
    assert found["edema"].present.tolist() == truth
