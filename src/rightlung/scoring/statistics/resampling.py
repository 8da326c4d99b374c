"""The engine of the bootstrap: draw clusters, compute the statistic, read off the interval.

A resample is stored as **how often each cluster was drawn**; means are products of these counts with cluster sums. Each
group of resamples has its own random stream, and the group size depends on the number of clusters only, so that the
result does not depend on the number of threads. Sums avoid BLAS, whose last bits depend on its threads.

BCa follows Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 14: ties count half in the bias
correction, as in SciPy, and the acceleration comes from a jackknife that leaves out one *cluster* at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rightlung.scoring.statistics.inputs import FloatArray, IndexArray
from rightlung.scoring.statistics.intervals import Interval, Resampling, Sample
from rightlung.scoring.threads import in_threads

# Counts held at once by one thread: two megabytes of float64, about a core's cache.
COUNTS_AT_ONCE = 2**18
_ROWS_AT_ONCE = 1024
_DRAWS_AT_ONCE = 2**16
# Relative difference below which two values count as tied.
_ROUNDING = 1e-12

CountStatistic = Callable[[FloatArray], FloatArray]
"""From counts, (rows, instances or clusters), to one number a row: (rows,) or (rows, columns)."""


def intervals_of_counts(
    statistic: CountStatistic, samples: Sequence[Sample], scale: float, settings: Resampling
) -> list[Interval]:
    """Return the intervals of a statistic of **cluster** counts, (rows, clusters) to (rows, columns), one sample per
    column.

    All samples have the same number of clusters.
    """
    cluster_count = samples[0].cluster_count
    estimates, sampled, jackknifed = np.full(len(samples), np.nan), np.empty((0, len(samples))), None
    if cluster_count:
        estimates = statistic(np.ones((1, cluster_count)))[0]
    if cluster_count > 1 and not np.isnan(estimates).all():
        sampled = replicates(statistic, cluster_count, settings)
        if settings.method == "bca":
            jackknifed = _jackknife(statistic, cluster_count)
    return [
        interval_of_replicates(
            float(estimate),
            sampled[:, column],
            None if jackknifed is None else jackknifed[:, column],
            samples[column],
            max(scale, abs(estimate)),
            settings,
        )
        for column, estimate in enumerate(estimates.tolist())
    ]


def draw_counts(cluster_count: int, *, resamples: int, seed: int, group: int | None = None) -> FloatArray:
    """Return how often each cluster is drawn in each resample: (resamples, clusters) float64.

    With ``group``, return that group of resamples only.
    """
    if group is None:
        groups = range(_group_count(cluster_count, resamples))
        return np.concatenate([draw_counts(cluster_count, resamples=resamples, seed=seed, group=at) for at in groups])
    size = _group_rows(cluster_count)
    counts = np.empty((min(size, resamples - group * size), cluster_count))
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(group,))))
    # A few rows at a time: allocating large temporary arrays would take as long as drawing.
    step = max(1, _DRAWS_AT_ONCE // cluster_count)
    for start in range(0, len(counts), step):
        rows = counts[start : start + step]
        drawn = generator.integers(0, cluster_count, size=rows.shape)
        drawn += (np.arange(len(rows)) * cluster_count)[:, None]
        rows[...] = np.bincount(drawn.ravel(), minlength=rows.size).reshape(rows.shape)
    return counts


def replicates(statistic: CountStatistic, cluster_count: int, settings: Resampling) -> FloatArray:
    """Return the statistic in every resample, (resamples, …), in an order that depends on the seed only."""
    resamples = settings.resamples

    def of_group(group: int) -> FloatArray:
        return statistic(draw_counts(cluster_count, resamples=resamples, seed=settings.seed, group=group))

    return np.concatenate(list(in_threads(of_group, _group_count(cluster_count, resamples), settings.workers)))


def cluster_sums(values: FloatArray, index: IndexArray, cluster_count: int) -> FloatArray:
    """Return the sum of ``values`` (instances,) in each cluster: (clusters,)."""
    return np.asarray(np.bincount(index, weights=values, minlength=cluster_count), dtype=np.float64)


def remaining_sums(values: FloatArray, index: IndexArray) -> FloatArray:
    """Return the sums of ``values`` (instances, columns) in each non-empty cluster: (columns, clusters)."""
    count = int(index.max(initial=-1)) + 1
    there = np.bincount(index, minlength=count) > 0
    sums = [cluster_sums(column, index, count)[there] for column in values.T]
    return np.array(sums).reshape(values.shape[1], int(there.sum()))


def places_by_length(parts: Sequence[FloatArray]) -> dict[int, list[int]]:
    """Group (…, clusters) arrays by their number of clusters, and so by their resamples."""
    groups: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        groups.setdefault(part.shape[-1], []).append(place)
    return groups


def weighted_sums(counts: FloatArray, sums: FloatArray) -> FloatArray:
    """Return the sums of ``sums`` (columns, clusters) over the drawn clusters: (rows, columns).

    One column at a time, so that a column's sum does not depend on the other columns, to the last bit.
    """
    found = np.empty((len(sums), len(counts)))
    for row, column in zip(found, sums, strict=True):
        np.einsum("rc,c->r", counts, column, out=row)
    return found.T


def _group_rows(cluster_count: int) -> int:
    return max(1, min(_ROWS_AT_ONCE, COUNTS_AT_ONCE // cluster_count))


def _group_count(cluster_count: int, resamples: int) -> int:
    return -(-resamples // _group_rows(cluster_count))


def _jackknife(statistic: CountStatistic, cluster_count: int) -> FloatArray:
    """Return the statistic without each cluster in turn: (clusters,)."""
    parts = []
    for start in range(0, cluster_count, rows := _group_rows(cluster_count)):
        counts = np.ones((min(rows, cluster_count - start), cluster_count))
        counts[np.arange(len(counts)), start + np.arange(len(counts))] = 0
        parts.append(statistic(counts))
    return np.concatenate(parts)


def interval_of_replicates(
    estimate: float,
    sampled: FloatArray,
    jackknifed: FloatArray | None,
    sample: Sample,
    scale: float,
    settings: Resampling,
) -> Interval:
    """Return the interval of the resampled values, or the reason why there is none."""

    def result(low: float, high: float, reasons: list[str], resamples: int = 0) -> Interval:
        level, basis = float(settings.level), (sample.n, sample.undefined, sample.clusters)
        reason = "; ".join(reasons) or None
        return Interval(estimate, float(low), float(high), level, settings.method, resamples, *basis, reason)

    unit = "cluster" if sample.clustered else "instance"
    if not sample.cluster_count:
        return result(math.nan, math.nan, ["no instance has a defined value"])
    if sample.cluster_count == 1:
        return result(math.nan, math.nan, [f"one {unit} only: nothing to resample"])
    if math.isnan(estimate):
        return result(math.nan, math.nan, ["the statistic is undefined for these instances"])
    reasons = []
    finite = np.isfinite(sampled)
    defined = sampled if finite.all() else sampled[finite]
    if not len(defined):
        return result(math.nan, math.nan, ["the statistic is undefined in every resample"])
    if len(defined) < len(sampled):
        reasons.append(
            f"{len(sampled) - len(defined)} of {len(sampled)} resamples left out, their statistic is undefined"
        )
    tolerance = _ROUNDING * scale
    if np.ptp(defined) <= tolerance and abs(defined[0] - estimate) <= tolerance:
        return result(estimate, estimate, [*reasons, "zero width: all resamples are equal"], len(defined))
    tail = (1 - settings.level) / 2
    quantiles = np.array([tail, 1 - tail])
    if settings.method == "bca":
        assert jackknifed is not None
        if not np.isfinite(jackknifed).all():
            alone = int((~np.isfinite(jackknifed)).sum())
            reason = f"no BCa interval: without one of {alone} {unit}(s) the statistic is undefined (try 'percentile')"
            return result(math.nan, math.nan, [*reasons, reason], len(defined))
        quantiles, caveat = _bca_quantiles(estimate, defined, jackknifed, tolerance, quantiles)
        reasons += [caveat] if caveat else []
        if np.isnan(quantiles).any():
            return result(math.nan, math.nan, reasons, len(defined))
    low, high = np.quantile(defined, quantiles)
    return result(low, high, reasons, len(defined))


def _bca_quantiles(
    estimate: float, sampled: FloatArray, jackknifed: FloatArray, tolerance: float, quantiles: FloatArray
) -> tuple[FloatArray, str | None]:
    """Return bias-corrected and accelerated quantiles (Efron & Tibshirani 1993, Eqs. 14.9 to 14.15), and a caveat."""
    from scipy.special import ndtr, ndtri

    less = int((sampled < estimate - tolerance).sum())
    less_or_equal = int((sampled <= estimate + tolerance).sum())
    below = (less + less_or_equal) / (2 * len(sampled))
    undefined = np.full(2, np.nan)
    if below in (0.0, 1.0):
        side = "below" if below else "above"
        return undefined, f"no BCa interval: all resamples lie {side} the estimate (try 'percentile')"
    bias = float(ndtri(below))
    deviations = jackknifed.mean() - jackknifed
    caveat = None
    acceleration = 0.0
    if np.ptp(jackknifed) > tolerance:
        acceleration = float((deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5))
    else:
        caveat = "the acceleration is taken as 0: all leave-one-out values are equal"
    shifted = bias + ndtri(quantiles)
    denominator = 1 - acceleration * shifted
    if (denominator <= 0).any():
        return undefined, "no BCa interval: the acceleration is too strong for this level (try 'percentile')"
    return np.asarray(ndtr(bias + shifted / denominator), dtype=np.float64), caveat
