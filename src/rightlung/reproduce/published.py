"""The values that a paper reports (``published.yaml``), to print next to ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from rightlung.core import InputError

_SENTENCES = ("real", "synthetic")
_FIELDS = ("title", "section", "target", "unit", "digits", "columns", "rows")
_UNITS = {"percent": 100.0, "nats": 1.0}


@dataclass(frozen=True)
class PublishedValue:
    """One reported value: shares as fractions, entropies and divergences in nats."""

    value: float
    printed: str
    table: str
    tables: tuple[str, ...] = ()
    """All tables with this value; ``table`` is the first, or the one asked for."""


@dataclass(frozen=True)
class Subject:
    """What a value is about."""

    model: str
    measure: str
    subset: str = "all"
    target: str = "regions"
    synthetic: bool = False


@dataclass(frozen=True)
class Published:
    """All reported values of a paper."""

    paper: str
    column: str
    """Column heading for the paper's values."""
    models: Mapping[str, str]
    not_comparable: frozenset[str]
    values: Mapping[Subject, PublishedValue]
    quotes: Mapping[str, float]
    """Values quoted in the paper's text, by name."""

    def find(self, subject: Subject, table: str | None = None) -> PublishedValue | None:
        """Return the paper's value, ``None`` if there is none; cited from ``table`` if that table has it."""
        found = self.values.get(subject)
        return replace(found, table=table) if found is not None and table in found.tables and table else found

    def label(self, model: str) -> str:
        """Return a model's name, with an asterisk if it is not comparable."""
        return f"{self.models[model]} *" if model in self.not_comparable else self.models[model]


@lru_cache(maxsize=8)
def published_in(package: str) -> Published:
    """Return the values in the ``published.yaml`` of a paper's package."""
    import yaml

    text = files(package).joinpath("published.yaml").read_text(encoding="utf-8")
    return parse(yaml.safe_load(text))


def parse(given: Mapping[str, Any], name: str = "published.yaml") -> Published:
    """Check and index the content of the file; a value in two tables must be the same in both."""
    values: dict[Subject, PublishedValue] = {}
    for number, table in given["tables"].items():
        place = f"{name}, table {number}"
        if missing := [field for field in _FIELDS if field not in table]:
            raise InputError(f"{place}: the field {missing[0]} is missing")
        if table["unit"] not in _UNITS:
            raise InputError(f"{place}: unit: expected percent or nats; got {table['unit']!r}")
        for position, row in enumerate(table["rows"], start=1):
            for subject, value in _row(row, table, str(number), given, f"{place}, row {position}"):
                before = values.setdefault(subject, value)
                if before.value != value.value:
                    raise InputError(
                        f"{place}, row {position}: {subject.measure} is {value.printed} here but {before.printed} in "
                        f"table {before.table}"
                    )
                values[subject] = replace(before, tables=(*before.tables, value.table))
    return Published(
        given["paper"],
        given["column"],
        given["models"],
        frozenset(given["not_comparable"]),
        values,
        {quote["what"]: quote["value"] for quote in given["quoted"]},
    )


def _row(
    row: Sequence[Any], table: Mapping[str, Any], number: str, given: Mapping[str, Any], place: str
) -> list[tuple[Subject, PublishedValue]]:
    columns = table["columns"]
    if len(row) != 3 + len(columns):
        raise InputError(f"{place}: expected {3 + len(columns)} entries; got {len(row)}")
    model, sentences, subset, *values = row
    for field, value, known in (
        ("model", model, given["models"]),
        ("sentences", sentences, _SENTENCES),
        ("subset", subset, given["subsets"]),
    ):
        if value not in known:
            raise InputError(f"{place}, {field}: expected one of {', '.join(known)}; got {value!r}")
    found = []
    for measure, value in zip(columns, values, strict=True):
        if value == "-":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise InputError(f"{place}, {measure}: expected a number from 0 to 100; got {value!r}")
        published = PublishedValue(value / _UNITS[table["unit"]], f"{value:.{table['digits']}f}", number)
        found.append((Subject(model, measure, subset, table["target"], sentences == "synthetic"), published))
    return found
