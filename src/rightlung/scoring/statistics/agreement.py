"""Krippendorff's alpha (*Content Analysis*, 4th ed. 2018, chapter 12), with missing ratings.

alpha = 1 − observed / expected disagreement: observed between ratings of the same unit, expected between all ratings.
Units with fewer than two ratings are left out. Everything is a function of how often each unit counts, so that the
bootstrap resamples units (or patients) with the same code. Krippendorff's own bootstrap draws pairs of ratings instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError, check_known
from rightlung.scoring.statistics.bootstrap import bootstrap_by_counts
from rightlung.scoring.statistics.inputs import Clusters, FloatArray, as_floats, cluster_index
from rightlung.scoring.statistics.intervals import Interval, Options
from rightlung.scoring.statistics.resampling import cluster_sums, weighted_sums

Measurement = Literal["nominal", "ordinal", "interval", "ratio"]
MEASUREMENTS = ("nominal", "ordinal", "interval", "ratio")
# All pairs of distinct ratio values are held in memory: 4,096² of them take 128 MB.
_RATIO_VALUES = 4096


def krippendorff_alpha(ratings: ArrayLike, measurement: Measurement = "nominal") -> float:
    """Return alpha of ``ratings`` (raters, units), NaN for a missing rating.

    1 is perfect agreement, 0 chance, below 0 systematic disagreement. NaN if no unit has two ratings or all are equal.

    >>> krippendorff_alpha([[1, 2, 3, 3], [1, 2, 3, 4]], measurement="ordinal").__round__(3)
    0.91
    """
    units = _Units(ratings, measurement)
    return math.nan if units.reason else float(units.alpha(np.ones((1, units.count)))[0])


def krippendorff_interval(
    ratings: ArrayLike,
    measurement: Measurement = "nominal",
    *,
    clusters: Clusters | None = None,
    **options: Unpack[Options],
) -> Interval:
    """Return alpha with an interval by resampling units, or the ``clusters`` (one entry per unit) they belong to.

    ``n`` counts units with at least two ratings, ``undefined`` the others.
    """
    units = _Units(ratings, measurement)
    kept = None if clusters is None else cluster_index(clusters, len(units.pairable))[units.pairable]
    interval = bootstrap_by_counts(units.alpha, units.count, clusters=kept, **options)
    undefined = int((~units.pairable).sum())
    return replace(interval, undefined=undefined, reason=units.reason or interval.reason)


class _Units:
    """Ratings of the units that have at least two."""

    def __init__(self, ratings: ArrayLike, level: str) -> None:
        check_known("level of measurement", level, MEASUREMENTS)
        table = as_floats("ratings", ratings, dimensions=2)
        if level == "ratio" and (table < 0).any():
            rater, unit = (int(axis[0]) for axis in np.nonzero(table < 0))
            raise InputError(f"ratings[{rater}, {unit}] is {table[rater, unit]}; ratio ratings are at least 0")
        self.pairable = (~np.isnan(table)).sum(axis=0) >= 2
        by_unit = table[:, self.pairable].T  # (units, raters)
        given = ~np.isnan(by_unit)
        self.count = len(by_unit)
        self.sizes = given.sum(axis=1).astype(np.float64)  # (units,)
        flat = by_unit[given]
        self.unit = np.nonzero(given)[0]  # (ratings,): the unit of each rating, ascending
        self.unit_starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.intp)
        # Equal ratings stand together in this order, for the marginal counts of each distinct value.
        self.values, self.value, self.value_sizes = np.unique(flat, return_inverse=True, return_counts=True)
        self.by_value = np.argsort(self.value, kind="stable")
        self.value_starts = np.concatenate([[0], np.cumsum(self.value_sizes)[:-1]])
        self.reason: str | None = None
        if not self.count:
            self.reason = "no unit has two ratings"
        elif len(self.values) == 1:
            self.reason = f"all ratings are {self.values[0]:g}: without variation agreement is undefined"
        disagreements: dict[str, Callable[[FloatArray], tuple[FloatArray, FloatArray]]] = {
            "nominal": self._nominal,
            "ordinal": self._ordinal,
            "interval": self._interval,
            "ratio": self._ratio,
        }
        self.disagreement = disagreements[level]
        if level == "ratio" and len(self.values) > _RATIO_VALUES:
            raise InputError(
                f"'ratio' ratings may have {_RATIO_VALUES} distinct values at most; got {len(self.values)}"
            )

    def alpha(self, counts: FloatArray) -> FloatArray:
        """Return alpha (rows,) for counts of units (rows, units); NaN if all drawn ratings are equal."""
        if self.reason:
            return np.full(len(counts), np.nan)
        n = np.einsum("ru,u->r", counts, self.sizes)
        observed, expected = self.disagreement(counts)
        varies = expected > 0
        return np.where(varies, 1 - (n - 1) * observed / np.where(varies, expected, 1.0), np.nan)

    def _marginals(self, counts: FloatArray) -> FloatArray:
        """Return how many drawn ratings have each distinct value: (rows, values)."""
        return np.add.reduceat(counts[:, self.unit[self.by_value]], self.value_starts, axis=1)

    def _pairs_within(self, sums: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the sum of squared differences over all ordered pairs of a unit's ratings."""
        result: FloatArray = 2 * (self.sizes * squares - sums * sums)
        return result

    def _over_units(self, counts: FloatArray, pairs: FloatArray) -> FloatArray:
        total: FloatArray = np.einsum("ru,u->r", counts, pairs / (self.sizes - 1))
        return total

    # Each returns (rows,) observed disagreement × n and expected disagreement × n (n − 1).

    def _nominal(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        (unit, _), times = np.unique(np.stack([self.unit, self.value]), axis=1, return_counts=True)
        equal = cluster_sums(times.astype(np.float64) ** 2, unit, self.count)
        marginals = self._marginals(counts)
        total = marginals.sum(axis=1)
        return self._over_units(counts, self.sizes**2 - equal), total**2 - (marginals**2).sum(axis=1)

    def _interval(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        # Scaled to 0 … 1 to keep rounding small; alpha does not change.
        position = (self.values - self.values[0]) / (self.values[-1] - self.values[0])
        rating = position[self.value]
        sums, squares = (cluster_sums(part, self.unit, self.count) for part in (rating, rating**2))
        return self._over_units(counts, self._pairs_within(sums, squares)), self._pairs_between(counts, position)

    def _pairs_between(self, counts: FloatArray, position: FloatArray) -> FloatArray:
        """Return the sum of squared differences over all ordered pairs of drawn ratings; exactly 0 if all are equal."""
        marginals = self._marginals(counts)
        total = marginals.sum(axis=1)
        centre = (marginals * position).sum(axis=1) / total
        spread: FloatArray = 2 * total * (marginals * (position - centre[:, None]) ** 2).sum(axis=1)
        return np.where((marginals > 0).sum(axis=1) > 1, spread, 0.0)

    def _ordinal(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        # The ordinal distance is that of mean ranks, which depend on the draw.
        marginals = self._marginals(counts)
        total = marginals.sum(axis=1)
        position = (np.cumsum(marginals, axis=1) - marginals / 2) / total[:, None]
        rating = position[:, self.value]
        sums, squares = (np.add.reduceat(part, self.unit_starts, axis=1) for part in (rating, rating**2))
        pairs = self._pairs_within(sums, squares) / (self.sizes - 1)
        return np.einsum("ru,ru->r", counts, pairs), self._pairs_between(counts, position)

    def _ratio(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        apart = np.abs(self.values[:, None] - self.values)
        together = self.values[:, None] + self.values
        distance = (apart / np.where(together > 0, together, 1.0)) ** 2
        pairs = np.zeros(self.count)
        for size in np.unique(self.sizes).astype(int):
            chosen = np.flatnonzero(self.sizes == size)
            rated = self.value[self.unit_starts[chosen][:, None] + np.arange(size)]  # (units, size)
            pairs[chosen] = distance[rated[:, :, None], rated[:, None, :]].sum(axis=(1, 2))
        marginals = self._marginals(counts)
        return self._over_units(counts, pairs), np.einsum("rv,rv->r", weighted_sums(marginals, distance), marginals)
