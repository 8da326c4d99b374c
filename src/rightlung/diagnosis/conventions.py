"""Conventions as data (``conventions.yaml``): families of measures, their axes, and the choices on each axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

import yaml

from rightlung.core.errors import InputError

MOST_DIFFERENCES = 3
"""Conventions that differ from ours in more choices are not tried: among very many numbers, some fit by chance."""

Choices = Mapping[str, str]
"""The choice on each axis."""


@dataclass(frozen=True)
class Family:
    """Measures that are rescored together."""

    name: str
    title: str
    measures: Mapping[str, Choices]
    """For each measure, our choices that are not the first of their axis."""
    axes: Mapping[str, Mapping[str, str]]
    """What each choice means, by axis."""

    @cached_property
    def first(self) -> Choices:
        """The first choice of each axis."""
        return {axis: next(iter(choices)) for axis, choices in self.axes.items()}

    def ours(self, measure: str) -> Choices:
        """Return our convention for a measure."""
        return {**self.first, **self.measures[measure]}

    def conventions(self, measure: str) -> Iterator[Choices]:
        """Yield the differences of each convention from ours, fewest first: axis to choice."""
        ours = self.ours(measure)
        others = {axis: [one for one in choices if one != ours[axis]] for axis, choices in self.axes.items()}
        for count in range(MOST_DIFFERENCES + 1):
            for axes in combinations(others, count):
                for choices in product(*(others[axis] for axis in axes)):
                    yield dict(zip(axes, choices, strict=True))

    def says(self, differences: Choices) -> list[str]:
        """Return what each difference means."""
        return [self.axes[axis][choice] for axis, choice in differences.items()]


def _read() -> dict[str, Family]:
    given = yaml.safe_load(Path(__file__).with_name("conventions.yaml").read_text(encoding="utf-8"))
    return {name: _family(name, entry) for name, entry in given.items() if not name.startswith("_")}


def _family(name: str, entry: Mapping[str, Any]) -> Family:
    axes = {axis: {str(one): says for one, says in choices.items()} for axis, choices in entry["axes"].items()}
    for measure, ours in entry["measures"].items():
        for axis, choice in ours.items():
            if choice not in axes[axis]:
                raise InputError(f"conventions.yaml, {name}, {measure}: {choice!r} is no choice of {axis}")
    return Family(name, entry["title"], entry["measures"], axes)


FAMILIES = _read()
MEASURES = tuple(dict.fromkeys(measure for family in FAMILIES.values() for measure in family.measures))
"""All measures that can be diagnosed."""
