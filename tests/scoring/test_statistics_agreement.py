"""Krippendorff's alpha against his worked example, the krippendorff package, and loops over the same resamples."""

from __future__ import annotations

import math
from typing import Any

import krippendorff
import numpy as np
import pytest

from rightlung.core.errors import InputError
from rightlung.scoring.statistics import krippendorff_alpha, krippendorff_interval
from rightlung.scoring.statistics.agreement import MEASUREMENTS, Measurement
from rightlung.scoring.statistics.resampling import draw_counts

NAN = math.nan
# "Computing Krippendorff's Alpha-Reliability", 2011, section C: four observers, twelve units, missing ratings.
WORKED = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
)


def made_up(seed: int, raters: int = 4, units: int = 25) -> Any:
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 5, units)
    ratings = np.clip(truth + generator.integers(-1, 2, (raters, units)), 0, 6).astype(float)
    ratings[generator.random(ratings.shape) < 0.3] = NAN
    return ratings


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_the_published_example_gives_the_published_alphas(level: Measurement, published: float) -> None:
    assert krippendorff_alpha(WORKED, level) == pytest.approx(published, abs=0.0005)


@pytest.mark.parametrize("level", MEASUREMENTS)
@pytest.mark.parametrize("seed", range(5))
def test_alpha_equals_the_krippendorff_packages(level: Measurement, seed: int) -> None:
    ratings = made_up(seed)
    expected = krippendorff.alpha(reliability_data=ratings, level_of_measurement=level)
    assert krippendorff_alpha(ratings, level) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("level", MEASUREMENTS)
def test_an_interval_equals_the_packages_alpha_on_the_same_resamples_of_patients(level: Measurement) -> None:
    ratings = made_up(7)
    patients = np.arange(25) // 2
    result = krippendorff_interval(ratings, level, clusters=patients, resamples=120, method="percentile", seed=3)
    pairable = (~np.isnan(ratings)).sum(axis=0) >= 2
    kept, of_unit = ratings[:, pairable], np.unique(patients[pairable], return_inverse=True)[1]
    sampled = []
    for counts in draw_counts(int(of_unit.max()) + 1, resamples=120, seed=3).astype(int):
        units = np.repeat(np.arange(kept.shape[1]), counts[of_unit])
        sampled.append(krippendorff.alpha(reliability_data=kept[:, units], level_of_measurement=level))
    np.testing.assert_allclose([result.low, result.high], np.quantile(sampled, [0.025, 0.975]), atol=1e-10)
    assert result.estimate == pytest.approx(krippendorff_alpha(ratings, level), abs=1e-12)
    assert (result.n, result.undefined) == (int(pairable.sum()), int((~pairable).sum()))
    again = krippendorff_interval(
        ratings, level, clusters=patients, resamples=120, method="percentile", seed=3, workers=2
    )
    assert again == result


def test_perfect_agreement_is_one_and_systematic_disagreement_is_below_zero() -> None:
    assert krippendorff_alpha([[1, 2, 3], [1, 2, 3]]) == 1.0
    # By hand: observed 1, expected 2 · 4 · 4 / (8 · 7) = 4/7.
    assert krippendorff_alpha([[0, 1, 0, 1], [1, 0, 1, 0]]) == pytest.approx(1 - 7 / 4)
    sure = krippendorff_interval([[1, 2, 3] * 5] * 2, resamples=200)
    assert (sure.low, sure.high, sure.reason) == (1.0, 1.0, "zero width: all resamples are equal")


def test_the_order_of_raters_and_of_units_does_not_matter() -> None:
    for level in ("nominal", "ordinal", "interval", "ratio"):
        shuffled = WORKED[[2, 0, 3, 1]][:, np.random.default_rng(0).permutation(12)]
        assert krippendorff_alpha(shuffled, level) == pytest.approx(krippendorff_alpha(WORKED, level), abs=1e-12)


def test_ordinal_alpha_sees_ranks_and_interval_alpha_sees_distances() -> None:
    stretched = np.exp(WORKED)
    assert krippendorff_alpha(stretched, "ordinal") == pytest.approx(krippendorff_alpha(WORKED, "ordinal"))
    assert krippendorff_alpha(3 * WORKED - 7, "interval") == pytest.approx(krippendorff_alpha(WORKED, "interval"))
    assert krippendorff_alpha(3 * WORKED, "ratio") == pytest.approx(krippendorff_alpha(WORKED, "ratio"))
    assert abs(krippendorff_alpha(stretched, "interval") - krippendorff_alpha(WORKED, "interval")) > 0.01


def test_agreement_that_cannot_be_measured_is_nan_and_says_why() -> None:
    assert math.isnan(krippendorff_alpha([[2, 2, 2], [2, 2, 2]]))
    same = krippendorff_interval([[2, 2, 2], [2, 2, 2]], resamples=50)
    assert same.reason == "all ratings are 2: without variation agreement is undefined"
    lonely = krippendorff_interval([[1, NAN], [NAN, 2]], resamples=50)
    assert math.isnan(lonely.estimate)
    assert (lonely.reason, lonely.n, lonely.undefined) == ("no unit has two ratings", 0, 2)


def test_wrong_ratings_are_refused_by_place() -> None:
    with pytest.raises(InputError, match="unknown level of measurement 'nominel'; did you mean 'nominal'"):
        krippendorff_alpha([[1, 2], [1, 2]], "nominel")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"ratings\[1, 0\] is -1.0; ratio ratings"):
        krippendorff_alpha([[1, 2], [-1, 2]], "ratio")
    with pytest.raises(InputError, match=r"ratings\[0, 1\] is inf"):
        krippendorff_alpha([[1.0, math.inf], [1.0, 2.0]])
    with pytest.raises(InputError, match=r"ratings must have 2 dimension\(s\)"):
        krippendorff_alpha([1, 2])
    with pytest.raises(InputError, match="one entry for each of 2 instances"):
        krippendorff_interval([[1, 2], [1, 2]], clusters=["a"])
