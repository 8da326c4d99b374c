"""Paired differences against SciPy's permutation test, hand calculations and simulation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rightlung.core.errors import InputError
from rightlung.scoring.recognition import auroc
from rightlung.scoring.statistics import (
    bootstrap,
    paired_difference,
    paired_differences,
    pearson,
    sign_flip_test,
    smallest_p,
)


def test_the_interval_is_that_of_the_differences() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random(30), generator.random(30)
    patients = np.arange(30) // 2
    result = paired_difference(a, b, clusters=patients, resamples=500, seed=3)
    expected = bootstrap(a - b, clusters=patients, resamples=500, seed=3)
    assert (result.estimate, result.low, result.high) == (expected.estimate, expected.low, expected.high)
    assert (result.first, result.second) == pytest.approx((a.mean(), b.mean()))


def test_an_exact_p_value_equals_scipys_paired_permutation_test() -> None:
    generator = np.random.default_rng(1)
    a = generator.random(9)
    b = a - 0.1 + 0.2 * generator.random(9)
    result = paired_difference(a, b, resamples=1000)
    theirs = stats.permutation_test(
        (a, b), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True
    )
    assert result.exact
    assert result.p == pytest.approx(theirs.pvalue, abs=1e-12)


def test_all_instances_of_a_patient_are_flipped_together() -> None:
    generator = np.random.default_rng(2)
    a, b = generator.random(12) + 0.2, generator.random(12)
    patients = np.repeat(["x", "y", "z", "w"], 3)
    result = paired_difference(a, b, clusters=patients, resamples=100)
    sums = [float((a - b)[patients == patient].sum()) for patient in ("x", "y", "z", "w")]
    flipped = [
        abs(sum(sign * one for sign, one in zip(signs, sums, strict=True)))
        for signs in itertools.product((1, -1), repeat=4)
    ]
    assert result.p == pytest.approx(np.mean([total >= abs(sum(sums)) - 1e-12 for total in flipped]))
    assert result.p >= 2 / 16


def test_a_drawn_p_value_comes_near_the_exact_one_and_is_never_zero() -> None:
    generator = np.random.default_rng(3)
    d = generator.normal(0.35, 1, 14)
    exact = paired_difference(d, np.zeros(14), resamples=20_000)
    drawn = paired_difference(d, np.zeros(14), resamples=8_000)
    assert exact.exact
    assert not drawn.exact
    assert drawn.p == pytest.approx(exact.p, abs=5 * math.sqrt(exact.p * (1 - exact.p) / 8_000))
    sure = paired_difference(np.ones(50) + 0.01 * d.mean(), 0.01 * generator.random(50), resamples=200)
    assert sure.p == pytest.approx(1 / 201)


def test_swapping_the_sides_mirrors_the_difference() -> None:
    generator = np.random.default_rng(4)
    a, b = generator.random(40), generator.random(40) - 0.1
    one = paired_difference(a, b, resamples=400, method="percentile")
    other = paired_difference(b, a, resamples=400, method="percentile")
    assert (other.estimate, other.low, other.high) == pytest.approx((-one.estimate, -one.high, -one.low))
    assert other.p == one.p
    assert other.shown == one.shown


def test_pairs_undefined_on_either_side_are_left_out_and_counted() -> None:
    generator = np.random.default_rng(5)
    a, b = generator.random(20), generator.random(20)
    a[3], b[7], b[3] = np.nan, np.nan, np.nan
    keep = np.setdiff1d(np.arange(20), [3, 7])
    held = paired_difference(a, b, resamples=300)
    bare = paired_difference(a[keep], b[keep], resamples=300)
    assert (held.low, held.high, held.p, held.first, held.n) == (bare.low, bare.high, bare.p, bare.first, 18)
    assert held.undefined == 2


def test_sentences_say_first_whether_a_difference_is_shown() -> None:
    generator = np.random.default_rng(6)
    b = generator.random(60)
    better = paired_difference(b + 0.3 + 0.1 * generator.random(60), b, resamples=1000, clusters=np.arange(60) // 2)
    assert better.shown
    assert better.sentence().startswith("difference shown: +0.3")
    assert better.sentence().endswith("60 pairs, 30 clusters)")
    same = paired_difference(b, b[::-1], resamples=1000)
    assert not same.shown
    assert same.sentence().startswith("no difference shown: ")
    equal = paired_difference(b, b, resamples=100)
    assert (equal.low, equal.high, equal.p, equal.shown) == (0.0, 0.0, 1.0, False)
    lone = paired_difference([0.5, 0.6], [0.1, 0.2], clusters=["a", "a"])
    assert not lone.shown
    assert math.isnan(lone.p)
    assert lone.sentence() == "too few patients to tell: one cluster only: nothing to resample"
    assert paired_difference([], []).sentence() == "too few patients to tell: no instance has a defined value"


def test_under_no_difference_the_test_rejects_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    patients = np.repeat(np.arange(10), 3)
    p = []
    for trial in range(300):
        d = np.repeat(generator.normal(size=10), 3) + 0.5 * generator.normal(size=30)
        p.append(paired_difference(d, np.zeros(30), clusters=patients, resamples=1024, seed=trial, workers=1).p)
    # Exact test: 10 % expected, with a standard deviation of 1.7 points.
    assert 0.04 <= np.mean(np.array(p) <= 0.1) <= 0.16


def test_any_statistic_can_be_compared_with_pairs_swapped_patient_by_patient() -> None:
    generator = np.random.default_rng(8)
    labels = np.tile([0.0, 1.0], 8)
    good, poor = labels + 0.5 * generator.random(16), generator.random(16)
    a, b = np.stack([good, labels], axis=1), np.stack([poor, labels], axis=1)
    patients = np.repeat(np.arange(4), 4)
    result = paired_difference(
        a, b, statistic=lambda rows: auroc(rows[:, 0], rows[:, 1]), clusters=patients, resamples=60, method="percentile"
    )
    flipped = []
    for signs in itertools.product((False, True), repeat=4):
        swap = np.array(signs)[patients]
        one, other = np.where(swap, poor, good), np.where(swap, good, poor)
        flipped.append(auroc(one, labels) - auroc(other, labels))
    observed = auroc(good, labels) - auroc(poor, labels)
    assert result.estimate == pytest.approx(observed)
    assert (result.first, result.second) == (1.0, auroc(poor, labels))
    assert result.exact
    assert result.p == pytest.approx(np.mean(np.abs(flipped) >= abs(observed) - 1e-12))
    means = paired_difference(good, poor, statistic=lambda rows: float(rows.mean()), resamples=300)
    assert means.low == pytest.approx(paired_difference(good, poor, resamples=300).low, abs=1e-10)


@pytest.mark.parametrize(
    ("a", "b", "options", "sentence"),
    [
        ([1.0, 2.0], [1.0], {}, "a has 2, b has 1"),
        ([1.0, np.inf], [1.0, 1.0], {}, "a[1] is inf"),
        ([1.0, 2.0], [1.0, 2.0], {"level": 1.5}, "level must lie between 0 and 1"),
        ([1.0, 2.0], [1.0, 2.0], {"clusters": ["a"]}, "one entry for each of 2 instances"),
        ([1.0], [2.0], {"statistic": "median"}, "unknown statistic 'median'"),
        (np.zeros((4, 2)), np.zeros((4, 3)), {}, "a has 2 columns and b has 3"),
    ],
)
def test_wrong_arguments_are_refused_by_name(a: Any, b: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        (paired_differences if np.ndim(a) == 2 else paired_difference)(a, b, **options)
    assert sentence in str(caught.value)


def test_a_difference_is_shown_only_if_the_p_value_shows_it_whatever_the_interval_says() -> None:
    result = paired_difference([0.1, 0.2, 0.8, 0.9], [0.0, 0.1, 0.1, 0.1], clusters=["a", "a", "b", "b"])
    assert result.excludes(0.0)
    assert result.p == 0.5  # of the four ways to flip two patients, two are as extreme
    assert not result.shown
    assert result.sentence().startswith("too few patients to tell: +0.425 (95 % interval 0.100 to 0.750; p = 0.500")
    assert not paired_difference([0.5] * 4, [0.25] * 4, resamples=100).shown  # p = 2/16, without width
    assert paired_difference([0.5] * 8, [0.25] * 8, resamples=1000).shown  # p = 2/256, without width


@pytest.mark.parametrize("flips", [100, 300])
def test_the_smallest_p_value_is_the_one_of_differences_that_all_have_one_sign(flips: int) -> None:
    for patients in range(2, 12):
        clear = paired_difference(1 + np.arange(patients) / 100, np.zeros(patients), flips=flips, resamples=200)
        assert clear.p >= clear.smallest_p > 0
        if clear.exact:
            assert clear.p == clear.smallest_p == 2 / 2**patients
    assert [smallest_p(patients, 10_000) for patients in (5, 8)] == [0.0625, 0.0078125]
    assert smallest_p(50, 10) == 1 / 11  # ten random patterns can never give p < 0.05
    few = paired_difference([0.3, 0.4] * 25, [0.1, 0.1] * 25, flips=10)
    assert few.verdict == "too few patients to tell"


def test_many_columns_are_compared_as_each_alone() -> None:
    generator = np.random.default_rng(8)
    a, b = generator.random((2, 80, 5))
    a[generator.random((80, 5)) < 0.2] = np.nan
    a[:, 3] = np.nan
    a[4:, 4] = np.nan
    patients = generator.integers(0, 20, 80)
    options: dict[str, Any] = {"clusters": patients, "resamples": 200, "flips": 900, "seed": 4}
    for column, found in enumerate(paired_differences(a, b, **options)):
        assert repr(found) == repr(paired_difference(a[:, column], b[:, column], **options))
    p, exact = sign_flip_test(a - b, clusters=patients, flips=900, seed=4)
    assert exact.tolist() == [False, False, False, False, True]
    assert math.isnan(p[3])
    np.testing.assert_array_equal(sign_flip_test(a - b, clusters=patients, flips=900, seed=4, workers=1)[0], p)


def test_sign_flips_have_their_own_number() -> None:
    a = np.ones(40) + np.arange(40) / 100
    assert paired_difference(a, np.zeros(40), resamples=200, flips=5000).p == pytest.approx(1 / 5001)
    assert paired_difference(a, np.zeros(40), resamples=200).p == pytest.approx(1 / 201)


def test_an_option_that_does_not_exist_is_refused_by_name() -> None:
    for ask in (paired_difference, pearson):
        with pytest.raises(TypeError, match="unexpected keyword argument 'resample'"):
            ask([1.0, 2.0], [2.0, 1.0], resample=10)  # type: ignore[call-arg]
