"""Numbers of judgements with their intervals: means, paired differences, correlations, and the test of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.audit.estimates import Sureness
from rightlung.scoring.statistics import (
    Interval,
    bootstrap,
    bootstrap_by_counts,
    holm,
    paired_difference,
    pearson,
    spearman,
)

Floats = NDArray[np.float64]
Value = dict[str, Any]


def of_interval(found: Interval) -> Value:
    """Return an interval as plain values; ``n`` counts what it rests on, ``clusters`` the patients."""
    value: Value = {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "clusters": found.clusters or 0,
    }
    return value | ({"reason": found.reason} if found.reason else {})


def mean(values: Sequence[float], clusters: Sequence[str], sure: Sureness) -> Value:
    """Return a mean with its interval, clusters resampled."""
    return of_interval(bootstrap(list(values), clusters=list(clusters), **asdict(sure)))


def paired(first: Sequence[float], second: Sequence[float], clusters: Sequence[str], sure: Sureness) -> Value:
    """Return the mean paired difference, its test, and whether it is shown."""
    found = paired_difference(list(first), list(second), clusters=list(clusters), **asdict(sure))
    return of_interval(found) | {"p": found.p, "shown": bool(found.shown)}


def apart(values: Sequence[float], second: Sequence[bool], clusters: Sequence[str], sure: Sureness) -> Value:
    """Return how far the mean of one group lies above that of the ``second``, with its interval.

    The groups are not paired; a patient may have members in both, and is resampled with all of them. Percentile, since
    leaving out one patient can leave a group empty.
    """
    array, belongs = np.asarray(values, dtype=np.float64), np.asarray(second, dtype=bool)

    def difference(counts: Floats) -> Floats:
        sides = []
        for rows in (~belongs, belongs):
            mass = counts[:, rows].sum(axis=1)
            total = (counts[:, rows] * array[rows]).sum(axis=1)
            sides.append(np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), np.nan))
        return sides[0] - sides[1]

    found = bootstrap_by_counts(
        difference, len(array), clusters=list(clusters), scale=5.0, method="percentile", **asdict(sure)
    )
    return of_interval(found)


def correlation(x: Sequence[float], y: Sequence[float], clusters: Sequence[str], sure: Sureness) -> Value:
    """Return Pearson's and Spearman's correlation, each with interval and p-value.

    The correlation is the mean product of the standardised values; the p-value is the sign-flip test of that mean,
    patients flipped as a whole, as for paired differences.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    both = ~(np.isnan(first) | np.isnan(second))
    first, second = first[both], second[both]
    names = [name for name, kept in zip(clusters, both.tolist(), strict=True) if kept]
    found: Value = {"pairs": len(first)}
    for kind, function, scores in (("pearson", pearson, _itself), ("spearman", spearman, _ranks)):
        interval = function(first, second, clusters=names, **asdict(sure))
        value = of_interval(interval) | {"p": np.nan, "shown": False}
        if interval.defined:
            products = _standard(scores(first)) * _standard(scores(second))
            test = paired_difference(products, np.zeros(len(products)), clusters=names, **asdict(sure))
            value |= {"p": test.p, "shown": bool(interval.excludes(0.0) and test.p < 1 - sure.level)}
        found[kind] = value
    return found


def _itself(values: Floats) -> Floats:
    return values


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _standard(values: Floats) -> Floats:
    deviations = values - values.mean()
    scaled: Floats = deviations / np.sqrt((deviations**2).mean())
    return scaled


def adjust(found: Sequence[Value], level: float) -> None:
    """Adjust the tests of one table for being many (Holm): something is shown only if it survives that, too."""
    for value, p in zip(found, holm([one["p"] for one in found]) if found else (), strict=True):
        value["p_adjusted"] = float(p)
        value["shown"] = bool(value["shown"] and p < 1 - level)
