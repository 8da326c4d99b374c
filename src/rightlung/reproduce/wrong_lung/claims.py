"""Read the claims of "That's the Wrong Lung!" and our aims for +Sided from ``claims.yaml``.

The paper used other data, so only the direction of each claim is judged: against region boxes, as in the paper, and
against exact masks, which shows how much depends on the labels.
"""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files
from typing import Any

import yaml

from rightlung.pages.numbers import number
from rightlung.reproduce.claims import Claim
from rightlung.reproduce.published import Published, Subject
from rightlung.reproduce.wrong_lung import aims, criteria
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES

RELEASED = "The paper's claim is about GLoRIA with its released weights; judged here on Retrained."


def claims(book: Published) -> tuple[Claim, ...]:
    """Return all claims: the paper's in its order, then our aims. ``book`` has the published values."""
    given = yaml.safe_load(files(__package__).joinpath("claims.yaml").read_text(encoding="utf-8"))
    return tuple(_claim(dict(entry), book) for entry in given["claims"])


def _claim(entry: dict[str, Any], book: Published) -> Claim:
    name = entry.pop("criterion")
    criterion = getattr(criteria, name, None) or getattr(aims, name)
    options = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.pop("options", {}).items()
    }
    if entry.pop("released", False):
        entry["stands_in"] = RELEASED
    entry["targets"] = tuple(entry.get("targets", Claim.targets))
    entry["paper"] = re.sub(r"\{(.*?)\}", lambda place: _published(place[1], book), entry.get("paper", ""))
    return Claim(judge=partial(criterion, **options), **entry)


def _published(place: str, book: Published) -> str:
    """Return a published value as text: "model measure subset [target]", or the name of a quoted value.

    >>> from rightlung.reproduce.published import published_in
    >>> _published("retrained auroc all", published_in("rightlung.reproduce.wrong_lung"))
    'GLoRIA Retrained 55.84 (All, Table 3)'
    """
    if place in book.quotes:
        return number(book.quotes[place])
    model, measure, subset, target = [*place.split(), "regions"][:4]
    found = book.find(Subject(model, measure, subset, target))
    assert found is not None, place
    return f"{book.label(model)} {found.printed} ({SUBSET_TITLES[subset]}, Table {found.table})"
