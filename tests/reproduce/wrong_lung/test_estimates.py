from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from rightlung.reproduce.wrong_lung.estimates import Estimator, Sureness
from rightlung.scoring.statistics import bootstrap, paired_difference, pearson

SURE = Sureness(resamples=400, seed=3)
CLUSTERS = np.repeat(np.arange(30), 3)[np.random.default_rng(1).permutation(90)]


def columns() -> list[NDArray[np.float64]]:
    generator = np.random.default_rng(2)
    made = [generator.normal(0.5, 0.2, size=90) + 0.1 * CLUSTERS / 30 for _ in range(4)]
    made[1][generator.random(90) < 0.3] = np.nan
    made[2][CLUSTERS < 11] = np.nan  # whole patients are missing
    return made


def test_means_are_those_of_the_bootstrap() -> None:
    found = Estimator(CLUSTERS, SURE).means(columns())
    for column, value in zip(columns(), found, strict=True):
        alone = bootstrap(column, clusters=CLUSTERS, resamples=400, seed=3)
        assert value["estimate"] == pytest.approx(np.nanmean(column))
        assert (value["low"], value["high"]) == pytest.approx((alone.low, alone.high), abs=1e-12)
        assert (value["phrases"], value["patients"]) == (alone.n, alone.clusters)


def test_a_column_without_values_has_no_interval() -> None:
    nothing, constant = Estimator(CLUSTERS, SURE).means([np.full(90, np.nan), np.ones(90)])
    assert math.isnan(nothing["estimate"])
    assert nothing["reason"] == "no instance has a defined value"
    assert (constant["estimate"], constant["low"], constant["high"]) == (1.0, 1.0, 1.0)


def test_one_patient_has_an_estimate_and_no_interval() -> None:
    found = Estimator(np.zeros(4, dtype=np.intp), SURE).mean(np.array([0.0, 1.0, 1.0, 1.0]))
    assert found["estimate"] == 0.75
    assert math.isnan(found["low"])


def test_a_contrast_is_the_difference_of_two_means_in_every_resample() -> None:
    values = columns()[0]
    inside = np.arange(90) % 4 == 0
    part, rest = np.where(inside, values, np.nan), np.where(inside, np.nan, values)
    found = Estimator(CLUSTERS, Sureness(resamples=4000)).contrast(part, rest)
    assert found["estimate"] == pytest.approx(values[inside].mean() - values[~inside].mean())
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(4000):
        rows = np.concatenate([np.flatnonzero(one == CLUSTERS) for one in generator.integers(0, 30, size=30)])
        drawn.append(values[rows][inside[rows]].mean() - values[rows][~inside[rows]].mean())
    assert (found["low"], found["high"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.012)


def test_correlations_are_those_of_pearson() -> None:
    first, second, third, fourth = columns()
    values = {"a": first, "b": second, "c": third, "d": fourth + first}
    found = Estimator(CLUSTERS, SURE).correlations(values)
    assert len(found) == 6
    for (left, right), value in found.items():
        both = ~(np.isnan(values[left]) | np.isnan(values[right]))
        assert value["estimate"] == pytest.approx(np.corrcoef(values[left][both], values[right][both])[0, 1])
        alone = pearson(values[left], values[right], clusters=CLUSTERS, resamples=400, seed=3)
        assert (value["low"], value["high"]) == pytest.approx((alone.low, alone.high), abs=1e-9)


def test_a_constant_has_no_correlation() -> None:
    found = Estimator(CLUSTERS, SURE).correlations({"a": columns()[0], "b": np.ones(90)})["a", "b"]
    assert math.isnan(found["estimate"])
    assert found["reason"] == "b is constant or undefined"


def test_p_values_go_through_all_patterns_where_patients_are_few() -> None:
    clusters = np.repeat(np.arange(8), 2)
    generator = np.random.default_rng(5)
    first, second = generator.normal(0.3, 1, size=16), generator.normal(0, 1, size=16)
    alone = paired_difference(first, second, clusters=clusters)
    assert alone.exact
    nothing, found = Estimator(clusters).p_values([np.full(16, np.nan), first - second])
    assert math.isnan(nothing)
    assert found == pytest.approx(alone.p)


def test_p_values_of_many_patients_are_near_those_of_the_paired_test() -> None:
    generator = np.random.default_rng(6)
    first, second = generator.normal(0.2, 1, size=90), generator.normal(0, 1, size=90)
    alone = paired_difference(first, second, clusters=CLUSTERS)
    (found,) = Estimator(CLUSTERS).p_values([first - second])
    assert 0.05 < alone.p < 0.95
    assert found == pytest.approx(alone.p, abs=0.02)


def test_a_contrast_of_correlations_is_their_difference_in_every_resample() -> None:
    first, second, _, fourth = columns()
    values = first + 0.3 * fourth
    both = ~np.isnan(second)
    found = Estimator(CLUSTERS, Sureness(resamples=3000)).correlation_contrast(values, first, second)

    def difference(rows: NDArray[np.intp]) -> float:
        return float(np.corrcoef(values[rows], first[rows])[0, 1] - np.corrcoef(values[rows], second[rows])[0, 1])

    assert found["estimate"] == pytest.approx(difference(np.flatnonzero(both)))
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(3000):
        rows = np.concatenate([np.flatnonzero((one == CLUSTERS) & both) for one in generator.integers(0, 30, size=30)])
        drawn.append(difference(rows))
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.15 * (high - low))
    constant = Estimator(CLUSTERS, SURE).correlation_contrast(values, first, np.ones(90))
    assert math.isnan(constant["estimate"])


def test_a_rank_correlation_of_means_is_spearmans() -> None:
    from scipy.stats import spearmanr

    generator = np.random.default_rng(8)
    first = [generator.normal(0.02 * place, 0.2, size=90) for place in range(6)]
    second = [0.3 * column + generator.normal(0.02 * place, 0.2, size=90) for place, column in enumerate(first)]
    second[3] = second[2].copy()  # a tie
    second[1][:20] = np.nan
    found = Estimator(CLUSTERS, SURE).rank_correlation(first, second)
    means = [[np.nanmean(column) for column in part] for part in (first, second)]
    assert found["estimate"] == pytest.approx(spearmanr(*means).statistic)
    assert -1 <= found["low"] < found["high"] <= 1
    same = Estimator(CLUSTERS, SURE).rank_correlation([first[0]] * 3, [second[0]] * 3)
    assert math.isnan(same["estimate"])
