"""Paired comparisons of two systems on the same instances, clustered by patient.

The interval is the bootstrap's. The p-value is a sign-flip test: without a difference, the two results of a patient are
exchangeable, so all instances of a patient flip together (Good, *Permutation, Parametric and Bootstrap Tests of
Hypotheses*, 2005, chapter 3). With few patients all patterns are enumerated and p is exact; otherwise the observed
pattern counts as drawn (Phipson & Smyth 2010), so that p is never 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, check_known
from rightlung.scoring.statistics.bootstrap import bootstrap, bootstrap_columns
from rightlung.scoring.statistics.inputs import (
    Clusters,
    FloatArray,
    IndexArray,
    as_floats,
    check_same_length,
    cluster_index,
)
from rightlung.scoring.statistics.intervals import Interval, Options, Resampling
from rightlung.scoring.statistics.resampling import places_by_length, remaining_sums, weighted_sums
from rightlung.scoring.threads import in_threads

_SIGNS_AT_ONCE = 2**20

Verdict = Literal["difference shown", "no difference shown", "too few patients to tell"]


def verdict_of(shown: bool, smallest_p: float, level: float) -> Verdict:
    """Return the outcome of a comparison; with too few patients, no result could have shown a difference."""
    if shown:
        return "difference shown"
    return "no difference shown" if smallest_p < 1 - level else "too few patients to tell"


def smallest_p(clusters: int, flips: int) -> float:
    """Return the smallest p-value that a two-sided sign-flip test of this many clusters can give.

    >>> smallest_p(5, 10_000), smallest_p(8, 10_000)
    (0.0625, 0.0078125)
    """
    return min(1.0, 2.0 ** (1 - clusters)) if 2**clusters <= flips else 1 / (flips + 1)


def fewest_clusters(level: float) -> int:
    """Return from how many clusters on a sign-flip test can be significant.

    >>> fewest_clusters(0.95), fewest_clusters(0.9)
    (6, 5)
    """
    return next(count for count in itertools.count(1) if smallest_p(count, 2**count) < 1 - level)


@dataclass(frozen=True, kw_only=True)
class Difference(Interval):
    """The interval of ``first`` minus ``second``, and whether it shows a difference."""

    first: float
    """The statistic of the first results, over the pairs used."""
    second: float
    p: float
    """Two-sided sign-flip p-value; NaN if there is nothing to flip."""
    exact: bool
    """Whether ``p`` comes from all flip patterns instead of random ones."""
    shown: bool
    """Whether the interval excludes zero **and** ``p`` is below 1 − level."""
    smallest_p: float
    """The smallest p-value that this many clusters can give."""

    @property
    def verdict(self) -> Verdict:
        """The outcome in words."""
        return verdict_of(self.shown, self.smallest_p, self.level)

    def sentence(self, digits: int = 3) -> str:
        """Return the result in words, the verdict first."""
        if math.isnan(self.estimate) or not self.defined:
            return f"{self.verdict}: {self.reason}"
        basis = f"{self.n} pairs, {self.basis}" if self.clusters is not None else self.basis.replace("instance", "pair")
        span = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        p = f"p < {10**-digits:.{digits}f}" if self.p < 10**-digits else f"p = {self.p:.{digits}f}"
        return f"{self.verdict}: {self.estimate:+.{digits}f} ({100 * self.level:g} % interval {span}; {p}; {basis})"


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    statistic: str | Callable[[FloatArray], float] = "mean",
    clusters: Clusters | None = None,
    flips: int | None = None,
    **options: Unpack[Options],
) -> Difference:
    """Compare the results ``a`` and ``b`` of two systems on the same instances, in the same order.

    With ``"mean"``, both are (instances,) and the difference is mean(a − b). A callable takes rows (instances, …) and
    returns a number; it is called four times per resample. Pairs with a NaN are left out and counted. ``flips`` is the
    number of sign flips (default: ``resamples``).

    >>> ours = [0.8, 0.7, 0.9, 0.6, 0.8, 0.9, 0.7, 0.8]
    >>> theirs = [0.7, 0.6, 0.9, 0.4, 0.6, 0.6, 0.5, 0.7]
    >>> paired_difference(ours, theirs).sentence()
    'difference shown: +0.150 (95 % interval 0.088 to 0.213; p = 0.016; only 8 pairs)'
    """
    if isinstance(statistic, str):
        check_known("statistic", statistic, ["mean"])
        first, second = as_floats("a", a)[:, None], as_floats("b", b)[:, None]
        return paired_differences(first, second, clusters=clusters, flips=flips, **options)[0]
    settings = Resampling(**options)
    first, second = as_floats("a", a, None), as_floats("b", b, None)
    check_same_length(a=first, b=second)
    index = cluster_index(clusters, len(first))
    pairs = np.stack([first, second], axis=1)
    used = ~np.asarray(np.isnan(pairs).any(axis=tuple(range(1, pairs.ndim))))
    kept, kept_index = pairs[used], np.unique(index[used], return_inverse=True)[1]
    interval = bootstrap(
        pairs, lambda sample: statistic(sample[:, 0]) - statistic(sample[:, 1]), clusters=clusters, **options
    )
    flips = flips or settings.resamples
    if not len(kept):
        return _difference(interval, math.nan, math.nan, math.nan, False, flips)
    p, exact = _flip_pairs(kept, kept_index, statistic, flips, settings.seed)
    return _difference(interval, float(statistic(kept[:, 0])), float(statistic(kept[:, 1])), p, exact, flips)


def paired_differences(
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters: Clusters | None = None,
    flips: int | None = None,
    **options: Unpack[Options],
) -> list[Difference]:
    """Compare the means of the columns of ``a`` and ``b`` (instances, columns), each as `paired_difference` does."""
    first, second = as_floats("a", a, 2), as_floats("b", b, 2)
    check_same_length(a=first, b=second)
    if first.shape != second.shape:
        raise InputError(f"a has {first.shape[1]} columns and b has {second.shape[1]}")
    settings, values = Resampling(**options), first - second
    intervals = bootstrap_columns(values, clusters=clusters, **options)
    flips = flips or settings.resamples
    p, exact = sign_flip_test(values, clusters=clusters, flips=flips, seed=settings.seed, workers=settings.workers)
    found = []
    for column, interval in enumerate(intervals):
        used = ~np.isnan(values[:, column])
        sides = [float(part[used, column].mean()) if used.any() else math.nan for part in (first, second)]
        found.append(_difference(interval, sides[0], sides[1], float(p[column]), bool(exact[column]), flips))
    return found


def sign_flip_test(
    values: ArrayLike,
    *,
    clusters: Clusters | None = None,
    flips: int = 10_000,
    seed: int = 0,
    workers: int | None = None,
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return two-sided p-values of each column's mean being zero, and whether each is exact: (columns,) each.

    ``values`` (instances, columns) are paired differences, NaN if missing. All instances of a cluster flip together, in
    all patterns if there are at most ``flips``, else in ``flips`` random ones. NaN for a column without values.
    """
    array = as_floats("values", values, dimensions=2)
    index = cluster_index(clusters, len(array))
    # Flipping keeps the number of instances, so that sums can replace means.
    sums = [remaining_sums(column[used, None], index[used]) for column in array.T for used in [~np.isnan(column)]]
    p, exact = np.full(len(sums), np.nan), np.zeros(len(sums), dtype=bool)
    for cluster_count, columns in places_by_length(sums).items():
        if cluster_count:
            together = np.concatenate([sums[column] for column in columns])  # (columns, clusters)
            p[columns], exact[columns] = _flip_sums(together, flips, seed, workers), 2**cluster_count <= flips
    return p, exact


def _difference(interval: Interval, first: float, second: float, p: float, exact: bool, flips: int) -> Difference:
    if not interval.defined:
        p, exact = math.nan, False
    # Both, because bootstrap intervals are too narrow with few patients (two can never give p < 0.5).
    shown = interval.excludes(0.0) and p < 1 - interval.level
    least = smallest_p(interval.resampled, flips)
    return Difference(**asdict(interval), first=first, second=second, p=p, exact=exact, shown=shown, smallest_p=least)


def _flip_groups(cluster_count: int, flips: int) -> int:
    """Return the number of groups of flip patterns."""
    return 1 if 2**cluster_count <= flips else -(-flips // max(1, _SIGNS_AT_ONCE // cluster_count))


def _flips(cluster_count: int, flips: int, seed: int, group: int) -> FloatArray:
    """Return a group of flip patterns, (rows, clusters) of 0 and 1: all if there are at most ``flips``, else random."""
    if 2**cluster_count <= flips:
        patterns = np.arange(2**cluster_count)[:, None] >> np.arange(cluster_count) & 1
        return patterns.astype(np.float64)
    rows = max(1, _SIGNS_AT_ONCE // cluster_count)
    # The second number keeps these streams apart from those of the resamples.
    stream = np.random.SeedSequence(seed, spawn_key=(group, 1))
    size = (min(rows, flips - group * rows), -(-cluster_count // 8))
    drawn = np.random.Generator(np.random.SFC64(stream)).integers(0, 256, size=size, dtype=np.uint8)
    return np.unpackbits(drawn, axis=1, count=cluster_count).astype(np.float64)


def _flip_sums(sums: FloatArray, flips: int, seed: int, workers: int | None) -> FloatArray:
    """Test the means of columns, given their cluster sums (columns, clusters)."""
    count = sums.shape[1]
    observed = sums.sum(axis=1)
    # Differences by rounding only count as equally extreme.
    least = np.abs(observed) - 1e-12 * np.abs(sums).sum(axis=1)

    def extreme(group: int) -> NDArray[np.intp]:
        flipped = observed - 2 * weighted_sums(_flips(count, flips, seed, group), sums)
        return np.asarray((np.abs(flipped) >= least).sum(axis=0))

    times = np.sum(list(in_threads(extreme, _flip_groups(count, flips), workers)), axis=0)
    share: FloatArray = times / 2**count if 2**count <= flips else (times + 1) / (flips + 1)
    return share


def _flip_pairs(
    pairs: FloatArray, index: IndexArray, statistic: Callable[[FloatArray], float], flips: int, seed: int
) -> tuple[float, bool]:
    """Test any statistic by swapping the two results of a cluster."""
    cluster_count = int(index.max()) + 1
    exact = 2**cluster_count <= flips
    swapped = pairs[:, ::-1]
    shape = (-1, *[1] * (pairs.ndim - 1))
    flipped = []
    for group in range(_flip_groups(cluster_count, flips)):
        for row in _flips(cluster_count, flips, seed, group):
            exchanged = np.where(row[index].astype(bool).reshape(shape), swapped, pairs)
            flipped.append(float(statistic(exchanged[:, 0])) - float(statistic(exchanged[:, 1])))
    observed = float(statistic(pairs[:, 0])) - float(statistic(pairs[:, 1]))
    differences = np.array(flipped)
    differences = differences[~np.isnan(differences)]
    if math.isnan(observed) or not len(differences):
        return math.nan, False
    times = int((np.abs(differences) >= abs(observed) - 1e-12 * max(abs(observed), 1.0)).sum())
    return times / len(differences) if exact else (times + 1) / (len(differences) + 1), exact
