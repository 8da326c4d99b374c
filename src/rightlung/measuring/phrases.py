"""A phrase with its targets, and moved targets, which belong to other phrases ("That's the Wrong Lung!", A.5)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

from rightlung.core.keyed import text_generator
from rightlung.lexicon.wordkeys import NamedSide
from rightlung.measuring.store import Place
from rightlung.probes import Owner
from rightlung.probes.rules import MOVED_RULES
from rightlung.probes.targets import derangement, exchanged_targets


@dataclass(frozen=True, slots=True)
class TargetMask:
    """A target by one rule: the place of its mask in the store, its kind, area, size class and side."""

    place: Place
    kind: str
    area: float
    size: str
    side: str


@dataclass(frozen=True, slots=True)
class PhraseTargets:
    """One phrase of one study and its targets by rule; none if its place is unknown."""

    study: str
    query: str
    patient: str
    text: str
    findings: tuple[str, ...]
    """Canonical names of the asserted findings (positive or uncertain)."""
    polarity: str
    """``positive``, ``uncertain``, ``negative``, or ``none`` if the phrase names no finding."""
    regions: tuple[str, ...]
    side_named: NamedSide
    midline: float
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    """Corners of its own boxes, or of the box around its mask."""
    masks: dict[str, TargetMask] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    """Further columns of the instances table, such as membership in subsets."""
    readers: tuple[tuple[tuple[float, float, float, float], ...], ...] = ()
    """Corners of the boxes that each of several readers drew (`rightlung.measuring.readers`)."""

    @property
    def extent(self) -> float:
        """Area of the box around all boxes, as a share of the image; NaN without a box."""
        if not self.boxes:
            return nan
        x0, y0, x1, y1 = ([corners[n] for corners in self.boxes] for n in range(4))
        return (max(x1) - min(x0)) * (max(y1) - min(y0))


def move_targets(phrases: Sequence[PhraseTargets], owners: Sequence[str], name: str, seed: int) -> None:
    """Add the moved targets of the rule ``name``, one of `MOVED_RULES`; ``owners`` are the patients of the phrases.

    Two phrases of a report may have the same target: the column ``<rule>_shuffled_differs`` tells.
    """
    rule, within_report = MOVED_RULES[name]
    others = _shuffled(phrases, rule, seed) if within_report else _drawn(phrases, owners, rule, seed)
    for number, one in enumerate(phrases):
        if number in others:
            one.masks[name] = phrases[others[number]].masks[rule]
        if within_report:
            differs = one.masks[name].place != one.masks[rule].place if number in others else None
            one.columns[f"{rule}_shuffled_differs"] = differs


def _drawn(phrases: Sequence[PhraseTargets], owners: Sequence[str], rule: str, seed: int) -> dict[int, int]:
    there = [Owner(str(number), owners[number]) for number, one in enumerate(phrases) if rule in one.masks]
    return {int(number): int(other) for number, other in (exchanged_targets(there, seed) or {}).items()}


def _shuffled(phrases: Sequence[PhraseTargets], rule: str, seed: int) -> dict[int, int]:
    reports: dict[str, list[int]] = {}
    for number, one in enumerate(phrases):
        if rule in one.masks:
            reports.setdefault(one.study, []).append(number)
    others: dict[int, int] = {}
    for study, members in reports.items():
        chance = random.Random(int(text_generator(seed, f"shuffle {rule}", study, "").integers(2**63)))
        for number, other in zip(members, derangement(len(members), chance) or (), strict=False):
            others[number] = members[other]
    return others
