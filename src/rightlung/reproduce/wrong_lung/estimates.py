"""Intervals for many means at once: the patient-clustered bootstrap with the resamples shared between all of them.

The intervals are those of `rightlung.scoring.statistics.bootstrap` (BCa, the same draws for the same patients). What is
added is speed: all columns that are defined for the same instances become one product of the matrix that says how often
each patient was drawn with the matrix of the patients' sums. BLAS is used for it, so the last bits may depend on the
machine.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.audit.estimates import of_interval
from rightlung.scoring.statistics import Interval
from rightlung.scoring.statistics.resampling import draw_counts, interval_of_counts, interval_of_replicates

Floats = NDArray[np.float64]
Estimate = dict[str, Any]
"""``estimate``, ``low``, ``high``, ``phrases``, ``patients``, and a ``reason`` where the interval needs one."""

FLIPS = 10_000
"""Patterns of a sign-flip test: enough for a small p-value to survive an adjustment for some hundred comparisons."""

_FLIPS_AT_ONCE = 500
_KEPT_DRAWS = 4
_NO_VARIANCE = 1e-12


@dataclass(frozen=True)
class Sureness:
    """How intervals are made."""

    resamples: int = 1000
    level: float = 0.95
    seed: int = 0


class Estimator:
    """Means, differences and correlations over instances that belong to ``clusters``, with intervals."""

    def __init__(self, clusters: NDArray[np.intp], sureness: Sureness | None = None) -> None:
        self.clusters = clusters
        self.sureness = sureness or Sureness()
        self._drawn: OrderedDict[int, Floats] = OrderedDict()

    def means(self, columns: Sequence[Floats]) -> list[Estimate]:
        """Return the mean of each column over the instances where it is defined."""
        found: dict[int, Interval] = {}
        for places in _grouped(columns).values():
            found |= zip(places, self._group([columns[place] for place in places]), strict=True)
        return [of_interval(found[place]) for place in range(len(columns))]

    def mean(self, column: Floats) -> Estimate:
        """Return the mean of one column."""
        return self.means([column])[0]

    def p_values(self, columns: Sequence[Floats]) -> list[float]:
        """Return the two-sided p-value of each column's mean being zero: a sign-flip test, whole patients flipped.

        As in `rightlung.scoring.statistics.paired_difference`: exact where all patterns can be gone through, otherwise
        from drawn ones, of which the observed counts as one. NaN where nothing is defined.
        """
        found = [math.nan] * len(columns)
        for places in _grouped(columns).values():
            used = ~np.isnan(columns[places[0]])
            index, count = self._renumbered(used)
            if not count:
                continue
            sums = np.array([np.bincount(index, columns[place][used], minlength=count) for place in places])
            observed, tolerance = np.abs(sums.sum(axis=1)), 1e-12 * np.abs(sums).sum(axis=1)
            extreme, patterns = np.zeros(len(places)), 0
            for flips in _flips(count, self.sureness.seed):
                flipped = sums.sum(axis=1) - 2 * (flips @ sums.T)
                extreme += (np.abs(flipped) >= observed - tolerance).sum(axis=0)
                patterns += len(flips)
            drawn = 0 if 2**count <= FLIPS else 1
            for place, times in zip(places, extreme.tolist(), strict=True):
                found[place] = (times + drawn) / (patterns + drawn)
        return found

    def contrast(self, first: Floats, second: Floats) -> Estimate:
        """Return mean(first) − mean(second) where they are defined for different instances of the same patients."""
        used = ~(np.isnan(first) & np.isnan(second))
        index, count = self._renumbered(used)
        sums = []
        for column in (first[used], second[used]):
            there = ~np.isnan(column)
            sums += [np.bincount(index, np.where(there, column, 0.0), count), np.bincount(index, there, count)]

        def statistic(counts: Floats) -> Floats:
            total_first, first_count, total_second, second_count = (counts @ column for column in sums)
            with np.errstate(divide="ignore", invalid="ignore"):
                return total_first / first_count - total_second / second_count

        return self._counted(statistic, used, count)

    def correlation_contrast(self, values: Floats, first: Floats, second: Floats) -> Estimate:
        """Return Pearson's correlation of ``values`` with ``first`` less that with ``second``, of the same patients."""
        used = ~(np.isnan(values) | np.isnan(first) | np.isnan(second))
        index, count = self._renumbered(used)
        own, one, other = (_standardised(column[used]) for column in (values, first, second))
        if own is None or one is None or other is None:
            return self._counted(lambda counts: np.full(len(counts), np.nan), used, count)
        moments = [
            np.array(
                [
                    np.bincount(index, part, minlength=count)
                    for part in (np.ones(len(own)), own, column, own * own, column * column, own * column)
                ]
            ).T
            for column in (one, other)
        ]
        return self._counted(
            lambda counts: _of_moments(counts @ moments[0]) - _of_moments(counts @ moments[1]), used, count
        )

    def rank_correlation(self, first: Sequence[Floats], second: Sequence[Floats]) -> Estimate:
        """Return Spearman's correlation of the means of two lists of columns, e.g. of models by two measures.

        Patients are resampled; the columns stay.
        """
        used = ~np.isnan(np.array([*first, *second])).all(axis=0)
        index, count = self._renumbered(used)
        sums = [np.array([np.bincount(index, np.nan_to_num(c[used]), count) for c in part]) for part in (first, second)]
        sizes = [np.array([np.bincount(index, ~np.isnan(c[used]), count) for c in part]) for part in (first, second)]

        def statistic(counts: Floats) -> Floats:
            with np.errstate(divide="ignore", invalid="ignore"):
                means = [(counts @ total.T) / (counts @ size.T) for total, size in zip(sums, sizes, strict=True)]
            return _rank_correlation(means[0].round(12), means[1].round(12))  # the last bits would break ties

        return self._counted(statistic, used, count)

    def _counted(self, statistic: Callable[[Floats], Floats], used: NDArray[np.bool_], count: int) -> Estimate:
        """Return the interval of a function of how often each patient is drawn, (rows, patients) to (rows,)."""
        sure = self.sureness
        return of_interval(
            interval_of_counts(
                statistic,
                count,
                scale=1.0,
                instances=int(used.sum()),
                undefined=int((~used).sum()),
                clustered=True,
                resamples=sure.resamples,
                method="bca",
                level=sure.level,
                seed=sure.seed,
                workers=1,
            )
        )

    def correlations(self, values: Mapping[str, Floats]) -> dict[tuple[str, str], Estimate]:
        """Return Pearson's correlation of each pair of columns, as `rightlung.scoring.statistics.pearson` gives it."""
        groups: dict[bytes, list[tuple[str, str]]] = {}
        for first, second in itertools.combinations(values, 2):
            undefined = np.isnan(values[first]) | np.isnan(values[second])
            groups.setdefault(np.packbits(undefined).tobytes(), []).append((first, second))
        found: dict[tuple[str, str], Estimate] = {}
        for pairs in groups.values():
            undefined = np.isnan(values[pairs[0][0]]) | np.isnan(values[pairs[0][1]])
            found |= self._pairs(values, pairs, ~undefined)
        return {pair: found[pair] for pair in itertools.combinations(values, 2)}

    def _renumbered(self, used: NDArray[np.bool_]) -> tuple[NDArray[np.intp], int]:
        names, index = np.unique(self.clusters[used], return_inverse=True)
        return index.astype(np.intp), len(names)

    def _draws(self, count: int) -> Floats:
        """How often each of ``count`` patients is drawn in each resample: the same for every set of that size."""
        if count in self._drawn:
            self._drawn.move_to_end(count)
            return self._drawn[count]
        drawn = draw_counts(count, resamples=self.sureness.resamples, seed=self.sureness.seed)
        self._drawn[count] = drawn
        if len(self._drawn) > _KEPT_DRAWS:
            self._drawn.popitem(last=False)
        return drawn

    def _group(self, columns: Sequence[Floats]) -> list[Interval]:
        """Intervals of columns that are defined for the same instances."""
        used = ~np.isnan(columns[0])
        index, count = self._renumbered(used)
        kept = np.array([column[used] for column in columns])
        size = np.bincount(index, minlength=count).astype(np.float64)
        totals = np.array([np.bincount(index, column, minlength=count) for column in kept]).reshape(len(columns), count)
        estimates = totals.sum(axis=1) / size.sum() if count else np.full(len(columns), math.nan)
        sampled, jackknifed = np.empty((0, len(columns))), None
        if count > 1:
            drawn = self._draws(count)
            sampled = (drawn @ totals.T) / (drawn @ size)[:, None]
            jackknifed = (totals.sum(axis=1)[:, None] - totals).T / (size.sum() - size)[:, None]
        found = []
        for place, column in enumerate(kept):
            constant = bool(len(column)) and bool((column == column[0]).all())
            found.append(
                self._interval(
                    float(column[0]) if constant else float(estimates[place]),
                    np.full(len(sampled), column[0]) if constant else sampled[:, place],
                    None if jackknifed is None else jackknifed[:, place],
                    float(np.abs(column).max(initial=0.0)),
                    used,
                    count,
                )
            )
        return found

    def _pairs(
        self, values: Mapping[str, Floats], pairs: Sequence[tuple[str, str]], used: NDArray[np.bool_]
    ) -> dict[tuple[str, str], Estimate]:
        index, count = self._renumbered(used)
        names = sorted({name for pair in pairs for name in pair})
        scores = {name: _standardised(values[name][used]) for name in names}
        shown = {pair: (scores[pair[0]], scores[pair[1]]) for pair in pairs}
        estimates: dict[tuple[str, str], Estimate] = {}
        for pair, (first, second) in shown.items():
            if first is None or second is None or count < 2:
                constant = next((name for name in pair if scores[name] is None), None)
                reason = f"{constant} is constant or undefined" if constant else "too few patients"
                estimates[pair] = {
                    "estimate": math.nan,
                    "low": math.nan,
                    "high": math.nan,
                    "phrases": int(used.sum()),
                    "patients": count,
                    "reason": reason,
                }
        wanted = [pair for pair in pairs if pair not in estimates]
        if not wanted:
            return estimates
        parts = [np.ones(int(used.sum()))]
        single: dict[str, int] = {}
        for name in names:
            score = scores[name]
            if score is not None:
                single[name] = len(parts)
                parts += [score, score * score]
        double: dict[tuple[str, str], int] = {}
        for pair in wanted:
            first, second = shown[pair]
            assert first is not None
            assert second is not None
            double[pair] = len(parts)
            parts.append(first * second)
        moments = np.array([np.bincount(index, part, minlength=count) for part in parts])
        sampled = self._draws(count) @ moments.T
        whole = moments.sum(axis=1)
        jackknifed = (whole[:, None] - moments).T
        for pair in wanted:
            x, y = single[pair[0]], single[pair[1]]
            place = [0, x, y, x + 1, y + 1, double[pair]]
            found = self._interval(
                float(_of_moments(whole[None, place])[0]),
                _of_moments(sampled[:, place]),
                _of_moments(jackknifed[:, place]),
                1.0,
                used,
                count,
            )
            estimates[pair] = of_interval(found)
        return estimates

    def _interval(
        self,
        estimate: float,
        sampled: Floats,
        jackknifed: Floats | None,
        scale: float,
        used: NDArray[np.bool_],
        count: int,
    ) -> Interval:
        return interval_of_replicates(
            estimate,
            sampled,
            jackknifed,
            scale=max(scale, abs(estimate)),
            instances=int(used.sum()),
            undefined=int((~used).sum()),
            cluster_count=count,
            clustered=True,
            method="bca",
            level=self.sureness.level,
        )


def _grouped(columns: Sequence[Floats]) -> dict[bytes, list[int]]:
    """Return which columns are defined for the same instances."""
    groups: dict[bytes, list[int]] = {}
    for place, column in enumerate(columns):
        groups.setdefault(np.packbits(np.isnan(column)).tobytes(), []).append(place)
    return groups


def _flips(count: int, seed: int) -> Iterator[Floats]:
    """Patterns of flips, (rows, patients) of 0 and 1: all of them if they are few, else drawn."""
    if 2**count <= FLIPS:
        yield (np.arange(2**count)[:, None] >> np.arange(count) & 1).astype(np.float64)
        return
    for group, start in enumerate(range(0, FLIPS, _FLIPS_AT_ONCE)):
        stream = np.random.SeedSequence(seed, spawn_key=(group, 2))
        size = (min(_FLIPS_AT_ONCE, FLIPS - start), -(-count // 8))
        drawn = np.random.Generator(np.random.SFC64(stream)).integers(0, 256, size=size, dtype=np.uint8)
        yield np.unpackbits(drawn, axis=1, count=count).astype(np.float64)


def _standardised(values: Floats) -> Floats | None:
    """Centred and of unit length; ``None`` where there is no spread to correlate."""
    if len(values) < 2 or (values == values[0]).all():
        return None
    centred = values - values.mean()
    length = math.sqrt(float((centred * centred).sum()))
    return centred / length if length else None


def _rank_correlation(first: Floats, second: Floats) -> Floats:
    """Spearman's correlation of each row of two (rows, n); NaN where a value is missing or one does not vary."""

    def ranks(values: Floats) -> Floats:
        one, other = values[:, :, None], values[:, None, :]
        below = (one > other).sum(axis=2) + 0.5 * (one == other).sum(axis=2)
        centred: Floats = below - below.mean(axis=1, keepdims=True)
        return centred

    x, y = ranks(first), ranks(second)
    spread = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    defined = (spread > 0) & ~np.isnan(first).any(axis=1) & ~np.isnan(second).any(axis=1)
    found: Floats = np.where(defined, (x * y).sum(axis=1) / np.where(spread > 0, spread, 1.0), np.nan)
    return found


def _of_moments(moments: Floats) -> Floats:
    """Correlation from (rows, 6) sums of 1, x, y, x², y², xy; NaN where one of the two does not vary."""
    n, x, y, xx, yy, xy = moments.T
    with np.errstate(divide="ignore", invalid="ignore"):
        spread_x, spread_y = xx - x * x / n, yy - y * y / n
        varies = (spread_x > _NO_VARIANCE * np.maximum(xx, 1e-300)) & (spread_y > _NO_VARIANCE * np.maximum(yy, 1e-300))
        scale = np.sqrt(np.where(varies, spread_x * spread_y, 1.0))
        return np.where(varies, np.clip((xy - x * y / n) / scale, -1.0, 1.0), np.nan)
