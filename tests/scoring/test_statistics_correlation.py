"""Correlations against scipy.stats and plain loops over the same resamples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rightlung.core.errors import InputError
from rightlung.scoring.statistics import Correlation, pearson, pearson_by_counts, pearson_pairs, spearman
from rightlung.scoring.statistics.correlation import spearman_rows
from rightlung.scoring.statistics.resampling import draw_counts

Array = np.ndarray[Any, np.dtype[np.float64]]


def related(seed: int, n: int = 30, grid: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n)
    y = 0.6 * x + generator.normal(size=n)
    return (np.round(x * grid), np.round(y * grid)) if grid else (x, y)


@pytest.mark.parametrize("level", [0.9, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_pearson_its_interval_and_p_value_are_scipys(seed: int, level: float) -> None:
    x, y = related(seed)
    ours, theirs = pearson(x, y, level=level), stats.pearsonr(x, y)
    assert ours.estimate == pytest.approx(theirs.statistic, abs=1e-12)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(level)), abs=1e-12)
    assert ours.method == "fisher-z"


@pytest.mark.parametrize("grid", [0, 1, 2])
def test_spearman_and_its_p_value_are_scipys_with_ties(grid: int) -> None:
    x, y = related(grid, grid=grid)
    ours, theirs = spearman(x, y), stats.spearmanr(x, y)
    assert ours.estimate == pytest.approx(theirs.statistic, abs=1e-12)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)


def test_spearmans_interval_is_bonett_and_wrights() -> None:
    x, y = related(9, n=40)
    result = spearman(x, y)
    r = stats.spearmanr(x, y).statistic
    z, error = math.atanh(r), math.sqrt((1 + r**2 / 2) / 37)
    assert (result.low, result.high) == pytest.approx(
        (math.tanh(z - 1.959964 * error), math.tanh(z + 1.959964 * error))
    )
    assert result.method == "bonett-wright"
    fisher = pearson(stats.rankdata(x), stats.rankdata(y))
    assert result.high - result.low > fisher.high - fisher.low


@pytest.mark.parametrize(
    ("function", "reference"), [(pearson, stats.pearsonr), (spearman, stats.spearmanr)], ids=["pearson", "spearman"]
)
@pytest.mark.parametrize("grid", [0, 2])
def test_a_clustered_interval_equals_scipys_correlation_on_the_same_resamples(
    function: Callable[..., Correlation], reference: Callable[[Array, Array], Any], grid: int
) -> None:
    x, y = related(3, n=36, grid=grid)
    patients = np.arange(36) // 3
    result = function(x, y, clusters=patients, resamples=200, method="percentile", seed=2)
    sampled = []
    for counts in draw_counts(12, resamples=200, seed=2).astype(int):
        rows = np.repeat(np.arange(36), counts[patients])
        sampled.append(reference(x[rows], y[rows]).statistic)
    np.testing.assert_allclose([result.low, result.high], np.quantile(sampled, [0.025, 0.975]), atol=1e-10)
    assert result.estimate == pytest.approx(reference(x, y).statistic, abs=1e-12)
    assert math.isnan(result.p)
    assert (result.clusters, result.resamples) == (12, 200)
    again = function(x, y, clusters=patients, resamples=200, method="percentile", seed=2, workers=3)
    assert (again.low, again.high) == (result.low, result.high)


def test_copies_of_an_image_widen_nothing_when_clustered_and_narrow_when_not() -> None:
    x, y = related(4, n=25)
    patients = np.repeat(np.arange(25), 8)
    copied = np.repeat(x, 8), np.repeat(y, 8)
    bare = pearson(x, y)
    clustered, unclustered = pearson(*copied, clusters=patients, resamples=2000), pearson(*copied)
    assert clustered.high - clustered.low > 0.7 * (bare.high - bare.low)
    assert unclustered.high - unclustered.low < 0.5 * (bare.high - bare.low)


@pytest.mark.parametrize("function", [pearson, spearman])
def test_what_has_no_correlation_is_nan_and_says_why(function: Callable[..., Correlation]) -> None:
    constant = function([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    assert np.isnan([constant.estimate, constant.low, constant.high, constant.p]).all()
    assert constant.reason == "x is constant (1): its correlation is undefined"
    clustered = function([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], clusters=["a", "b", "b"])
    assert clustered.reason == "y is constant (0.1): its correlation is undefined"
    assert clustered.clusters == 2
    few = function([1.0, np.nan], [1.0, 2.0])
    assert few.reason == "a correlation needs at least 2 pairs; got 1"
    assert (few.n, few.undefined) == (1, 1)


@pytest.mark.parametrize("function", [pearson, spearman])
def test_pairs_with_an_undefined_side_are_left_out_and_counted(function: Callable[..., Correlation]) -> None:
    x, y = related(6)
    patients = np.arange(30) // 2
    held_x, held_y = np.append(x, [np.nan, 5.0]), np.append(y, [1.0, np.nan])
    for clusters, more in ((None, None), (patients, np.append(patients, [3, 99]))):
        bare = function(x, y, clusters=clusters, resamples=100)
        held = function(held_x, held_y, clusters=more, resamples=100)
        assert (held.estimate, held.low, held.high, held.n) == (bare.estimate, bare.low, bare.high, 30)
        assert (held.undefined, held.clusters) == (2, bare.clusters)


def test_neither_size_nor_offset_changes_a_correlation() -> None:
    x, y = related(8)
    expected = pearson(x, y, clusters=np.arange(30) // 2, resamples=200)
    for scaled in (x * 1e150, x * 1e-150, x + 1e6):
        result = pearson(scaled, y, clusters=np.arange(30) // 2, resamples=200)
        assert (result.estimate, result.low, result.high) == pytest.approx(
            (expected.estimate, expected.low, expected.high), abs=1e-8
        )


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="x has 2, y has 3"):
        pearson([1, 2], [1, 2, 3])
    with pytest.raises(InputError, match=r"y\[1\] is -inf"):
        spearman([1, 2], [1, -np.inf])
    with pytest.raises(InputError, match="level must lie between 0 and 1"):
        spearman([1, 2], [1, 2], level=0)


def test_few_or_perfect_pairs_are_told_apart_from_evidence_at_every_length() -> None:
    three = pearson([1, 2, 3], [1, 2, 4])
    assert (three.low, three.high) == (-1.0, 1.0)
    assert "at least 4" in str(three.reason)
    for length in range(4, 40):
        line = np.arange(length) / 7
        perfect = spearman(line, line**3)
        assert (perfect.estimate, perfect.low, perfect.high, perfect.p) == (1.0, 1.0, 1.0, 0.0)
        assert perfect.reason == "zero width: the correlation is perfect"
        assert pearson(line, 5 - 3 * line).estimate == -1.0


def test_many_pairs_are_correlated_as_each_alone() -> None:
    generator = np.random.default_rng(3)
    values = np.stack([*related(1, 60), *related(2, 60), np.ones(60)], axis=1)
    values[generator.random((60, 5)) < 0.1] = np.nan
    values[:, 1] = np.where(np.isnan(values[:, 0]), np.nan, generator.random(60))  # the same instances as another
    patients = generator.integers(0, 15, 60)
    pairs = [(0, 1), (1, 0), (0, 2), (2, 3), (3, 4)]
    options: dict[str, Any] = {"clusters": patients, "resamples": 200, "seed": 2}
    for (x, y), found in zip(pairs, pearson_pairs(values, pairs, **options), strict=True):
        alone = pearson(values[:, x], values[:, y], **options)
        assert (found.n, found.undefined, found.clusters) == (alone.n, alone.undefined, alone.clusters)
        expected = (alone.estimate, alone.low, alone.high)
        assert (found.estimate, found.low, found.high) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    named = pearson_pairs(values, [(3, 4)], names=["a", "b", "c", "d", "flat"], **options)[0]
    assert named.reason == "flat is constant (1): its correlation is undefined"


def test_a_correlation_of_counts_is_that_of_the_repeated_sample() -> None:
    x, y = related(5)
    counts = draw_counts(len(x), resamples=20, seed=0)
    found = pearson_by_counts(x, y)(counts)
    expected = [stats.pearsonr(*(np.repeat(part, row.astype(int)) for part in (x, y))).statistic for row in counts]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.isnan(pearson_by_counts(x, np.zeros(len(x)))(counts)).all()


def test_rows_are_rank_correlated_as_scipy_does() -> None:
    generator = np.random.default_rng(0)
    first, second = np.round(3 * generator.random((2, 30, 6)))
    first[0], second[1] = 1.0, 1.0
    first[2, 3] = np.nan
    found = spearman_rows(first, second)
    assert np.isnan(found[:3]).all()
    expected = [stats.spearmanr(x, y).statistic for x, y in zip(first[3:], second[3:], strict=True)]
    np.testing.assert_allclose(found[3:], expected, atol=1e-12)
