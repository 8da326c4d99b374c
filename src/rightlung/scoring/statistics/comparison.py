"""Is one better than the other on the same instances? Paired, because the instances are the same; clustered by patient.

The interval is the bootstrap's. The p-value is a sign-flip (randomisation) test: if neither were better, which of the
two results of a patient belongs to which would be arbitrary, so all instances of a patient are swapped together
(Good, *Permutation, Parametric and Bootstrap Tests of Hypotheses*, 2005, chapter 3). With few patients all patterns of
swaps are enumerated and the p-value is exact; else the observed pattern counts as one of those drawn (Phipson & Smyth,
*Statistical Applications in Genetics and Molecular Biology* 9, 2010), so that p is never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from rightlung.scoring.statistics.bootstrap import bootstrap
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
from rightlung.scoring.statistics.resampling import cluster_sums, weighted_sums

_SIGNS_AT_ONCE = 2**20


@dataclass(frozen=True, kw_only=True)
class Difference(Interval):
    """The interval of ``first`` minus ``second``, and whether it shows a difference."""

    first: float
    """The statistic of the first set of results, over the pairs used."""
    second: float
    p: float
    """Two-sided sign-flip p-value; NaN where there is nothing to flip."""
    exact: bool
    """Whether ``p`` comes from all patterns of flips instead of drawn ones."""
    shown: bool
    """Whether the interval excludes zero **and** the p-value is below 1 − level."""

    def sentence(self, digits: int = 3) -> str:
        """Say what was found, first of all whether anything was."""
        if math.isnan(self.estimate) or not self.defined:
            return f"no difference shown: {self.reason}"
        basis = f"{self.n} pairs" + (f", {self.clusters} clusters" if self.clusters is not None else "")
        span = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        p = f"p < {10**-digits:.{digits}f}" if self.p < 10**-digits else f"p = {self.p:.{digits}f}"
        verdict = "difference shown" if self.shown else "no difference shown"
        return f"{verdict}: {self.estimate:+.{digits}f} ({100 * self.level:g} % interval {span}; {p}; {basis})"


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    statistic: str | Callable[[FloatArray], float] = "mean",
    clusters: Clusters | None = None,
    resamples: int = 10_000,
    method: Method = "bca",
    level: float = 0.95,
    seed: int = 0,
    workers: int | None = None,
) -> Difference:
    """Compare the results ``a`` and ``b`` of two systems on the same instances, in the same order.

    With ``"mean"``, both are (instances,) and the difference is mean(a − b). A callable takes the rows of one of them,
    (instances, …), and returns a number: the difference is statistic(a) − statistic(b). It is called four times a
    resample. Pairs with a NaN on either side are left out and counted. ``resamples`` is also the number of sign flips.

    >>> ours = [0.8, 0.7, 0.9, 0.6, 0.8, 0.9, 0.7, 0.8]
    >>> theirs = [0.7, 0.6, 0.9, 0.4, 0.6, 0.6, 0.5, 0.7]
    >>> paired_difference(ours, theirs).sentence()
    'difference shown: +0.150 (95 % interval 0.088 to 0.213; p = 0.016; 8 pairs)'
    """
    check_settings(resamples=resamples, method=method, level=level, seed=seed)
    dimensions = 1 if isinstance(statistic, str) else None
    first, second = as_floats("a", a, dimensions), as_floats("b", b, dimensions)
    check_same_length(a=first, b=second)
    index = np.arange(len(first)) if clusters is None else cluster_index(clusters, len(first))

    pairs = np.stack([first, second], axis=1)
    used = ~np.asarray(np.isnan(pairs).any(axis=tuple(range(1, pairs.ndim))))
    kept, kept_index = pairs[used], np.unique(index[used], return_inverse=True)[1]

    if isinstance(statistic, str):
        interval = bootstrap(
            first - second,
            statistic,
            clusters=clusters,
            resamples=resamples,
            method=method,
            level=level,
            seed=seed,
            workers=workers,
        )
        sides = kept.mean(axis=0) if len(kept) else np.full(2, np.nan)
        sums = cluster_sums(kept[:, 0] - kept[:, 1], kept_index, int(kept_index.max(initial=-1)) + 1)
        p, exact = _flip_sums(sums, resamples, seed)
    else:
        of_one = statistic
        interval = bootstrap(
            pairs,
            lambda sample: of_one(sample[:, 0]) - of_one(sample[:, 1]),
            clusters=clusters,
            resamples=resamples,
            method=method,
            level=level,
            seed=seed,
        )
        sides = np.full(2, np.nan)
        p, exact = math.nan, False
        if len(kept):
            sides = np.array([of_one(kept[:, 0]), of_one(kept[:, 1])], dtype=np.float64)
            p, exact = _flip_pairs(kept, kept_index, of_one, resamples, seed)
    if not interval.defined:
        p, exact = math.nan, False
    # Both, because a bootstrap interval is too narrow where patients are few (two of them can never give p < 0.5), and
    # the test alone says nothing of the size.
    shown = interval.excludes(0.0) and p < 1 - level
    return Difference(
        **asdict(interval),
        first=float(sides[0]),
        second=float(sides[1]),
        p=p,
        exact=exact,
        shown=shown,
    )


def _flips(cluster_count: int, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Patterns of flips, (rows, clusters) of 0 and 1: all if they are at most ``resamples``, else drawn."""
    if 2**cluster_count <= resamples:
        patterns = np.arange(2**cluster_count)[:, None] >> np.arange(cluster_count) & 1
        yield patterns.astype(np.float64)
        return
    rows = max(1, _SIGNS_AT_ONCE // cluster_count)
    for group, start in enumerate(range(0, resamples, rows)):
        # A second number in the key: these streams are others than those of the resamples.
        stream = np.random.SeedSequence(seed, spawn_key=(group, 1))
        size = (min(rows, resamples - start), -(-cluster_count // 8))
        drawn = np.random.Generator(np.random.SFC64(stream)).integers(0, 256, size=size, dtype=np.uint8)
        yield np.unpackbits(drawn, axis=1, count=cluster_count).astype(np.float64)


def _p_value(observed: float, flipped: FloatArray, tolerance: float, exact: bool) -> float:
    """Share of patterns at least as extreme as what was observed; what differs by rounding only is as extreme."""
    extreme = int((np.abs(flipped) >= abs(observed) - tolerance).sum())
    return extreme / len(flipped) if exact else (extreme + 1) / (len(flipped) + 1)


def _flip_sums(sums: FloatArray, resamples: int, seed: int) -> tuple[float, bool]:
    """The test of a mean. Flipping leaves the number of instances as it is, so that the sum can stand for the mean."""
    if not len(sums):
        return math.nan, False
    observed = float(sums.sum())
    exact = 2 ** len(sums) <= resamples
    parts = [observed - 2 * weighted_sums(flips, sums[None])[:, 0] for flips in _flips(len(sums), resamples, seed)]
    return _p_value(observed, np.concatenate(parts), 1e-12 * float(np.abs(sums).sum()), exact), exact


def _flip_pairs(
    pairs: FloatArray,
    index: np.ndarray[tuple[int], np.dtype[np.intp]],
    statistic: Callable[[FloatArray], float],
    resamples: int,
    seed: int,
) -> tuple[float, bool]:
    """The test of any statistic: the two results of a cluster change places."""
    cluster_count = int(index.max()) + 1
    exact = 2**cluster_count <= resamples
    swapped = pairs[:, ::-1]
    shape = (-1, *[1] * (pairs.ndim - 1))
    flipped = []
    for flips in _flips(cluster_count, resamples, seed):
        for row in flips:
            exchanged = np.where(row[index].astype(bool).reshape(shape), swapped, pairs)
            flipped.append(float(statistic(exchanged[:, 0])) - float(statistic(exchanged[:, 1])))
    observed = float(statistic(pairs[:, 0])) - float(statistic(pairs[:, 1]))
    differences = np.array(flipped)
    differences = differences[~np.isnan(differences)]
    if math.isnan(observed) or not len(differences):
        return math.nan, False
    return _p_value(observed, differences, 1e-12 * max(abs(observed), 1.0), exact), exact
