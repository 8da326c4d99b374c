"""The side of a target, and whether the words of a phrase that names no side imply it.

An enteric tube ends on the left, a retrocardiac opacity lies on the left, the middle lobe is on the right: these words
tell the side without a look at the image. They are found as the prior is fitted, from the targets of other patients.
Devices are recognised by name: their tips lie where they were put, and the course of a tube crosses the midline.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.lexicon import FINDINGS
from rightlung.lexicon.wordkeys import WordKey

TargetSide = Literal["left", "right", "both", "midline"]

Telling = Literal["named", "device", "words", "image"]
"""What tells the side of a finding: a word for it, a device's kind, the other words, or the image alone."""

GIVEN_AWAY = 0.9
"""Words give the side away if at least this share of the one-sided targets that they are said of lies on one side."""

AT_LEAST = 5
"""So many one-sided targets of other patients' phrases are needed to say so."""

ONE_SIDED = 0.8
"""A target is left or right if at least this share of it lies there."""

_DEVICES = "support devices"


def side_of_target(pixels: NDArray[np.bool_], midline: float) -> TargetSide:
    """Return the patient's side on which a target ``(height, width)`` lies; the patient's left is the image's right.

    Left or right if 80 % of it are there; else ``midline`` if it reaches across the middle, and ``both`` if not.
    """
    columns = pixels.sum(axis=0, dtype=np.int64)
    on_the_left = (np.arange(len(columns)) + 0.5) / len(columns) > midline
    left = float(columns[on_the_left].sum() / columns.sum())
    if max(left, 1 - left) >= ONE_SIDED:
        return "left" if left > 0.5 else "right"
    middle = min(max(round(midline * len(columns)), 1), len(columns) - 1)
    return "midline" if columns[middle - 1] and columns[middle] else "both"


@dataclass
class WordSides:
    """How many targets lie left and right by what the words say, for phrases that name no side; by fold."""

    _counts: dict[tuple[Any, ...], dict[int, list[int]]] = field(default_factory=dict, repr=False)

    def add(self, key: WordKey, fold: int, side: str) -> None:
        """Take in one target; those on neither side, and words that name a side, teach nothing here."""
        if key.side == "none" and side in ("left", "right"):
            for group in _groups(key):
                self._counts.setdefault(group, {}).setdefault(fold, [0, 0])[side == "right"] += 1

    def merge(self, other: WordSides) -> None:
        """Take in all targets of another."""
        for group, folds in other._counts.items():
            for fold, counts in folds.items():
                own = self._counts.setdefault(group, {}).setdefault(fold, [0, 0])
                own[:] = [own[0] + counts[0], own[1] + counts[1]]

    def give_away(self, key: WordKey, without: int | None) -> bool:
        """Whether these words give the side away, by the targets outside a fold.

        Where phrases exactly like it are too few, those about the same findings, those that name the same zones, and
        those that name one of them are asked instead.
        """
        exact, *wider = _groups(key)
        counts = self._count(exact, without)
        if sum(counts) >= AT_LEAST:
            return _one_sided(counts)
        return any(_one_sided(self._count(group, without)) for group in wider)

    def _count(self, group: tuple[Any, ...], without: int | None) -> tuple[int, int]:
        found = [counts for fold, counts in self._counts.get(group, {}).items() if fold != without]
        return sum(counts[0] for counts in found), sum(counts[1] for counts in found)


def _one_sided(counts: tuple[int, int]) -> bool:
    return sum(counts) >= AT_LEAST and max(counts) >= GIVEN_AWAY * sum(counts)


def _groups(key: WordKey) -> list[tuple[Any, ...]]:
    """Return the groups that a phrase counts in, that of those exactly like it first."""
    groups: list[tuple[Any, ...]] = [("both", key.findings, key.zones), ("findings", key.findings)]
    return [*groups, ("zones", key.zones), *(("zone", zone) for zone in key.zones)] if key.zones else groups


def about_device(findings: tuple[str, ...]) -> bool:
    """Whether a phrase is about devices and nothing else, by its canonical findings.

    >>> about_device(("support devices",)), about_device(("mass",)), about_device(())
    (True, False, False)
    """
    return bool(findings) and all(
        name == _DEVICES or (name in FINDINGS and _DEVICES in FINDINGS[name].broader) for name in findings
    )


def what_tells(key: WordKey, sides: WordSides | None, without: int | None) -> Telling:
    """Return what tells the side of a phrase's finding; without a prior (``sides``) only what its own words name."""
    if key.side != "none":
        return "named"
    if about_device(key.findings):
        return "device"
    return "words" if sides is not None and sides.give_away(key, without) else "image"
