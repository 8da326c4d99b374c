"""The figures that a paper prints (``published.yaml``), to stand beside ours: on other data only directions compare."""

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
class PublishedFigure:
    """One printed figure: a share as a fraction, entropies and divergences in nats."""

    value: float
    printed: str
    table: str
    tables: tuple[str, ...] = ()
    """All tables that print it; ``table`` is the first, or the one that was asked for."""


@dataclass(frozen=True)
class Quote:
    """A figure that stands in the running text."""

    what: str
    model: str
    value: float
    unit: str
    section: str


@dataclass(frozen=True)
class Subject:
    """What a figure is about."""

    model: str
    measure: str
    subset: str = "all"
    target: str = "regions"
    synthetic: bool = False


@dataclass(frozen=True)
class Published:
    """All figures of a paper."""

    paper: str
    data: str
    column: str
    """What a column of the paper's figures is headed with, wherever one stands beside ours."""
    models: Mapping[str, str]
    not_comparable: frozenset[str]
    figures: Mapping[Subject, PublishedFigure]
    quotes: Sequence[Quote]

    def find(self, subject: Subject, table: str | None = None) -> PublishedFigure | None:
        """Return the figure that the paper gives, ``None`` where it gives none; as of ``table`` if that has it."""
        found = self.figures.get(subject)
        return replace(found, table=table) if found is not None and table in found.tables and table else found

    def label(self, model: str) -> str:
        """Return a model's name, with an asterisk where it is not comparable, as in the paper's tables."""
        return f"{self.models[model]} *" if model in self.not_comparable else self.models[model]

    def quote(self, what: str) -> Quote:
        """Return a figure of the running text by its name."""
        return next(quote for quote in self.quotes if quote.what == what)


@lru_cache(maxsize=8)
def published_in(package: str) -> Published:
    """Return the figures of the paper that a package declares."""
    import yaml

    text = files(package).joinpath("published.yaml").read_text(encoding="utf-8")
    return parse(yaml.safe_load(text))


def parse(given: Mapping[str, Any], name: str = "published.yaml") -> Published:
    """Check the file's content and index it; a figure printed in two tables must be the same in both."""
    figures: dict[Subject, PublishedFigure] = {}
    for number, table in given["tables"].items():
        place = f"{name}, table {number}"
        if missing := [field for field in _FIELDS if field not in table]:
            raise InputError(f"{place}: {missing[0]} is missing")
        if table["unit"] not in _UNITS:
            raise InputError(f"{place}: unit is {table['unit']!r}, neither percent nor nats")
        for position, row in enumerate(table["rows"], start=1):
            for subject, figure in _row(row, table, str(number), given, f"{place}, row {position}"):
                before = figures.setdefault(subject, figure)
                if before.value != figure.value:
                    raise InputError(
                        f"{place}, row {position}: {subject.measure} is {figure.printed}, but {before.printed} in "
                        f"table {before.table}"
                    )
                figures[subject] = replace(before, tables=(*before.tables, figure.table))
    return Published(
        given["paper"],
        given["data"],
        given["column"],
        given["models"],
        frozenset(given["not_comparable"]),
        figures,
        tuple(Quote(**quote) for quote in given["quoted"]),
    )


def _row(
    row: Sequence[Any], table: Mapping[str, Any], number: str, given: Mapping[str, Any], place: str
) -> list[tuple[Subject, PublishedFigure]]:
    columns = table["columns"]
    if len(row) != 3 + len(columns):
        raise InputError(f"{place}: {len(row)} entries, and {3 + len(columns)} are needed")
    model, sentences, subset, *values = row
    for field, value, known in (
        ("model", model, given["models"]),
        ("sentences", sentences, _SENTENCES),
        ("subset", subset, given["subsets"]),
    ):
        if value not in known:
            raise InputError(f"{place}: {field} is {value!r}, not one of {', '.join(known)}")
    found = []
    for measure, value in zip(columns, values, strict=True):
        if value == "-":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise InputError(f"{place}: {measure} is {value!r}, not a number from 0 to 100")
        figure = PublishedFigure(value / _UNITS[table["unit"]], f"{value:.{table['digits']}f}", number)
        found.append((Subject(model, measure, subset, table["target"], sentences == "synthetic"), figure))
    return found
