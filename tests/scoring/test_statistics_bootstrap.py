"""The bootstrap against SciPy, against plain loops over the same resamples, and against the truth it should cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rightlung.core.errors import InputError
from rightlung.scoring.statistics import bootstrap, bootstrap_by_counts, bootstrap_columns
from rightlung.scoring.statistics.intervals import Method
from rightlung.scoring.statistics.resampling import draw_counts

Array = np.ndarray[Any, np.dtype[np.float64]]


def clustered(seed: int, clusters: int = 12, largest: int = 6) -> tuple[Array, np.ndarray[Any, np.dtype[np.str_]]]:
    """Skewed values that resemble each other within clusters of unequal size, shuffled."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, largest, clusters)
    names = np.repeat([f"patient {number}" for number in range(clusters)], sizes)
    values = np.repeat(generator.exponential(size=clusters), sizes) + 0.3 * generator.exponential(size=len(names))
    order = generator.permutation(len(names))
    return values[order], names[order]


def plain_bca(
    statistic: Callable[[Array], Any], values: Array, names: Any, counts: Any, level: float
) -> tuple[float, float]:
    """BCa written out with Python loops over patients, resample by resample."""
    patients = sorted(set(names))
    rows_of = {patient: [row for row, name in enumerate(names) if name == patient] for patient in patients}
    sampled = []
    for times in counts:
        rows = [row for patient, time in zip(patients, times, strict=True) for row in rows_of[patient] * int(time)]
        sampled.append(statistic(values[rows]))
    left_out = [statistic(values[[row for row, name in enumerate(names) if name != patient]]) for patient in patients]
    estimate = statistic(values)
    below = sum(1.0 if value < estimate - 1e-12 else 0.5 if value <= estimate + 1e-12 else 0.0 for value in sampled)
    bias = stats.norm.ppf(below / len(sampled))
    deviations = [sum(left_out) / len(left_out) - value for value in left_out]
    acceleration = sum(d**3 for d in deviations) / (6 * sum(d**2 for d in deviations) ** 1.5)
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + stats.norm.ppf(tail)
        ends.append(float(np.quantile(sampled, stats.norm.cdf(bias + z / (1 - acceleration * z)))))
    return ends[0], ends[1]


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_an_interval_of_a_mean_agrees_with_scipy_within_monte_carlo_error(method: Method) -> None:
    values = np.random.default_rng(8).exponential(size=25) ** 1.5
    ours = bootstrap(values, resamples=100_000, method=method, seed=3)
    options: dict[str, Any] = {"n_resamples": 100_000, "method": method, "vectorized": True, "batch": 10_000}
    theirs = stats.bootstrap((values,), np.mean, rng=np.random.default_rng(4), **options)
    # The 2.5 % quantile of 100,000 draws has a standard error of about 0.009 standard deviations; 5 · √2 of those.
    tolerance = 0.06 * theirs.standard_error
    assert ours.estimate == pytest.approx(values.mean(), abs=1e-12)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=tolerance)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=2 * tolerance)  # the long tail
    other = bootstrap(values, resamples=100_000, method="percentile" if method == "bca" else "bca", seed=3)
    assert abs(other.low - ours.low) > 2 * tolerance, "the data must tell the two methods apart"


@pytest.mark.parametrize("function", [np.mean, np.std])
@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_a_clustered_bca_interval_equals_a_plain_loop_over_the_same_draws(
    seed: int, level: float, function: Any
) -> None:
    values, names = clustered(seed)
    statistic = "mean" if function is np.mean else function
    result = bootstrap(values, statistic, clusters=names, resamples=400, level=level, seed=seed)
    counts = draw_counts(12, resamples=400, seed=seed)
    assert result.estimate == pytest.approx(function(values), abs=1e-12)
    assert (result.low, result.high) == pytest.approx(plain_bca(function, values, names, counts, level), abs=1e-10)
    assert (result.n, result.clusters, result.resamples) == (len(values), 12, 400)


@pytest.mark.parametrize("with_clusters", [False, True])
def test_resamples_tied_with_the_estimate_count_half(with_clusters: bool) -> None:
    # With 20 zeros and ones, about a sixth of all resamples equal the estimate.
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0] * 4)
    names = [f"{number // 2:02d}" if with_clusters else f"{number:02d}" for number in range(20)]
    result = bootstrap(values, clusters=names, resamples=3000, level=0.8, seed=1)
    counts = draw_counts(len(set(names)), resamples=3000, seed=1)
    assert (result.low, result.high) == pytest.approx(plain_bca(np.mean, values, names, counts, 0.8), abs=1e-10)
    if not with_clusters:
        theirs = stats.bootstrap(
            (values,), np.mean, n_resamples=30_000, confidence_level=0.8, method="bca", rng=np.random.default_rng(0)
        )
        assert (result.low, result.high) == pytest.approx(tuple(theirs.confidence_interval), abs=1e-9)


@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("with_clusters", [False, True])
def test_the_three_ways_to_a_mean_give_the_same_interval(method: Method, with_clusters: bool) -> None:
    values, names = clustered(6)
    clusters = names if with_clusters else None
    options: dict[str, Any] = {"clusters": clusters, "resamples": 500, "method": method, "seed": 1}
    fast = bootstrap(values, **options)
    slow = bootstrap(values, lambda sample: float(sample.mean()), **options)
    counted = bootstrap_by_counts(
        lambda counts: (counts * values).sum(axis=1) / counts.sum(axis=1), len(values), **options
    )
    for other in (slow, counted):
        assert (other.estimate, other.low, other.high) == pytest.approx((fast.estimate, fast.low, fast.high), abs=1e-10)


def test_draws_are_uniform_with_replacement_and_do_not_depend_on_how_they_are_grouped() -> None:
    counts = draw_counts(300, resamples=2000, seed=1)
    assert (counts.sum(axis=1) == 300).all()
    assert stats.chisquare(counts.sum(axis=0)).pvalue > 0.001
    # Multinomial: a cluster is left out of a resample with probability (1 - 1/C)^C.
    assert (counts == 0).mean() == pytest.approx((1 - 1 / 300) ** 300, abs=0.002)
    np.testing.assert_array_equal(draw_counts(300, resamples=700, seed=1), counts[:700])
    in_groups = [draw_counts(300, resamples=2000, seed=1, group=group) for group in range(3)]
    np.testing.assert_array_equal(np.concatenate(in_groups), counts)
    assert len({row.tobytes() for row in counts}) == 2000, "no stream may repeat another"
    assert (draw_counts(300, resamples=2000, seed=2) != counts).any()


@pytest.mark.parametrize("with_clusters", [False, True])
def test_the_same_seed_gives_the_same_interval_to_the_last_bit_with_any_number_of_threads(with_clusters: bool) -> None:
    values, names = clustered(2, clusters=1500)
    clusters = names if with_clusters else None
    one = bootstrap(values, clusters=clusters, resamples=1500, seed=4, workers=1)
    for workers in (2, 3, 7, None):
        assert bootstrap(values, clusters=clusters, resamples=1500, seed=4, workers=workers) == one
    other = bootstrap(values, clusters=clusters, resamples=1500, seed=5)
    assert (other.low, other.high) != (one.low, one.high)
    assert other.estimate == one.estimate


def test_the_order_of_instances_does_not_matter_when_they_are_clustered() -> None:
    values, names = clustered(3)
    order = np.random.default_rng(0).permutation(len(values))
    first = bootstrap(values, clusters=names, resamples=500)
    second = bootstrap(values[order], clusters=list(names[order]), resamples=500)
    assert (second.low, second.high) == pytest.approx((first.low, first.high), abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"weights": np.random.default_rng(1).random(44)}, {"method": "percentile"}])
def test_each_column_is_what_it_would_be_alone_whatever_is_undefined_in_the_others(options: dict[str, Any]) -> None:
    values, names = clustered(4)
    columns = np.stack([values, values**2, -values, values, np.full(len(values), np.nan)], axis=1)
    columns[:4, 1] = np.nan
    columns[names == "patient 3", 2] = np.nan
    columns[names == "patient 7", 3] = np.nan  # as many clusters as the column before, but others
    options = {"clusters": names, "resamples": 400, "seed": 2, **options}
    *together, undefined = bootstrap_columns(columns, **options)
    assert together == [bootstrap(column, **options) for column in columns.T[:4]]
    assert [interval.undefined for interval in together[:2]] == [0, 4]
    assert together[2].clusters == together[3].clusters == 11
    assert math.isnan(undefined.estimate)
    assert undefined.reason == "no instance has a defined value"


def test_undefined_values_are_left_out_and_counted() -> None:
    values, names = clustered(7)
    with_holes = np.concatenate([values, [np.nan, np.nan]])
    held = bootstrap(with_holes, clusters=[*names, "patient 1", "nobody else"], resamples=300)
    bare = bootstrap(values, clusters=names, resamples=300)
    assert held == replace(bare, undefined=2)
    called = bootstrap(with_holes, np.median, clusters=[*names, "patient 1", "nobody else"], resamples=50)
    assert (called.estimate, called.undefined) == (np.median(values), 2)


def test_weights_make_a_mean_of_ious_the_pooled_iou() -> None:
    generator = np.random.default_rng(1)
    unions = generator.integers(1, 50, 40).astype(float)
    overlaps = np.floor(unions * generator.random(40))
    weighted = bootstrap(overlaps / unions, weights=unions, resamples=300, seed=6)
    pooled = bootstrap(
        np.stack([overlaps, unions], axis=1),
        lambda sample: float(sample[:, 0].sum() / sample[:, 1].sum()),
        resamples=300,
        seed=6,
    )
    assert weighted.estimate == pytest.approx(overlaps.sum() / unions.sum(), abs=1e-12)
    assert (weighted.low, weighted.high) == pytest.approx((pooled.low, pooled.high), abs=1e-10)


def test_ties_with_the_estimate_count_half_even_when_rounding_breaks_them() -> None:
    # Tenths do not add up exactly; whole numbers do, and the interval must not notice the difference.
    whole = np.random.default_rng(2).integers(0, 4, 30).astype(float)
    tenths = bootstrap(whole * 0.1, resamples=2000, seed=3)
    exact = bootstrap(whole, resamples=2000, seed=3)
    assert (10 * tenths.low, 10 * tenths.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_images_of_one_patient_do_not_count_as_independent() -> None:
    """Nominal 95 %: clustered intervals come near it, unclustered ones on the same data do not."""
    generator = np.random.default_rng(12)
    names = np.repeat(np.arange(40), 5)
    covered = {"clustered": 0, "unclustered": 0}
    for trial in range(250):
        values = np.repeat(generator.normal(size=40), 5) + 0.3 * generator.normal(size=200)
        for kind, clusters in (("clustered", names), ("unclustered", None)):
            result = bootstrap(values, clusters=clusters, resamples=400, seed=trial, workers=1)
            covered[kind] += not result.excludes(0.0)
    # 250 trials at 0.94 have a standard deviation of 0.015; the unclustered width is too small by about √5.
    assert 0.89 <= covered["clustered"] / 250 <= 0.99
    assert covered["unclustered"] / 250 < 0.75


def test_equal_values_give_zero_width_and_say_so() -> None:
    for clusters in (None, ["a", "b", "b", "c", "c", "c", "a"]):
        result = bootstrap([0.1] * 7, clusters=clusters, resamples=100)
        assert (result.estimate, result.low, result.high) == (0.1, 0.1, 0.1)
        assert result.reason == "zero width: all resamples are equal"
        assert result.excludes(0.0)


def test_what_cannot_be_resampled_has_no_interval_and_says_why() -> None:
    single = bootstrap([0.2, 0.4], clusters=["a", "a"])
    assert single.estimate == pytest.approx(0.3)
    assert math.isnan(single.low)
    assert math.isnan(single.high)
    assert single.reason == "one cluster only: nothing to resample"
    assert not single.defined
    assert not single.excludes(9.0)
    assert single.sentence() == "0.300 (no interval: one cluster only: nothing to resample)"
    assert bootstrap([0.2]).reason == "one instance only: nothing to resample"
    empty = bootstrap([])
    assert math.isnan(empty.estimate)
    assert empty.sentence() == "undefined: no instance has a defined value"


def test_resamples_without_the_statistic_are_left_out_and_named() -> None:
    def share_of_positives(sample: Array) -> float:
        return float(sample[sample > 0].mean()) if (sample > 0).any() else math.nan

    values = np.array([1.0, 3.0, 0.0, 0.0])
    result = bootstrap(values, share_of_positives, resamples=1000, method="percentile")
    missing = 1000 - result.resamples
    assert missing == pytest.approx(1000 / 16, abs=30)  # all four draws from the two zeros
    assert result.reason == f"{missing} of 1000 resamples left out, their statistic is undefined"
    assert (result.low, result.high) == (1.0, 3.0)
    undefined = bootstrap([0.0, 0.0], share_of_positives, resamples=100)
    assert undefined.reason == "the statistic is undefined for these instances"


def test_a_bca_interval_that_does_not_exist_is_not_made_up() -> None:
    # No resample exceeds the number of distinct values in the sample, and hardly any reaches it.
    result = bootstrap(np.arange(30.0), lambda sample: float(len(np.unique(sample))), resamples=200)
    assert math.isnan(result.low)
    assert result.reason == "no BCa interval: all resamples lie below the estimate (try 'percentile')"
    lone = bootstrap(
        [1.0, 0.0, 0.0, 0.0], lambda sample: float(sample.sum()) if sample.any() else math.nan, resamples=200
    )
    assert "without one of 1 instance(s) the statistic is undefined" in str(lone.reason)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"values": [1.0, np.inf]}, "values[1] is inf"),
        ({"values": [[1.0], [2.0]]}, "values must have 1 dimension(s), and has the shape (2, 1)"),
        ({"values": ["a", "b"]}, "values must be numbers"),
        ({"statistic": "meen"}, "unknown statistic 'meen'; did you mean 'mean'?"),
        ({"method": "bc"}, "unknown bootstrap method 'bc'"),
        ({"resamples": 0}, "resamples must be a whole number of at least 1, not 0"),
        ({"resamples": 1e4}, "resamples must be a whole number of at least 1, not 10000.0"),
        ({"level": 95}, "level must lie between 0 and 1 (0.95 for 95 %), not 95"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"workers": 0}, "workers must be at least 1; got 0"),
        ({"clusters": ["a"]}, "one entry for each of 2 instances"),
        ({"weights": [1.0, -1.0]}, "weights[1] is -1.0"),
        ({"weights": [1.0]}, "values has 2, weights has 1"),
        ({"statistic": np.mean, "weights": [1.0, 1.0]}, "weights apply to the mean only"),
        ({"statistic": lambda sample: sample}, "the statistic must return one number"),
        ({"clusters": ["a", float("nan")]}, "clusters[1] is nan; expected a patient"),
        ({"clusters": ["a", None]}, "clusters[1] is None"),
        ({"clusters": np.array([np.nan, 1.0])}, "clusters[0] is nan"),
        ({"clusters": ["a", ""]}, "clusters[1] is ''"),
        ({"clusters": ["a", " "]}, "clusters[1] is ' '"),
        ({"clusters": [1.0, 1.5]}, "clusters[1] is 1.5"),
        ({"clusters": ["1", 1]}, "clusters mix texts and numbers: '1' and, at position 1, 1"),
    ],
)
def test_wrong_arguments_are_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"values": [1.0, 2.0], "resamples": 10} | change
    with pytest.raises(InputError) as caught:
        bootstrap(arguments.pop("values"), **arguments)
    assert sentence in str(caught.value)


def test_an_interval_of_three_patients_misleads_and_warns() -> None:
    generator = np.random.default_rng(31)
    patients = np.repeat(np.arange(3), 4)
    null = [np.repeat(generator.normal(size=3), 4) + 0.1 * generator.normal(size=12) for _ in range(300)]
    found = [bootstrap(values, clusters=patients, resamples=500) for values in null]
    wrong = np.mean([one.excludes(0.0) for one in found])
    assert 0.2 < wrong < 0.45  # six times as often as the 5 % that it promises
    assert {one.warning for one in found} == {"only 3 clusters: the interval is unreliable"}
    assert all(one.sentence().endswith("; only 3 clusters)") for one in found)
    enough = bootstrap(generator.normal(size=20), clusters=np.repeat(np.arange(10), 2), resamples=200)
    assert (enough.clusters, enough.warning) == (10, None)
    assert enough.sentence().endswith("; 10 clusters)")
    assert bootstrap([0.1, 0.5, 0.2], resamples=200).warning == "only 3 instances: the interval is unreliable"
