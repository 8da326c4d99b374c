"""A phrase with its targets, and targets that are moved: those of other phrases ("That's the Wrong Lung!", A.5)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rightlung.core.keyed import text_generator
from rightlung.lexicon.wordkeys import NamedSide
from rightlung.measuring.store import Place
from rightlung.probes import Owner
from rightlung.probes.targets import derangement, exchanged_targets


@dataclass(frozen=True, slots=True)
class TargetMask:
    """A target by one rule: where its mask lies in the store, and its kind, area, class of size and side."""

    place: Place
    kind: str
    area: float
    size: str
    side: str


@dataclass(frozen=True, slots=True)
class PhraseTargets:
    """One phrase of one study and its targets by rule; none where it points at nothing known."""

    study: str
    query: str
    patient: str
    text: str
    findings: tuple[str, ...]
    """Findings asserted (positive or uncertain), by their canonical names."""
    polarity: str
    """``positive``, ``uncertain``, ``negative``, or ``none`` where no finding is named."""
    regions: tuple[str, ...]
    side_named: NamedSide
    midline: float
    masks: dict[str, TargetMask] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Further columns of the instances table, such as membership in subsets."""


def move_targets(phrases: Sequence[PhraseTargets], owners: Sequence[str], name: str, seed: int) -> None:
    """Give every phrase with a target that of another phrase, where there is one, under the rule ``name``.

    ``<rule>-shuffled`` takes it from the same report, ``<rule>-random`` from another of ``owners`` (patients, one a
    phrase). Two phrases of a report may have the same target: the fact ``<rule>_shuffled_differs`` says so.
    """
    rule, _, move = name.rpartition("-")
    others = _shuffled(phrases, rule, seed) if move == "shuffled" else _drawn(phrases, owners, rule, seed)
    for number, one in enumerate(phrases):
        if number in others:
            one.masks[name] = phrases[others[number]].masks[rule]
        if move == "shuffled":
            differs = one.masks[name].place != one.masks[rule].place if number in others else None
            one.facts[f"{rule}_shuffled_differs"] = differs


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
