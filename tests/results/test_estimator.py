"""Estimates of many columns against single calls of scoring.statistics, SciPy and hand calculations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Deferred, Estimator
from rightlung.scoring import recognition
from rightlung.scoring.statistics import bootstrap, paired_difference, pearson, spearman

SETTINGS = BootstrapSettings(resamples=300, seed=3, flips=2000)
GENERATOR = np.random.default_rng(0)
PATIENTS = [f"patient {number}" for number in GENERATOR.integers(0, 25, 120)]
COLUMNS = GENERATOR.normal(0.2, 1, (6, 120))
COLUMNS[1, GENERATOR.random(120) < 0.3] = np.nan
COLUMNS[2, 5:] = np.nan
COLUMNS[3] = np.nan
COLUMNS[4] = 0.5


@pytest.fixture
def estimator() -> Estimator:
    return Estimator(PATIENTS, SETTINGS)


def of_rows(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def test_each_mean_is_that_of_a_single_bootstrap_in_any_order_of_the_instances(estimator: Estimator) -> None:
    for column, found in zip(COLUMNS, estimator.means(list(COLUMNS)), strict=True):
        alone = Estimate.of(bootstrap(column, clusters=PATIENTS, resamples=300, seed=3))
        assert found == alone or (math.isnan(found.value) and found.reason == alone.reason)
    assert estimator.means([]) == []
    assert estimator.mean(COLUMNS[0]).patients == len(set(PATIENTS))
    order = np.random.default_rng(2).permutation(120)
    other = Estimator([PATIENTS[place] for place in order], SETTINGS)
    for found, again in zip(estimator.means(list(COLUMNS)), other.means([c[order] for c in COLUMNS]), strict=True):
        assert of_rows(found) == pytest.approx(of_rows(again), abs=1e-12, nan_ok=True)


def test_each_difference_is_that_of_a_single_comparison_also_when_it_is_deferred(estimator: Estimator) -> None:
    firsts, seconds = [COLUMNS[0], COLUMNS[1], COLUMNS[2]], [COLUMNS[5], COLUMNS[0], COLUMNS[4]]
    for first, second, found in zip(firsts, seconds, estimator.differences(firsts, seconds), strict=True):
        alone = paired_difference(first, second, clusters=PATIENTS, resamples=300, flips=2000, seed=3)
        assert found == Comparison.tested(alone, alone.p, alone.smallest_p)
        assert found.p == estimator.p_values([first - second])[0]
    assert estimator.difference(COLUMNS[0], COLUMNS[5]) == estimator.differences(firsts, seconds)[0]
    deferred = Deferred(estimator)
    means, difference = [deferred.mean(column) for column in COLUMNS[:3]], deferred.difference(COLUMNS[0], COLUMNS[5])
    assert [one() for one in means] == estimator.means(list(COLUMNS[:3]))
    assert difference() == estimator.difference(COLUMNS[0], COLUMNS[5])


def test_the_sign_flip_p_value_of_few_patients_is_that_of_scipys_permutation_test() -> None:
    values = np.random.default_rng(5).normal(0.8, 1, 9)
    expected = stats.permutation_test((values, np.zeros(9)), lambda x, y: np.mean(x - y), permutation_type="samples")
    assert Estimator(range(9), SETTINGS).p_values([values, np.full(9, np.nan)])[0] == pytest.approx(expected.pvalue)


def test_holm_counts_only_what_is_a_test(estimator: Estimator) -> None:
    given = [Comparison(1.0, 0.5, 1.5, p=p, shown=True) for p in (0.015, 0.02, 0.04, 0.9)]
    found = estimator.adjusted(given, [True, True, True, False])
    assert [one.p_adjusted for one in found] == [pytest.approx(0.045)] * 3 + [None]  # 3 · 0.015, and no less after
    assert [one.shown for one in found] == [True, True, True, False]
    assert not any(one.shown for one in estimator.adjusted(given))  # 4 · 0.015
    assert estimator.adjusted([]) == []


def test_a_contrast_of_disjoint_groups_is_the_difference_of_their_means(estimator: Estimator) -> None:
    inside = GENERATOR.random(120) < 0.5
    first, second = (np.where(flags, COLUMNS[0], np.nan) for flags in (inside, ~inside))
    found = estimator.contrast(first, second)
    assert found.value == pytest.approx(COLUMNS[0][inside].mean() - COLUMNS[0][~inside].mean())
    assert found.low < found.value < found.high
    together = estimator.contrast(COLUMNS[0], COLUMNS[5])  # defined everywhere, it is the paired difference
    assert of_rows(together) == pytest.approx(of_rows(estimator.difference(COLUMNS[0], COLUMNS[5])), abs=1e-12)
    assert estimator.contrast(COLUMNS[3], COLUMNS[3]).value != 0


def test_all_pairs_of_correlations_are_those_of_single_calls(estimator: Estimator) -> None:
    values = {"a": COLUMNS[0], "b": COLUMNS[1], "c": COLUMNS[5], "flat": COLUMNS[4]}
    found = estimator.correlations(values)
    assert list(found) == [("a", "b"), ("a", "c"), ("a", "flat"), ("b", "c"), ("b", "flat"), ("c", "flat")]
    for (x, y), one in found.items():
        alone = pearson(values[x], values[y], clusters=PATIENTS, resamples=300, seed=3)
        assert of_rows(one) == pytest.approx((alone.estimate, alone.low, alone.high), nan_ok=True, abs=0)
        assert (one.n, one.patients) == (alone.n, alone.clusters)
    assert "flat is constant" in (found["a", "flat"].reason or "")


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_a_correlation_has_a_test(estimator: Estimator, kind: str) -> None:
    x = COLUMNS[1]
    y = np.where(np.isnan(x), COLUMNS[0], x + COLUMNS[5])
    found = estimator.correlation(x, y, kind)  # type: ignore[arg-type]
    used = ~np.isnan(x)
    expected = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[kind](x[used], y[used])
    assert found.value == pytest.approx(expected.statistic)
    single = {"pearson": pearson, "spearman": spearman}[kind](x, y, clusters=PATIENTS, resamples=300, seed=3)
    assert (found.low, found.high) == (single.low, single.high)
    assert found.p == pytest.approx(1 / 2001)
    assert found.shown
    unrelated, undefined = (estimator.correlation(x, COLUMNS[place], kind) for place in (0, 4))  # type: ignore[arg-type]
    assert (unrelated.p > 0.05, math.isnan(undefined.p)) == (True, True)
    assert (unrelated.shown, undefined.shown) == (False, False)


def test_two_correlations_with_the_same_values_are_contrasted(estimator: Estimator) -> None:
    first, second = COLUMNS[0] + COLUMNS[5], COLUMNS[0] - COLUMNS[5]
    found = estimator.correlation_contrast(COLUMNS[0], first, second)
    expected = stats.pearsonr(COLUMNS[0], first).statistic - stats.pearsonr(COLUMNS[0], second).statistic
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high
    assert not estimator.correlation_contrast(COLUMNS[0], first, COLUMNS[4]).defined


def test_the_ranking_of_columns_by_their_means_is_spearmans(estimator: Estimator) -> None:
    firsts = [COLUMNS[0] + shift for shift in (0.0, 1.0, 0.5, 0.5)]
    seconds = [COLUMNS[1] + shift for shift in (0.0, 3.0, 5.0, 4.0)]
    found = estimator.rank_correlation(firsts, seconds)
    assert found.value == pytest.approx(stats.spearmanr([0, 1, 0.5, 0.5], [0, 3, 5, 4]).statistic)
    assert found.low == found.high == pytest.approx(found.value)  # no resample changes the order


def test_an_aggregate_that_is_no_mean_equals_its_own_bootstrap(estimator: Estimator) -> None:
    labels = (COLUMNS[5] > 0).astype(np.float64)
    used = ~np.isnan(COLUMNS[1])

    def auroc(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        scores, truth = COLUMNS[1][used], labels[used] > 0
        above = (scores[truth][:, None] > scores[~truth]) + 0.5 * (scores[truth][:, None] == scores[~truth])
        pairs = np.einsum("rp,pn,rn->r", counts[:, truth], above, counts[:, ~truth])
        return np.asarray(pairs / (counts[:, truth].sum(axis=1) * counts[:, ~truth].sum(axis=1)))

    kept = [patient for patient, flag in zip(PATIENTS, used, strict=True) if flag]
    alone = recognition.interval(COLUMNS[1][used], labels[used], "auroc", clusters=kept, resamples=300, seed=3)
    assert of_rows(estimator.aggregate(auroc, used)) == pytest.approx((alone.estimate, alone.low, alone.high))


def test_a_comparison_of_too_few_patients_cannot_be_told() -> None:
    for patients, verdict in ((5, "too few patients to tell"), (6, "no difference shown")):
        values = np.full(patients, 0.25) + np.arange(patients) / 100
        estimator = Estimator(range(patients), SETTINGS)
        found = estimator.difference(values * (-1) ** np.arange(patients), np.zeros(patients))
        assert (found.patients, found.verdict) == (patients, verdict)
    assert estimator.difference(values, np.zeros(6)).verdict == "difference shown"  # p = 2 / 64
    assert found.as_json()["verdict"] == "no difference shown"


def test_holms_correction_can_leave_too_few_patients_to_tell() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, (7, 8))
    values -= values.mean(axis=1, keepdims=True)  # nothing to show in any of seven tests of eight patients
    estimator = Estimator(range(8), SETTINGS)
    alone = estimator.differences(list(values), [np.zeros(8)] * 7)
    assert {(one.smallest_p, one.verdict) for one in alone} == {(2 / 2**8, "no difference shown")}
    together = estimator.adjusted(alone)
    assert [one.smallest_p for one in together] == pytest.approx([7 * 2 / 2**8] * 7)  # 0.055
    assert {one.verdict for one in together} == {"too few patients to tell"}
    assert together[0].as_json() | {"verdict": None} != alone[0].as_json() | {"verdict": None}
    clear = estimator.differences([values[0], np.arange(1.0, 9.0)], [np.zeros(8)] * 2)
    first, second = estimator.adjusted(clear)
    assert (first.verdict, second.verdict) == ("no difference shown", "difference shown")
    assert (first.smallest_p, second.smallest_p) == pytest.approx((2 * 2 / 2**8, 2 * 2 / 2**8))
    untested, _ = estimator.adjusted(clear, [False, True])
    assert untested.verdict == "too few patients to tell"


def test_an_interval_of_fewer_than_ten_patients_warns() -> None:
    for patients in (3, 9, 10):
        found = Estimator(range(patients), SETTINGS).mean(np.arange(float(patients)))
        warning = f"only {patients} patients: the interval is unreliable" if patients < 10 else None
        assert (found.patients, found.warning) == (patients, warning)
        assert found.as_json().get("warning") == warning
    assert Estimator(["a", "a"], SETTINGS).mean(np.array([0.0, 1.0])).warning is None  # no interval at all
