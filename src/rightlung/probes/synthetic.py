"""Sentences made from what is known of a phrase, by the rules of "That's the Wrong Lung!", appendix A.3.

Real sentences say much besides their finding. These say the condition, whether it is there and where, and nothing more,
so that a condition can be exchanged and all else stays the same.

Table 5's emphysema row breaks the rule above it (a left lung alone becomes "lungs"); the rule is followed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rightlung.core import InputError, Phrase, Polarity
from rightlung.core.checks import check_text
from rightlung.lexicon.regions import IMAGENOME_REGIONS, with_containing

WHOLE = ("normal", "abnormal")
"""Conditions that are said of a place rather than found in it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, whether it is said to be there, and the regions of which that is said."""

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
        """Whether a sentence can say it: what is there needs a place."""
        return bool(self.regions) or not self.present


def conditions_of(phrase: Phrase) -> tuple[Condition, ...]:
    """Return what a phrase says of each finding; what is uncertain is said to be there.

    Each finding has its own places (A.3: "the anatomical locations associated with the condition"), as the source gives
    them in ``phrase.locations``. Where they are not known, the places are those of the phrase's label: all its regions
    and the lungs that contain them (`with_containing`).
    """
    places = with_containing(phrase.regions)
    return tuple(
        Condition(name, polarity != Polarity.NEGATIVE, phrase.locations.get(name) or places)
        for name, polarity in phrase.findings.items()
    )


def synthetic_sentence(conditions: Iterable[Condition]) -> str | None:
    """Return one sentence for each condition, in a row; None where nothing can be said.

    A condition that is there needs a place; one without any is passed over.

    >>> synthetic_sentence([Condition("low lung volumes", True, ("left lung", "right lung"))])
    'There is low lung volumes in the lungs.'
    """
    return " ".join(_sentence(condition) for condition in conditions if condition.can_be_said) or None


def _sentence(condition: Condition) -> str:
    if not condition.present:
        return f"There is no {condition.name}."
    places = place_list(condition.regions)
    if condition.name in WHOLE:
        several = len(places) > 1 or places[0].endswith("s")
        return f"The {_listed(places)} {'are' if several else 'is'} {condition.name}."
    return f"There is {condition.name} in the {_listed(places)}."


def place_list(regions: Iterable[str]) -> list[str]:
    """Return regions in anatomical order, a left and a right one together as one in the plural.

    >>> place_list(["left lower lung zone", "left lung", "right lower lung zone"])
    ['left lung', 'lower lung zones']
    """
    given = dict.fromkeys(regions)
    items: dict[str, int] = {}
    for name in given:
        side, _, rest = name.partition(" ")
        item = name
        if side in ("left", "right") and f"left {rest}" in given and f"right {rest}" in given:
            item = rest if rest.endswith("s") else f"{rest}s"
        items.setdefault(item, _rank(name))  # the same for both sides
    return sorted(items, key=lambda item: (items[item], item))


def _rank(region: str) -> int:
    """Order by the part of the body, whichever its side: lungs before their zones."""
    mirrored = region.replace("left ", "right ", 1) if region.startswith("left ") else region
    return IMAGENOME_REGIONS.index(mirrored) if mirrored in IMAGENOME_REGIONS else len(IMAGENOME_REGIONS)


def _listed(items: Sequence[str]) -> str:
    if len(items) < 3:
        return " and ".join(items)
    return f"{', '.join(items[:-1])}, and {items[-1]}"


class ConditionPool:
    """Which conditions are told of which places anywhere in the data, to exchange one for another (appendix A.5)."""

    def __init__(self, conditions: Iterable[Condition] = ()) -> None:
        self._at: dict[frozenset[str], dict[tuple[str, bool], None]] = {}
        for condition in conditions:
            self.add(condition)

    def add(self, condition: Condition) -> None:
        """Note that a condition is told of its places."""
        self._at.setdefault(frozenset(condition.regions), {})[condition.name, condition.present] = None

    def others(self, condition: Condition) -> list[tuple[str, bool]]:
        """Return what else is told of exactly these places: names, and whether they are there."""
        found = self._at.get(frozenset(condition.regions), {})
        return sorted((name, present) for name, present in found if name != condition.name)

    def swapped(self, conditions: Sequence[Condition], chance: random.Random) -> tuple[Condition, ...]:
        """Return each condition as another that is told of the same places; where there is none, as it is."""
        result = []
        for condition in conditions:
            others = self.others(condition)
            if others:
                name, present = chance.choice(others)
                condition = replace(condition, name=name, present=present)
            result.append(condition)
        return tuple(result)
