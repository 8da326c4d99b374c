"""Template sentences from the findings of a phrase ("That's the Wrong Lung!", appendix A.3).

They state each condition, whether it is present and where, and nothing else, so that only the condition changes when it
is swapped. Table 5's emphysema row breaks the rule above it (a left lung alone becomes "lungs"); the rule is followed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rightlung.core import InputError, Phrase, Polarity
from rightlung.core.checks import check_text
from rightlung.lexicon.regions import IMAGENOME_REGIONS, with_containing

OF_PLACES = ("normal", "abnormal")
"""Conditions that describe a place instead of occurring in it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, whether it is present, and its regions."""

    name: str
    present: bool
    regions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.name, "a condition's name")
        regions: object = self.regions
        if isinstance(regions, str):
            raise InputError(f"a condition's regions must be a list of names; got {regions!r}")
        object.__setattr__(self, "regions", tuple(self.regions))

    @property
    def can_be_said(self) -> bool:
        """Whether a sentence can state it: a condition that is present needs a place."""
        return bool(self.regions) or not self.present


def conditions_of(phrase: Phrase) -> tuple[Condition, ...]:
    """Return the conditions of a phrase; uncertain ones count as present.

    Each finding has its own places (A.3), ``phrase.locations``. If they are unknown, the places are all regions of the
    phrase and the lungs that contain them.
    """
    places = with_containing(phrase.regions)
    return tuple(
        Condition(name, polarity != Polarity.NEGATIVE, phrase.locations.get(name) or places)
        for name, polarity in phrase.findings.items()
    )


def synthetic_sentence(conditions: Iterable[Condition]) -> str | None:
    """Return one sentence per condition, joined; None if there is none. A present condition without a place is skipped.

    >>> synthetic_sentence([Condition("low lung volumes", True, ("left lung", "right lung"))])
    'There is low lung volumes in the lungs.'
    """
    return " ".join(_sentence(condition) for condition in conditions if condition.can_be_said) or None


def _sentence(condition: Condition) -> str:
    if not condition.present:
        return f"There is no {condition.name}."
    places = place_list(condition.regions)
    if condition.name in OF_PLACES:
        several = len(places) > 1 or places[0].endswith("s")
        return f"The {_listed(places)} {'are' if several else 'is'} {condition.name}."
    return f"There is {condition.name} in the {_listed(places)}."


def place_list(regions: Iterable[str]) -> list[str]:
    """Return regions in anatomical order, a left and right pair as one plural.

    >>> place_list(["left lower lung zone", "left lung", "right lower lung zone"])
    ['left lung', 'lower lung zones']
    """
    given = dict.fromkeys(regions)
    order = {name: rank for rank, name in enumerate(IMAGENOME_REGIONS)}  # lungs before their zones
    items: dict[str, int] = {}
    for name in given:
        side, _, rest = name.partition(" ")
        item = name
        if side in ("left", "right") and f"left {rest}" in given and f"right {rest}" in given:
            item = rest if rest.endswith("s") else f"{rest}s"
        both_sides = f"right {rest}" if side == "left" else name  # have one rank
        items.setdefault(item, order.get(both_sides, len(order)))
    return sorted(items, key=lambda item: (items[item], item))


def _listed(items: Sequence[str]) -> str:
    if len(items) < 3:
        return " and ".join(items)
    return f"{', '.join(items[:-1])}, and {items[-1]}"


class ConditionPool:
    """The conditions reported at each set of places anywhere in the data (appendix A.5)."""

    def __init__(self, conditions: Iterable[Condition] = ()) -> None:
        self._at: dict[frozenset[str], dict[tuple[str, bool], None]] = {}
        for condition in conditions:
            self.add(condition)

    def add(self, condition: Condition) -> None:
        """Add a condition at its places."""
        self._at.setdefault(frozenset(condition.regions), {})[condition.name, condition.present] = None

    def others(self, condition: Condition) -> list[tuple[str, bool]]:
        """Return the other conditions at exactly these places: names, and whether they are present."""
        found = self._at.get(frozenset(condition.regions), {})
        return sorted((name, present) for name, present in found if name != condition.name)

    def swapped(self, conditions: Sequence[Condition], chance: random.Random) -> tuple[Condition, ...]:
        """Replace each condition by another at the same places, if there is one."""
        result = []
        for condition in conditions:
            others = self.others(condition)
            if others:
                name, present = chance.choice(others)
                condition = replace(condition, name=name, present=present)
            result.append(condition)
        return tuple(result)
