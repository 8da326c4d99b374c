"""The sign-flip test of `comparison` for statistics that are no means: AUROC, mAP, corpus BLEU, F1.

Without a difference, the two results of a patient are exchangeable. So the patient's instances are swapped between the
systems, and the difference of the statistic is computed again (for AUROC: Venkatraman & Begg 1996).
"""

from __future__ import annotations

import math

import numpy as np

from rightlung.scoring.statistics.comparison import _flip_groups, _flips
from rightlung.scoring.statistics.inputs import Clusters, cluster_index
from rightlung.scoring.statistics.resampling import COUNTS_AT_ONCE, CountStatistic


def swap_test(pooled: CountStatistic, clusters: Clusters, *, flips: int = 10_000, seed: int = 0) -> tuple[float, bool]:
    """Return the two-sided p-value of no difference between two systems, and whether it is exact.

    ``clusters`` is the cluster of each instance, (instances,). ``pooled`` takes weights of 0 and 1 for all results of
    the first system followed by those of the second, (rows, 2 x instances), and returns (rows,), NaN where undefined.
    All patterns are tried if there are at most ``flips``, else ``flips`` random ones. NaN if nothing is defined.

    >>> first, second = np.array([0.9, 0.7, 0.8, 0.6]), np.array([0.5, 0.6, 0.7, 0.3])
    >>> values = np.concatenate([first, second])
    >>> swap_test(lambda weights: weights @ values / weights.sum(axis=1), ["a", "b", "c", "d"])
    (0.125, True)
    """
    index = cluster_index(clusters, len(clusters))
    count, rows = int(index.max(initial=-1)) + 1, max(1, COUNTS_AT_ONCE // max(1, 2 * len(index)))
    exact = 2**count <= flips
    if not count:
        return math.nan, False

    def difference(patterns: np.ndarray) -> np.ndarray:
        swapped = patterns[:, index]
        kept = 1 - swapped
        return pooled(np.hstack([kept, swapped])) - pooled(np.hstack([swapped, kept]))

    observed = float(difference(np.zeros((1, count)))[0])
    found = []
    for group in range(_flip_groups(count, flips)):
        patterns = _flips(count, flips, seed, group)
        found += [difference(patterns[at : at + rows]) for at in range(0, len(patterns), rows)]
    differences = np.concatenate(found)
    differences = differences[~np.isnan(differences)]
    if math.isnan(observed) or not len(differences):
        return math.nan, False
    times = int((np.abs(differences) >= abs(observed) - 1e-12 * max(abs(observed), 1.0)).sum())
    return times / len(differences) if exact else (times + 1) / (len(differences) + 1), exact
