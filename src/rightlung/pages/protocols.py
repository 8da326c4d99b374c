"""The full protocols behind a page, as a table with a column for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rightlung.measuring.protocols import Protocol
from rightlung.pages.content import Cell, Column, Section, Table


def protocol_section(protocols: Mapping[str, Protocol]) -> Section:
    """Return a folded section with every field of the protocols, by the title of what was measured under them."""
    given = [one.as_json() for one in protocols.values()]
    rows = [[Cell(name), *(Cell(_said(one[name]), value=one[name]) for one in given)] for name in (given or [{}])[0]]
    columns = [Column("field", "text"), *(Column(title, "text") for title in protocols)]
    caption = "Everything that a number depends on besides the model. Numbers with different hashes do not compare."
    return Section("protocol", "Protocol", parts=[Table("protocol", "Protocol", caption, columns, rows)], folded=True)


def protocol_facts(given: Mapping[str, Any]) -> dict[str, str]:
    """Return every field of a protocol (`Protocol.as_json`) as a text, for the facts of a page."""
    return {name.replace("_", " "): _said(value) for name, value in given.items()}


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "–" if value in (None, "") else str(value)
