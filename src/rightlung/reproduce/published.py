"""The values that a paper reports (``published.yaml``), to print next to ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from rightlung.core import InputError

_ROW = ("model", "sentences", "subset")
"""What a row begins with, unless the file says otherwise (``row``)."""
_SENTENCES = ("real", "synthetic")
_FIELDS = ("title", "section", "target", "unit", "digits", "columns", "rows")
_UNITS = {"percent": 100.0, "nats": 1.0, "fraction": 1.0}


@dataclass(frozen=True)
class PublishedValue:
    """One reported value: shares as fractions, entropies and divergences in nats."""

    value: float
    printed: str
    table: str
    tables: tuple[str, ...] = ()
    """All tables with this value; ``table`` is the first, or the one asked for."""
    std: float | None = None
    """The standard deviation, if the paper gives one."""


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
    contradictions: Mapping[tuple[Subject, str], PublishedValue] = field(default_factory=dict)
    """Values that a table prints differently from the others, by table."""
    remarks: Sequence[str] = ()
    """Sentences about contradictions, of these values and others."""

    def find(self, subject: Subject, table: str | None = None) -> PublishedValue | None:
        """Return the paper's value, ``None`` if there is none; cited from ``table`` if that table has it."""
        if table is not None and (subject, table) in self.contradictions:
            return self.contradictions[subject, table]
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
    """Check and index the content of the file.

    A value in two tables must be the same in both, unless one of them is listed among the ``contradictions``.
    """
    values: dict[Subject, PublishedValue] = {}
    known = given.get("contradictions", ())
    differing = {(one["model"], one["subset"], one["measure"], one["table"]): False for one in known}
    contradictions: dict[tuple[Subject, str], PublishedValue] = {}
    for number, table in given["tables"].items():
        place = f"{name}, table {number}"
        if missing := [field for field in _FIELDS if field not in table]:
            raise InputError(f"{place}: the field {missing[0]} is missing")
        if table["unit"] not in _UNITS:
            raise InputError(f"{place}: unit: expected percent, nats or fraction; got {table['unit']!r}")
        for position, row in enumerate(table["rows"], start=1):
            for subject, value in _row(row, table, str(number), given, f"{place}, row {position}"):
                before = values.setdefault(subject, value)
                if (key := (subject.model, subject.subset, subject.measure, value.table)) in differing:
                    differing[key] = before.value != value.value
                    contradictions[subject, value.table] = value
                elif before.value != value.value:
                    raise InputError(
                        f"{place}, row {position}: {subject.measure} is {value.printed} here but {before.printed} in "
                        f"table {before.table}"
                    )
                else:
                    std = before.std if value.std is None else value.std
                    values[subject] = replace(before, tables=(*before.tables, value.table), std=std)
    if same := [key for key, differs in differing.items() if not differs]:
        raise InputError(f"{name}, contradictions: {', '.join(same[0])}: this table does not contradict another")
    return Published(
        given["paper"],
        given["column"],
        given["models"],
        frozenset(given["not_comparable"]),
        values,
        {quote["what"]: quote["value"] for quote in given["quoted"]},
        contradictions,
        [*(f"{given['models'][one['model']]}: {one['note']}." for one in known), *given.get("remarks", ())],
    )


def _row(
    row: Sequence[Any], table: Mapping[str, Any], number: str, given: Mapping[str, Any], place: str
) -> list[tuple[Subject, PublishedValue]]:
    columns = table["columns"]
    heads: Sequence[str] = given.get("row", _ROW)
    if len(row) != len(heads) + len(columns):
        raise InputError(f"{place}: expected {len(heads) + len(columns)} entries; got {len(row)}")
    named = dict(zip(heads, row, strict=False))
    known_names = {"model": given["models"], "sentences": _SENTENCES, "subset": given["subsets"]}
    for head, value in named.items():
        if value not in known_names[head]:
            raise InputError(f"{place}, {head}: expected one of {', '.join(known_names[head])}; got {value!r}")
    synthetic = named.get("sentences") == "synthetic"
    return [
        (
            Subject(named["model"], measure, named["subset"], table["target"], synthetic),
            _value(value, table, number, f"{place}, {measure}"),
        )
        for measure, value in zip(columns, row[len(heads) :], strict=True)
        if value != "-"
    ]


def _value(given: Any, table: Mapping[str, Any], number: str, place: str) -> PublishedValue:
    """Return a figure: a number, a number as printed (in quotes), or a number and its standard deviation."""
    value, std = given if isinstance(given, list) and len(given) == 2 else (given, None)
    scale = _UNITS[table["unit"]]
    try:
        size = float(value)
    except (TypeError, ValueError):
        size = math.nan
    if isinstance(value, bool) or not 0 <= size <= 100:
        raise InputError(f"{place}: expected a number from 0 to 100; got {value!r}")
    printed = value if isinstance(value, str) else f"{size:.{table['digits']}f}"
    return PublishedValue(size / scale, printed, number, std=None if std is None else std / scale)
