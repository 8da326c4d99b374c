"""Pearson's and Spearman's correlation, with intervals.

Without clusters the intervals are closed forms on Fisher's z scale: the standard error is 1/√(n − 3) for Pearson and
√((1 + r²/2)/(n − 3)) for Spearman (Bonett & Wright, *Psychometrika* 65, 2000), whose coverage holds up where
Fisher's own is too narrow for ranks. Both take instances as independent, so that with ``clusters`` the bootstrap over
clusters takes their place; the t-test's p-value makes the same assumption and is then not given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from rightlung.scoring.statistics.bootstrap import bootstrap_by_counts
from rightlung.scoring.statistics.intervals import (
    Clusters,
    FloatArray,
    Interval,
    Method,
    as_floats,
    check_same_length,
    check_settings,
    cluster_index,
)
from rightlung.scoring.statistics.resampling import cluster_sums, interval_of_counts, weighted_sums

# A resample whose variance is below this share of the whole sample's is constant but for rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class Correlation(Interval):
    """A correlation and its interval; ``method`` is ``fisher-z``, ``bonett-wright``, ``bca`` or ``percentile``."""

    p: float
    """Two-sided p-value of the t-test; NaN with clusters, because their instances are not independent."""


def pearson(
    x: ArrayLike,
    y: ArrayLike,
    *,
    clusters: Clusters | None = None,
    resamples: int = 10_000,
    method: Method = "bca",
    level: float = 0.95,
    seed: int = 0,
    workers: int | None = None,
) -> Correlation:
    """Linear correlation of ``x`` and ``y`` (instances,). Pairs with a NaN on either side are left out and counted.

    ``method``, ``resamples``, ``seed`` and ``workers`` matter with ``clusters`` only.

    >>> pearson([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 6]).sentence()
    '0.886 (95 % interval 0.264 to 0.987)'
    """
    check_settings(resamples=resamples, method=method, level=level, seed=seed)
    first, second, used = _pairs(x, y)
    undefined = len(used) - int(used.sum())
    if reason := _no_correlation(first, second):
        return _none(reason, "fisher-z" if clusters is None else method, level, first, undefined, clusters, used)
    first, second = _standardised(first), _standardised(second)
    if clusters is None:
        return _closed_form(_of_scores(first, second), lambda r: 1.0, "fisher-z", len(first), undefined, level)
    index = np.unique(cluster_index(clusters, len(used))[used], return_inverse=True)[1]
    parts = [np.ones(len(first)), first, second, first * first, second * second, first * second]
    moments = np.array([cluster_sums(part, index, int(index.max()) + 1) for part in parts])
    interval = interval_of_counts(
        lambda counts: _of_moments(weighted_sums(counts, moments)),
        moments.shape[1],
        scale=1.0,
        instances=len(first),
        undefined=undefined,
        clustered=True,
        resamples=resamples,
        method=method,
        level=level,
        seed=seed,
        workers=workers,
    )
    return Correlation(**asdict(interval), p=math.nan)


def spearman(
    x: ArrayLike,
    y: ArrayLike,
    *,
    clusters: Clusters | None = None,
    resamples: int = 10_000,
    method: Method = "bca",
    level: float = 0.95,
    seed: int = 0,
    workers: int | None = None,
) -> Correlation:
    """Rank correlation of ``x`` and ``y`` (instances,); tied values share their mean rank.

    With ``clusters``, ranks are taken anew in every resample, by counting; otherwise as ``pearson``.

    >>> spearman([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 60]).sentence()
    '0.886 (95 % interval 0.066 to 0.992)'
    """
    check_settings(resamples=resamples, method=method, level=level, seed=seed)
    first, second, used = _pairs(x, y)
    undefined = len(used) - int(used.sum())
    if reason := _no_correlation(first, second):
        return _none(reason, "bonett-wright" if clusters is None else method, level, first, undefined, clusters, used)
    ranks_first, ranks_second = _Ranks(first), _Ranks(second)
    once = np.ones((1, len(first)))
    if clusters is None:
        estimate = _of_scores(_standardised(ranks_first(once)[0]), _standardised(ranks_second(once)[0]))
        return _closed_form(estimate, lambda r: 1 + r * r / 2, "bonett-wright", len(first), undefined, level)

    def of_counts(counts: FloatArray) -> FloatArray:
        # Ranks are centred and scaled to keep the moments' rounding small; a correlation does not notice.
        total = counts.sum(axis=1)
        centred = [(ranks(counts) - (total[:, None] + 1) / 2) / total[:, None] for ranks in (ranks_first, ranks_second)]
        left, right = centred
        parts = [None, left, right, left * left, right * right, left * right]
        sums = [total if part is None else np.einsum("ri,ri->r", counts, part) for part in parts]
        return _of_moments(np.stack(sums, axis=1))

    kept = cluster_index(clusters, len(used))[used]
    interval = bootstrap_by_counts(
        of_counts,
        len(first),
        clusters=kept,
        resamples=resamples,
        method=method,
        level=level,
        seed=seed,
        workers=workers,
    )
    return Correlation(**{**asdict(interval), "undefined": undefined}, p=math.nan)


class _Ranks:
    """Mean ranks of values of which each was drawn some number of times; sorted once, ranked for any counts."""

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


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    first, second = as_floats("x", x), as_floats("y", y)
    check_same_length(x=first, y=second)
    used = ~(np.isnan(first) | np.isnan(second))
    return first[used], second[used], used


def _no_correlation(first: FloatArray, second: FloatArray) -> str | None:
    if len(first) < 2:
        return f"a correlation needs at least 2 pairs, and {len(first)} are defined"
    for name, values in (("x", first), ("y", second)):
        if (values == values[0]).all():
            return f"{name} is constant ({values[0]:g}): its correlation is undefined"
    return None


def _none(
    reason: str,
    method: str,
    level: float,
    first: FloatArray,
    undefined: int,
    clusters: Clusters | None,
    used: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> Correlation:
    count = None if clusters is None else len(np.unique(cluster_index(clusters, len(used))[used]))
    return Correlation(
        estimate=math.nan,
        low=math.nan,
        high=math.nan,
        level=float(level),
        method=method,
        resamples=0,
        n=len(first),
        undefined=undefined,
        clusters=count,
        reason=reason,
        p=math.nan,
    )


def _standardised(values: FloatArray) -> FloatArray:
    """Centred and of unit length, scaled before squaring so that neither tiny nor huge values are lost."""
    middle = values.min() / 2 + values.max() / 2  # taken off first, so that a large offset costs no digits
    centred = values - middle
    centred /= np.abs(centred).max()
    centred -= centred.mean()
    result: FloatArray = centred / math.sqrt(float((centred * centred).sum()))
    return result


def _of_scores(first: FloatArray, second: FloatArray) -> float:
    product = float((first * second).sum())
    # A correlation that misses one by rounding is one: no data of finite precision can show the difference.
    return math.copysign(1.0, product) if abs(product) > 1 - 1e-12 else product


def _of_moments(moments: FloatArray) -> FloatArray:
    """Correlation from (rows, 6) sums of 1, x, y, x², y², xy; NaN where x or y does not vary."""
    n, x, y, xx, yy, xy = moments.T
    var_x, var_y = xx - x * x / n, yy - y * y / n
    varies = (var_x > _NO_VARIANCE * np.maximum(xx, 1e-300)) & (var_y > _NO_VARIANCE * np.maximum(yy, 1e-300))
    scale = np.sqrt(np.where(varies, var_x * var_y, 1.0))
    return np.where(varies, np.clip((xy - x * y / n) / scale, -1.0, 1.0), np.nan)


def _closed_form(
    estimate: float, spread: Callable[[float], float], method: str, n: int, undefined: int, level: float
) -> Correlation:
    """Fisher's z interval with variance ``spread(r)`` / (n − 3), and the t-test on n − 2 degrees of freedom."""
    from scipy.special import ndtri, stdtr

    reason = None
    p = math.nan
    if n > 2:
        t = math.inf if abs(estimate) == 1 else abs(estimate) * math.sqrt((n - 2) / (1 - estimate**2))
        p = float(2 * stdtr(n - 2, -t))
    if n < 4:
        low, high = -1.0, 1.0
        reason = f"{n} pairs say nothing about the interval, which takes at least 4"
    elif abs(estimate) == 1:
        low = high = estimate
        reason = "zero width: the correlation is perfect"
    else:
        half = float(ndtri((1 + level) / 2)) * math.sqrt(spread(estimate) / (n - 3))
        low, high = math.tanh(math.atanh(estimate) - half), math.tanh(math.atanh(estimate) + half)
    return Correlation(
        estimate=estimate,
        low=low,
        high=high,
        level=float(level),
        method=method,
        resamples=0,
        n=n,
        undefined=undefined,
        clusters=None,
        reason=reason,
        p=p,
    )
