"""How often findings are present at a place, among other patients: the image-blind baseline of classification.

Shares of few examples are drawn towards that of all (shrinkage, as in `rightlung.models.blind.prior`). Patients of
the same fold do not count; pass None if all are other patients.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box
from rightlung.models.blind.prior import FOLDS, STRENGTH, fold_of

NEIGHBOURS = 20
"""Nearest boxes whose findings are counted."""
UNKNOWN = 0.5
"""The share if nothing is known."""
Floats = NDArray[np.float64]


@dataclass
class FindingFrequency:
    """The share of places with a name, such as a region's, at which a finding is present."""

    folds: int = FOLDS
    strength: float = STRENGTH
    _named: dict[tuple[Hashable, str], Floats] = field(default_factory=dict)
    _anywhere: dict[str, Floats] = field(default_factory=dict)

    def add(self, name: Hashable, patient: str, present: Mapping[str, bool]) -> None:
        """Learn from one place: whether each of some findings is present; the others are unknown."""
        fold = fold_of(patient, self.folds)
        for finding, there in present.items():
            for counts in (
                self._named.setdefault((name, finding), np.zeros((self.folds, 2))),
                self._anywhere.setdefault(finding, np.zeros((self.folds, 2))),
            ):
                counts[fold] += (there, 1)

    def shares(self, name: Hashable, findings: Sequence[str], patient: str | None) -> list[float]:
        """Return the share of each finding at places with a name; for a name without examples, at all places."""
        held_out = None if patient is None else fold_of(patient, self.folds)
        found = []
        for finding in findings:
            share = UNKNOWN
            for counts in (self._anywhere.get(finding), self._named.get((name, finding))):
                if counts is not None:
                    present, known = counts.sum(0) - (0 if held_out is None else counts[held_out])
                    share = (present + self.strength * share) / (known + self.strength)
            found.append(float(share))
        return found


@dataclass
class NearbyFindings:
    """The share of the nearest boxes, by IoU, that show a finding; a box shows its findings and no others."""

    folds: int = FOLDS
    strength: float = STRENGTH
    neighbours: int = NEIGHBOURS
    _corners: list[tuple[float, ...]] = field(default_factory=list)
    _folds: list[int] = field(default_factory=list)
    _findings: list[frozenset[str]] = field(default_factory=list)

    def add(self, patient: str, corners: Sequence[float], findings: Collection[str]) -> None:
        """Learn from one box."""
        self._corners.append(tuple(corners))
        self._folds.append(fold_of(patient, self.folds))
        self._findings.append(frozenset(findings))

    def shares(self, box: Box, findings: Sequence[str], patient: str | None) -> list[float]:
        """Return the share of each finding near a box."""
        held_out = None if patient is None else fold_of(patient, self.folds)
        known = np.flatnonzero(np.array(self._folds, dtype=int) != (-1 if held_out is None else held_out))
        if not known.size:
            return [UNKNOWN] * len(findings)
        overlaps = _ious(np.array(box.as_tuple()), np.array(self._corners)[known])
        nearest = known[np.argsort(-overlaps, kind="stable")[: self.neighbours]]
        found = []
        for finding in findings:
            overall, near = (np.mean([finding in self._findings[one] for one in some]) for some in (known, nearest))
            found.append(float((near * nearest.size + overall * self.strength) / (nearest.size + self.strength)))
        return found


def _ious(box: Floats, others: Floats) -> Floats:
    """Return the IoU of a box (4,) with others (n, 4)."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.clip(sides, 0, None).prod(1)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(1)
    overlaps: Floats = shared / (area + areas - shared)
    return overlaps
