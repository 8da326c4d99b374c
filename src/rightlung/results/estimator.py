"""Estimate means, differences and correlations of many columns at once, with confidence intervals over patients.

A column is an array with one value per instance, NaN where undefined. The statistics are those of
`rightlung.scoring.statistics`; columns with the same number of patients share bootstrap resamples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.scoring.statistics import (
    bootstrap_by_counts,
    bootstrap_columns,
    holm,
    paired_differences,
    pearson_by_counts,
    pearson_pairs,
    sign_flip_test,
    smallest_p,
    spearman,
)
from rightlung.scoring.statistics.correlation import spearman_rows
from rightlung.scoring.statistics.inputs import cluster_index
from rightlung.scoring.statistics.intervals import Method
from rightlung.scoring.statistics.swapping import swap_test

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

VALUES_AT_ONCE = 1 << 22
"""Number of requested values (32 MiB) at which estimates are computed, so that requests do not fill the memory."""


class Estimator:
    """Make estimates over instances; ``clusters`` has the patient of each instance."""

    def __init__(self, clusters: Sequence[Any] | NDArray[Any], settings: BootstrapSettings | None = None) -> None:
        self.clusters = cluster_index(clusters, len(clusters))
        self.settings = settings or BootstrapSettings()

    @property
    def _options(self) -> dict[str, Any]:
        return {"clusters": self.clusters, **self.settings.as_options()}

    def _table(self, columns: Sequence[Floats]) -> Floats:
        return np.array(columns, dtype=np.float64).reshape(len(columns), len(self.clusters)).T

    def means(self, columns: Sequence[Floats]) -> list[Estimate]:
        """Return the mean of each column over its defined instances."""
        return [Estimate.of(found) for found in bootstrap_columns(self._table(columns), **self._options)]

    def mean(self, column: Floats) -> Estimate:
        """Return the mean of one column."""
        return self.means([column])[0]

    def differences(self, firsts: Sequence[Floats], seconds: Sequence[Floats]) -> list[Comparison]:
        """Return the paired differences of pairs of columns, first minus second, with sign-flip tests."""
        tables = self._table(firsts), self._table(seconds)
        found = paired_differences(*tables, **self._options, flips=self.settings.flips)
        return [Comparison.tested(one, one.p, one.smallest_p) for one in found]

    def difference(self, first: Floats, second: Floats) -> Comparison:
        """Return the paired difference of two columns."""
        return self.differences([first], [second])[0]

    def p_values(self, columns: Sequence[Floats]) -> list[float]:
        """Return the sign-flip p-value of each column for a mean of zero; NaN where nothing is defined."""
        settings = self.settings
        p, _ = sign_flip_test(self._table(columns), clusters=self.clusters, flips=settings.flips, seed=settings.seed)
        return [float(value) for value in p]

    def adjusted(self, comparisons: Sequence[Comparison], counted: Sequence[bool] | None = None) -> list[Comparison]:
        """Apply Holm's correction to one family of tests; a difference is shown only if it stays significant.

        Comparisons with ``counted`` false (because of few patients, say) are not tests: they show nothing and do not
        affect the others. ``smallest_p`` becomes the smallest p-value after the correction, given the other tests.
        """
        flags = [True] * len(comparisons) if counted is None else list(counted)
        places = np.flatnonzero(flags).tolist()
        tests = np.array([comparisons[place].p for place in places])
        found = [replace(one, p_adjusted=None, shown=False, smallest_p=1.0) for one in comparisons]
        for at, (place, p) in enumerate(zip(places, holm(tests).tolist() if places else (), strict=True)):
            one = comparisons[place]
            smallest = float(holm(np.where(np.arange(len(tests)) == at, one.smallest_p, tests))[at])
            shown = one.shown and p < 1 - self.settings.level
            found[place] = replace(one, p_adjusted=p, shown=shown, smallest_p=smallest)
        return found

    def aggregate(
        self, statistic: Callable[[Floats], Floats], used: Flags, scale: float = 1.0, method: Method = "bca"
    ) -> Estimate:
        """Return a statistic that is not a mean (AUROC, MCC, mAP, …) of the ``used`` instances.

        ``statistic`` maps counts of each instance per resample, (resamples, instances), to values (resamples,), NaN
        where undefined; ``scale`` is the magnitude of its values.
        """
        clusters = self.clusters[used]
        options = {**self._options, "clusters": clusters, "scale": scale, "method": method}
        return Estimate.of(bootstrap_by_counts(statistic, len(clusters), **options))

    def paired_aggregate(
        self,
        first: Callable[[Floats], Floats],
        second: Callable[[Floats], Floats],
        pooled: Callable[[Floats], Floats],
        used: Flags,
        flips: int,
    ) -> Comparison:
        """Return the paired difference of a statistic that is not a mean, with a swap test (`swap_test`).

        ``first`` and ``second`` map counts of the ``used`` instances to the values of two models, ``pooled`` weights of
        both models' results.
        """
        clusters, seed = self.clusters[used], self.settings.seed
        options = {**self._options, "clusters": clusters}
        found = bootstrap_by_counts(lambda counts: first(counts) - second(counts), len(clusters), **options)
        if not found.defined:
            return Comparison.tested(found, math.nan, 1.0)
        p, _ = swap_test(pooled, clusters, flips=flips, seed=seed)
        return Comparison.tested(found, p, smallest_p(found.resampled, flips))

    def contrast(self, first: Floats, second: Floats, method: Method = "bca") -> Estimate:
        """Return mean(first) − mean(second) of columns that are defined for different instances of the same patients.

        Use ``percentile`` if leaving out one patient can leave a column without any instance.
        """
        used = ~(np.isnan(first) & np.isnan(second))
        columns = [first[used], second[used]]
        scale = float(np.nanmax(np.abs(columns), initial=0.0))
        return self.aggregate(lambda counts: np.subtract(*_means(counts, columns).T), used, scale, method)

    def correlation(
        self, first: Floats, second: Floats, kind: Literal["pearson", "spearman"] = "pearson"
    ) -> Comparison:
        """Return the correlation of two columns, with a sign-flip test of the mean product of centred values."""
        used = ~(np.isnan(first) | np.isnan(second))
        if kind == "pearson":
            found = pearson_pairs(self._table([first, second]), [(0, 1)], **self._options)[0]
            pair = [first[used], second[used]]
        else:
            from scipy.stats import rankdata

            found = spearman(first, second, **self._options)
            pair = [np.asarray(rankdata(column[used])) for column in (first, second)]
        if not found.defined:
            return Comparison.tested(found, math.nan, 1.0)
        products = np.full(len(first), np.nan)
        products[used] = (pair[0] - pair[0].mean()) * (pair[1] - pair[1].mean())
        p, smallest = self.p_values([products])[0], smallest_p(found.resampled, self.settings.flips)
        return Comparison.tested(found, p, smallest)

    def correlations(self, values: Mapping[str, Floats]) -> dict[tuple[str, str], Estimate]:
        """Return the Pearson correlation of each pair of columns, by their names."""
        names = list(values)
        pairs = list(itertools.combinations(range(len(names)), 2))
        found = pearson_pairs(self._table(list(values.values())), pairs, names=names, **self._options)
        return {(names[x], names[y]): Estimate.of(one) for (x, y), one in zip(pairs, found, strict=True)}

    def correlation_contrast(self, values: Floats, first: Floats, second: Floats) -> Estimate:
        """Return the Pearson correlation of ``values`` with ``first`` minus that with ``second``."""
        used = ~(np.isnan(values) | np.isnan(first) | np.isnan(second))
        one, other = (pearson_by_counts(values[used], column[used]) for column in (first, second))
        return self.aggregate(lambda counts: one(counts) - other(counts), used)

    def rank_correlation(self, firsts: Sequence[Floats], seconds: Sequence[Floats]) -> Estimate:
        """Return the Spearman correlation of the means of two lists of columns, e.g. of models by two measures."""
        used = np.asarray((~np.isnan(self._table([*firsts, *seconds]))).any(axis=1))
        columns = [column[used] for column in (*firsts, *seconds)]

        def statistic(counts: Floats) -> Floats:
            means = _means(counts, columns).round(12)  # rounding errors would break ties
            return spearman_rows(means[:, : len(firsts)], means[:, len(firsts) :])

        return self.aggregate(statistic, used)


def _means(counts: Floats, columns: Sequence[Floats]) -> Floats:
    """Return the means of columns (instances,) for each row of ``counts``: (rows, columns), NaN where undefined."""
    means = np.empty((len(counts), len(columns)))
    for place, column in enumerate(columns):
        there = ~np.isnan(column)
        drawn = np.einsum("ri,i->r", counts, there.astype(np.float64))
        total = np.einsum("ri,i->r", counts, np.where(there, column, 0.0))
        means[:, place] = np.where(drawn > 0, total / np.where(drawn > 0, drawn, 1.0), np.nan)
    return means


class Deferred:
    """Collect requests for estimates and compute them together when the first is read.

    >>> deferred = Deferred(Estimator(["a", "b"], BootstrapSettings(resamples=10)))
    >>> mean = deferred.mean(np.array([1.0, 2.0]))
    >>> mean().value
    1.5
    """

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._columns: list[Floats] = []
        self._pairs: list[tuple[Floats, Floats]] = []
        self._means: list[Estimate] = []
        self._differences: list[Comparison] = []

    def mean(self, column: Floats) -> Callable[[], Estimate]:
        """Request a mean."""
        place = len(self._means) + len(self._columns)
        self._columns.append(column)
        self._compute(VALUES_AT_ONCE)
        return lambda: self._compute()[0][place]

    def difference(self, first: Floats, second: Floats) -> Callable[[], Comparison]:
        """Request a paired difference."""
        place = len(self._differences) + len(self._pairs)
        self._pairs.append((first, second))
        self._compute(VALUES_AT_ONCE)
        return lambda: self._compute()[1][place]

    def _compute(self, least: int = 0) -> tuple[list[Estimate], list[Comparison]]:
        """Compute what is requested, if it holds at least so many values; the result does not depend on when."""
        if (len(self._columns) + 2 * len(self._pairs)) * len(self._estimator.clusters) >= least:
            if self._columns:
                self._means += self._estimator.means(self._columns)
            if self._pairs:
                self._differences += self._estimator.differences(*zip(*self._pairs, strict=True))
            self._columns, self._pairs = [], []
        return self._means, self._differences
