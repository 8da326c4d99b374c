"""Risk and coverage of answers with a confidence (Geifman & El-Yaniv, NeurIPS 2017).

At coverage k/n, the k most confident of n answers are given, and the risk is their mean loss. Within a tie, all orders
are equally likely, so that the risk is its expectation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class RiskCoverage:
    """The risk of answers ``(instances,)`` for each row of counts ``(resamples, instances)``, which are whole numbers.

    An answer that counts twice is two tied answers.

    >>> answers, once = RiskCoverage(np.array([0.5, 0.9, 0.1]), np.array([1.0, 0.0, 0.0])), np.ones((1, 3))
    >>> answers.risk(once, 2 / 3).tolist(), answers.area(once).round(4).tolist()  # (0/1 + 1/2 + 1/3) / 3
    ([0.5], [0.2778])
    """

    def __init__(self, confidence: Floats, loss: Floats) -> None:
        _, tie = np.unique(-confidence, return_inverse=True)
        self._order = np.argsort(tie, kind="stable")
        self._starts = np.searchsorted(tie[self._order], np.arange(tie.max(initial=-1) + 1))
        self._loss = loss[self._order]

    def _ties(self, counts: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the size and the mean loss of each tie, and how many answers come before it, with what loss."""
        drawn = counts[:, self._order]
        members, losses = (np.add.reduceat(one, self._starts, axis=1) for one in (drawn, drawn * self._loss))
        mean = losses / np.where(members > 0, members, 1.0)
        return members, mean, np.cumsum(members, axis=1) - members, np.cumsum(losses, axis=1) - losses

    def risk(self, counts: Floats, coverage: float) -> Floats:
        """Return the risk at a coverage above 0."""
        members, mean, before, lost = self._ties(counts)
        given = coverage * members.sum(axis=1)
        last = np.maximum(((before < given[:, None] - 1e-9) & (members > 0)).cumsum(axis=1).argmax(axis=1), 0)
        rows = np.arange(len(counts))
        return np.asarray((lost + (given[:, None] - before) * mean)[rows, last] / np.where(given > 0, given, np.nan))

    def area(self, counts: Floats) -> Floats:
        """Return the area under the curve (AURC), the mean risk over all coverages; lower is better."""
        members, mean, before, lost = self._ties(counts)
        total = members.sum(axis=1)
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(total.max(initial=0)) + 1))])
        steps = harmonic[np.rint(before + members).astype(int)] - harmonic[np.rint(before).astype(int)]
        sums = members * mean + (lost - before * mean) * steps  # sum over j of (lost + j mean) / (before + j)
        return np.asarray(sums.sum(axis=1) / np.where(total > 0, total, np.nan))
