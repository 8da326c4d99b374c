"""Pearson's and Spearman's correlation, with intervals.

Without clusters the intervals use Fisher's z with standard error 1/√(n − 3) for Pearson and √((1 + r²/2)/(n − 3)) for
Spearman (Bonett & Wright, *Psychometrika* 65, 2000). Both assume independent instances, as does the t-test's p-value;
with ``clusters`` the bootstrap over clusters is used, without p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.scoring.statistics.bootstrap import bootstrap_by_counts
from rightlung.scoring.statistics.inputs import (
    Clusters,
    FloatArray,
    IndexArray,
    as_floats,
    check_same_length,
    cluster_index,
)
from rightlung.scoring.statistics.intervals import Interval, Options, Resampling, Sample
from rightlung.scoring.statistics.resampling import (
    CountStatistic,
    intervals_of_counts,
    places_by_length,
    remaining_sums,
    weighted_sums,
)

# A resample whose variance is below this share of the whole sample's is constant but for rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Correlation(Interval):
    """A correlation and its interval; ``method`` is ``fisher-z``, ``bonett-wright``, ``bca`` or ``percentile``."""

    p: float
    """Two-sided p-value of the t-test; NaN with clusters, because their instances are not independent."""


def pearson(x: ArrayLike, y: ArrayLike, *, clusters: Clusters | None = None, **options: Unpack[Options]) -> Correlation:
    """Return the linear correlation of ``x`` and ``y`` (instances,). Pairs with a NaN are left out and counted.

    ``method``, ``resamples``, ``seed`` and ``workers`` apply with ``clusters`` only.

    >>> pearson([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 6]).sentence()
    '0.886 (95 % interval 0.264 to 0.987)'
    """
    settings = Resampling(**options)
    columns, used = _pairs(x, y)
    if clusters is not None:
        return pearson_pairs(columns, [(0, 1)], clusters=clusters, names=("x", "y"), **options)[0]
    first, second = columns[used].T
    sample = Sample(len(first), int((~used).sum()), len(first), False)
    if reason := _no_correlation({"x": first, "y": second}):
        return _none(reason, "fisher-z", settings.level, sample)
    estimate = _of_scores(_standardised(first), _standardised(second))
    return _closed_form(estimate, 1.0, "fisher-z", sample, settings.level)


def pearson_pairs(
    values: ArrayLike,
    pairs: Sequence[tuple[int, int]],
    *,
    clusters: Clusters,
    names: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> list[Correlation]:
    """Return the linear correlations of ``pairs`` of columns of ``values`` (instances, columns), resampling clusters.

    Each equals `pearson` of the two columns; pairs share resamples where possible. ``names`` of the columns appear in
    reasons.
    """
    settings = Resampling(**options)
    array = as_floats("values", values, 2)
    index = cluster_index(clusters, len(array))
    found: dict[int, Correlation] = {}
    places, samples, sums = [], [], []  # of the pairs that have a correlation; sums: (6, clusters) each
    for place, pair in enumerate(pairs):
        columns = array[:, list(pair)]
        used = ~np.isnan(columns).any(axis=1)
        x, y = columns[used].T
        sample = Sample(len(x), len(array) - len(x), len(np.unique(index[used])), True)
        called = [names[column] if names else f"column {column}" for column in pair]
        if reason := _no_correlation(dict(zip(called, (x, y), strict=True))):
            found[place] = _none(reason, settings.method, settings.level, sample)
        else:
            places.append(place)
            samples.append(sample)
            sums.append(remaining_sums(_products(x, y).T, index[used]))
    for members in places_by_length(sums).values():
        distinct, which = np.unique(np.concatenate([sums[one] for one in members]), axis=0, return_inverse=True)
        six = which.reshape(len(members), 6)

        def statistic(counts: FloatArray, sums: FloatArray = distinct, six: IndexArray = six) -> FloatArray:
            return _of_moments(weighted_sums(counts, sums)[:, six])

        intervals = intervals_of_counts(statistic, [samples[one] for one in members], 1.0, settings)
        for one, interval in zip(members, intervals, strict=True):
            found[places[one]] = Correlation(**asdict(interval), p=math.nan)
    return [found[place] for place in range(len(pairs))]


def pearson_by_counts(x: FloatArray, y: FloatArray) -> CountStatistic:
    """Return the linear correlation of ``x`` and ``y`` (instances,) as a function of how often each is drawn.

    >>> float(pearson_by_counts(np.array([1.0, 2, 3]), np.array([1.0, 2, 2]))(np.array([[1.0, 1, 0]]))[0])
    1.0
    """
    if _no_correlation({"x": x, "y": y}):
        return lambda counts: np.full(len(counts), np.nan)
    parts = _products(x, y)
    return lambda counts: _of_moments(weighted_sums(counts, parts))


def spearman_rows(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the rank correlation of each row of two (rows, n) arrays; NaN if a value is missing or constant."""
    from scipy.stats import rankdata

    x, y = (np.asarray(rankdata(part, axis=1)) - (part.shape[1] + 1) / 2 for part in (first, second))
    scale = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    result: FloatArray = np.where(scale > 0, (x * y).sum(axis=1) / np.where(scale > 0, scale, 1.0), np.nan)
    return result


def spearman(
    x: ArrayLike, y: ArrayLike, *, clusters: Clusters | None = None, **options: Unpack[Options]
) -> Correlation:
    """Return the rank correlation of ``x`` and ``y`` (instances,); tied values share their mean rank.

    With ``clusters``, ranks are recomputed in every resample.

    >>> spearman([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 60]).sentence()
    '0.886 (95 % interval 0.066 to 0.992)'
    """
    settings = Resampling(**options)
    columns, used = _pairs(x, y)
    first, second = columns[used].T
    kept = None if clusters is None else cluster_index(clusters, len(used))[used]
    sample = Sample(len(first), int((~used).sum()), len(first if kept is None else np.unique(kept)), kept is not None)
    if reason := _no_correlation({"x": first, "y": second}):
        return _none(reason, "bonett-wright" if clusters is None else settings.method, settings.level, sample)
    ranks_first, ranks_second = _Ranks(first), _Ranks(second)
    once = np.ones((1, len(first)))
    if clusters is None:
        estimate = _of_scores(_standardised(ranks_first(once)[0]), _standardised(ranks_second(once)[0]))
        return _closed_form(estimate, 1 + estimate * estimate / 2, "bonett-wright", sample, settings.level)

    def of_counts(counts: FloatArray) -> FloatArray:
        # Ranks are centred and scaled to keep the moments' rounding small; a correlation does not notice.
        total = counts.sum(axis=1)
        centred = [(ranks(counts) - (total[:, None] + 1) / 2) / total[:, None] for ranks in (ranks_first, ranks_second)]
        left, right = centred
        parts = [None, left, right, left * left, right * right, left * right]
        sums = [total if part is None else np.einsum("ri,ri->r", counts, part) for part in parts]
        return _of_moments(np.stack(sums, axis=1))

    interval = bootstrap_by_counts(of_counts, len(first), clusters=kept, **options)
    return Correlation(**{**asdict(interval), "undefined": sample.undefined}, p=math.nan)


class _Ranks:
    """Mean ranks of values, sorted once, for any counts of how often each is drawn."""

    def __init__(self, values: FloatArray) -> None:
        _, self.place, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.order = np.argsort(self.place, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def __call__(self, counts: FloatArray) -> FloatArray:
        """Ranks (rows, instances) for counts (rows, instances)."""
        tied = counts[:, self.order]
        if len(self.starts) < tied.shape[1]:
            tied = np.add.reduceat(tied, self.starts, axis=1)
        ranks: FloatArray = (np.cumsum(tied, axis=1) - (tied - 1) / 2)[:, self.place]
        return ranks


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return both as columns (instances, 2), and where both are defined."""
    first, second = as_floats("x", x), as_floats("y", y)
    check_same_length(x=first, y=second)
    return np.stack([first, second], axis=1), ~(np.isnan(first) | np.isnan(second))


def _no_correlation(columns: Mapping[str, FloatArray]) -> str | None:
    for name, values in columns.items():
        if len(values) < 2:
            return f"a correlation needs at least 2 pairs; got {len(values)}"
        if (values == values[0]).all():
            return f"{name} is constant ({values[0]:g}): its correlation is undefined"
    return None


def _none(reason: str, method: str, level: float, sample: Sample) -> Correlation:
    basis = (sample.n, sample.undefined, sample.clusters)
    return Correlation(math.nan, math.nan, math.nan, float(level), method, 0, *basis, reason, p=math.nan)


def _standardised(values: FloatArray) -> FloatArray:
    """Return values centred and of unit length, scaled before squaring to avoid under- and overflow."""
    middle = values.min() / 2 + values.max() / 2  # taken off first, so that a large offset costs no digits
    centred = values - middle
    centred /= np.abs(centred).max()
    centred -= centred.mean()
    result: FloatArray = centred / math.sqrt(float((centred * centred).sum()))
    return result


def _products(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return 1, x, y, x², y² and xy of the standardised values, (6, instances), whose sums give the correlation."""
    first, second = _standardised(x), _standardised(y)
    return np.array([np.ones(len(first)), first, second, first * first, second * second, first * second])


def _of_scores(first: FloatArray, second: FloatArray) -> float:
    product = float((first * second).sum())
    # A correlation that differs from one by rounding only is one.
    return math.copysign(1.0, product) if abs(product) > 1 - 1e-12 else product


def _of_moments(moments: FloatArray) -> FloatArray:
    """Return the correlation from (…, 6) sums of 1, x, y, x², y², xy; NaN if x or y is constant."""
    n, x, y, xx, yy, xy = np.moveaxis(moments, -1, 0)
    var_x, var_y = xx - x * x / n, yy - y * y / n
    varies = (var_x > _NO_VARIANCE * np.maximum(xx, 1e-300)) & (var_y > _NO_VARIANCE * np.maximum(yy, 1e-300))
    scale = np.sqrt(np.where(varies, var_x * var_y, 1.0))
    return np.where(varies, np.clip((xy - x * y / n) / scale, -1.0, 1.0), np.nan)


def _closed_form(estimate: float, variance: float, method: str, sample: Sample, level: float) -> Correlation:
    """Return the interval of Fisher's z with ``variance`` / (n − 3), and the t-test on n − 2 degrees of freedom."""
    from scipy.special import ndtri, stdtr

    n, reason, p = sample.n, None, math.nan
    if n > 2:
        t = math.inf if abs(estimate) == 1 else abs(estimate) * math.sqrt((n - 2) / (1 - estimate**2))
        p = float(2 * stdtr(n - 2, -t))
    if n < 4:
        low, high = -1.0, 1.0
        reason = f"an interval needs at least 4 pairs; got {n}"
    elif abs(estimate) == 1:
        low = high = estimate
        reason = "zero width: the correlation is perfect"
    else:
        half = float(ndtri((1 + level) / 2)) * math.sqrt(variance / (n - 3))
        low, high = math.tanh(math.atanh(estimate) - half), math.tanh(math.atanh(estimate) + half)
    return Correlation(estimate, low, high, float(level), method, 0, n, sample.undefined, None, reason, p=p)
