"""Means over phrases, findings, patients or images, for any counts of how often each instance is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rightlung.measuring.phrases import PhraseTargets

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""From counts ``(rows, instances)`` to one number for each row; NaN where undefined."""


class Groups:
    """The instances of each group; a phrase counts for each of its findings. Phrases are groups of one."""

    def __init__(self, phrases: Sequence[PhraseTargets]) -> None:
        self.patients = [one.patient for one in phrases]
        self._named: dict[str, list[Iterable[str]]] = {
            "findings": [one.findings for one in phrases],
            "patients": [[one.patient] for one in phrases],
            "images": [[one.study] for one in phrases],
        }

    def mean(self, values: Floats, averaging: str) -> Statistic:
        """Return the mean of values (instances,), NaN left out, over instances or of the means of groups."""
        there = ~np.isnan(values)
        kept = np.where(there, values, 0.0)
        if averaging == "phrases":
            return lambda counts: _ratio(counts @ kept, counts @ there.astype(np.float64))
        pairs = [(place, name) for place, names in enumerate(self._named[averaging]) for name in names if there[place]]
        rows = np.array([place for place, _ in pairs], np.intp)
        names, group = np.unique([name for _, name in pairs], return_inverse=True)

        sizes = np.bincount(group, minlength=len(names)).astype(np.float64)

        def statistic(counts: Floats) -> Floats:
            found = np.full(len(counts), np.nan)
            for place, drawn in enumerate(counts[:, rows] if len(names) else ()):
                often = np.bincount(group, drawn, len(names)).astype(np.float64)
                means = _ratio(np.bincount(group, drawn * kept[rows], len(names)).astype(np.float64), often)
                # A patient who is drawn twice counts as two; a finding counts once.
                weights = (often > 0).astype(np.float64) if averaging == "findings" else often / sizes
                found[place] = _ratio((np.nan_to_num(means) * weights).sum(), weights.sum())
            return found

        return statistic


def pooled(numerators: Floats, denominators: Floats) -> Statistic:
    """Return the ratio of sums of (instances, thresholds), averaged over thresholds; rows with NaN are left out."""
    there = ~np.isnan(denominators)
    above, below = (np.where(there, part, 0.0) for part in (numerators, denominators))
    return lambda counts: np.asarray(_ratio(counts @ above, counts @ below).mean(axis=1))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)
