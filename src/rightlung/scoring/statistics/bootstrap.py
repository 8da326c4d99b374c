"""The bootstrap: percentile and BCa intervals, clustered by patient, deterministic by seed.

Images of one patient are not independent, so patients are drawn with replacement, with all their instances (Davison &
Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8). ``resampling`` draws and reads off intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError, check_known
from rightlung.scoring.statistics.inputs import Clusters, FloatArray, as_floats, check_same_length, cluster_index
from rightlung.scoring.statistics.intervals import Interval, Options, Resampling, Sample
from rightlung.scoring.statistics.resampling import (
    COUNTS_AT_ONCE,
    CountStatistic,
    interval_of_replicates,
    intervals_of_counts,
    places_by_length,
    remaining_sums,
    replicates,
    weighted_sums,
)


def bootstrap(
    values: ArrayLike,
    statistic: str | Callable[[FloatArray], float] = "mean",
    *,
    clusters: Clusters | None = None,
    weights: ArrayLike | None = None,
    **options: Unpack[Options],
) -> Interval:
    """Return the interval of a statistic of ``values``.

    ``"mean"`` takes (instances,). A callable takes a sample (instances, …) and returns one number; it is called once
    per resample and, for BCa, once per cluster. `bootstrap_by_counts` is much faster. ``weights`` (mean only) gives
    sum(weight · value) / sum(weight). Instances with a NaN are left out and counted.

    >>> scores = [0.2, 0.4, 0.4, 0.9, 0.7, 0.1, 0.6, 0.5]
    >>> bootstrap(scores, clusters=["a", "a", "b", "b", "c", "c", "d", "d"]).sentence()
    '0.475 (95 % interval 0.350 to 0.600; only 4 clusters)'
    """
    settings = Resampling(**options)
    if isinstance(statistic, str):
        check_known("statistic", statistic, ["mean"])
        return bootstrap_columns(as_floats("values", values)[:, None], clusters=clusters, weights=weights, **options)[0]
    if weights is not None:
        raise InputError("weights apply to the mean only; pass a callable's weights as a column of values")
    array = as_floats("values", values, dimensions=None)
    kept = ~np.asarray(np.isnan(array).any(axis=tuple(range(1, array.ndim))))
    sample = array[kept]
    names, of_sample = np.unique(cluster_index(clusters, len(array))[kept], return_inverse=True)
    rows = np.arange(len(sample))

    def of_counts(counts: FloatArray) -> FloatArray:
        drawn = counts.astype(np.intp)
        found = [np.asarray(statistic(sample[np.repeat(rows, row[of_sample])]), dtype=np.float64) for row in drawn]
        if shape := found[0].shape:
            raise InputError(f"the statistic must return one number; got an array of shape {shape}")
        return np.array(found)[:, None]

    basis = Sample(len(sample), len(array) - len(sample), len(names), clusters is not None)
    # A user's function may not be thread-safe.
    return intervals_of_counts(of_counts, [basis], 0.0, replace(settings, workers=1))[0]


def bootstrap_columns(
    values: ArrayLike, *, clusters: Clusters | None = None, weights: ArrayLike | None = None, **options: Unpack[Options]
) -> list[Interval]:
    """Return the intervals of the means of all columns of ``values`` (instances, columns).

    Each equals `bootstrap` of that column; columns with the same number of clusters share resamples. ``weights`` is
    (instances,).
    """
    settings = Resampling(**options)
    array = as_floats("values", values, dimensions=2)
    weight = np.ones(len(array)) if weights is None else as_floats("weights", weights)
    check_same_length(values=array, weights=weight)
    if np.isnan(weight).any() or (weight < 0).any():
        position = int((np.isnan(weight) | (weight < 0)).argmax())
        raise InputError(f"weights[{position}] is {weight[position]}; a weight is a number of at least 0")
    index = cluster_index(clusters, len(array))
    defined = ~np.isnan(array) & (weight > 0)[:, None]
    sums = []  # per column: totals and masses, (2, remaining clusters)
    for column, used in zip(array.T, defined.T, strict=True):
        mass = weight[used]
        sums.append(remaining_sums(np.stack([column[used] * mass, mass], axis=1), index[used]))

    intervals: dict[int, Interval] = {}
    for cluster_count, columns in places_by_length(sums).items():
        totals, masses = np.array([sums[column] for column in columns]).transpose(1, 0, 2)
        estimates, sampled, jackknifed = _means(totals, masses, settings)
        for place, column in enumerate(columns):
            used = array[defined[:, column], column]
            constant = bool(len(used)) and bool((used == used[0]).all())
            intervals[column] = interval_of_replicates(
                float(used[0]) if constant else float(estimates[place]),
                np.full(settings.resamples, used[0]) if constant else sampled[:, place],
                None if jackknifed is None else jackknifed[:, place],
                Sample(len(used), len(array) - len(used), cluster_count, clusters is not None),
                float(np.abs(used).max(initial=0.0)),
                settings,
            )
    return [intervals[column] for column in range(array.shape[1])]


def bootstrap_by_counts(
    statistic: CountStatistic,
    instances: int,
    *,
    clusters: Clusters | None = None,
    scale: float = 1.0,
    **options: Unpack[Options],
) -> Interval:
    """Return the interval of a statistic that is computed from how often each instance was drawn.

    ``statistic`` takes counts (rows, instances) as float64 and returns (rows,), NaN where undefined; a row of ones
    gives the estimate. ``scale`` is the size of the statistic's values, to tell ties from rounding.
    """
    settings = Resampling(**options)
    index = cluster_index(clusters, instances)
    rows = max(1, COUNTS_AT_ONCE // max(instances, 1))

    def of_counts(counts: FloatArray) -> FloatArray:
        if clusters is None:
            return statistic(counts)[:, None]
        parts = [statistic(counts[at : at + rows, index]) for at in range(0, len(counts), rows)]
        return np.concatenate(parts)[:, None]

    basis = Sample(instances, 0, int(index.max(initial=-1)) + 1, clusters is not None)
    return intervals_of_counts(of_counts, [basis], scale, settings)[0]


def _means(
    totals: FloatArray, masses: FloatArray, settings: Resampling
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return estimates (columns,), resampled (resamples, columns) and jackknifed (clusters, columns) ratios of sums."""
    columns, cluster_count = totals.shape
    all_total, all_mass = totals.sum(axis=1), masses.sum(axis=1)
    if cluster_count < 2:
        estimates = all_total / all_mass if cluster_count else np.full(columns, np.nan)
        return estimates, np.empty((0, columns)), None
    distinct, which = np.unique(masses, axis=0, return_inverse=True)
    # With equal masses (no clusters, no weights) the denominator is the same in all resamples.
    uneven = (distinct != distinct[:, :1]).any(axis=1)

    def ratio(counts: FloatArray) -> FloatArray:
        mass = np.repeat(distinct.sum(axis=1)[None], len(counts), axis=0)
        mass[:, uneven] = weighted_sums(counts, distinct[uneven])
        means: FloatArray = weighted_sums(counts, totals) / mass[:, which.ravel()]
        return means

    sampled = replicates(ratio, cluster_count, settings)
    jackknifed = None
    if settings.method == "bca":
        with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 without a weight that dwarfs the rest
            jackknifed = ((all_total[:, None] - totals) / (all_mass[:, None] - masses)).T
    return all_total / all_mass, sampled, jackknifed
