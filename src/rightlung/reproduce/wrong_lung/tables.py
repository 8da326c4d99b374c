"""What a table is before `page` and `markdown` write it down, and how a grid of numbers is estimated for one.

Every number carries the interval of its own comparison. Shares are in percent and their changes in percentage points,
as the paper prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rightlung.audit.summary import number
from rightlung.reproduce.wrong_lung.estimates import Estimate, Estimator
from rightlung.reproduce.wrong_lung.published import PAPER_COLUMN, Figure, published
from rightlung.reproduce.wrong_lung.results import Change, Floats, Model, Perturbation, Results

SUBSET_TITLES = {"all": "All", "abnormal": "Abnormal", "one-lung": "One Lung", "mdrb": "MDRB"}
NOT_COMPARABLE = (
    "* not comparable: it is given the boxes of the regions, of which the target is a subset, so its scores are "
    "artificially high (section 2.2); it is never counted as the best."
)
BOLD = "Bold: the highest of the comparable models, which need not be shown to differ from the next."


@dataclass(frozen=True)
class Measured:
    """What was measured, and how intervals of it are made."""

    results: Results
    estimator: Estimator


@dataclass(frozen=True)
class Cell:
    """One entry: what is read, the interval beside it, and the number itself for the JSON file."""

    text: str
    detail: str = ""
    value: Any = None
    best: bool = False
    kind: str = "number"


@dataclass(frozen=True)
class Heading:
    """What stands above a column."""

    text: str
    kind: str = "number"


@dataclass(frozen=True)
class Table:
    """A table with its title, ready to be written down."""

    name: str
    title: str
    caption: str
    header: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    folded: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all the numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": [heading.text for heading in self.header],
            "rows": [[cell.value if cell.value is not None else cell.text for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Row:
    """One line of a grid: a model, asked under a condition, over a subset."""

    label: str
    model: str
    comparable: bool = True
    ranked: bool = True
    variant: str = ""
    condition: str = "none"
    subset: str = "all"


Find = Callable[[Row], Figure | None]


@dataclass(frozen=True)
class Column:
    """One quantity of a grid, and the paper's figure beside it."""

    heading: str
    values: Callable[[Row], Floats]
    paper: Find | None = None
    scale: float = 100.0
    digits: int = 1
    signed: bool = False
    ranked: bool = False


def signed_number(value: float, digits: int = 1, signed: bool = False) -> str:
    """Return a number as people read it, without a minus before zero.

    >>> signed_number(-0.04), signed_number(-0.06)
    ('0.0', '−0.1')
    """
    return number(value if math.isnan(value) else round(value, digits) + 0.0, digits, signed)


def cell(found: Estimate, scale: float = 100.0, digits: int = 1, signed: bool = False, best: bool = False) -> Cell:
    """Return an estimate as a cell, a dash where there is none."""
    if math.isnan(found["estimate"]):
        return Cell("–", value=found)
    low, high = (signed_number(scale * found[name], digits, signed) for name in ("low", "high"))
    detail = "no interval" if "–" in (low, high) else f"{low} to {high}"
    return Cell(signed_number(scale * found["estimate"], digits, signed), detail, found, best)


def paper_cell(figure: Figure | None) -> Cell:
    """Return the paper's figure as a cell."""
    if figure is None:
        return Cell("–", kind="paper")
    return Cell(figure.printed, f"Table {figure.table}", {"paper": figure.value, "table": figure.table}, kind="paper")


def text_cell(text: str) -> Cell:
    """Return words as a cell."""
    return Cell(text, kind="text")


def grid(
    measured: Measured,
    name: str,
    title: str,
    caption: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    first: str = "model",
    folded: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    """Estimate every column for every row, all together."""
    estimates = iter(measured.estimator.means([column.values(row) for column in columns for row in rows]))
    header = [Heading(first, "text")]
    lines: list[list[Cell]] = [[text_cell(row.label)] for row in rows]
    for column in columns:
        found = [next(estimates) for _ in rows]
        best = _best(rows, found) if column.ranked else set()
        header.append(Heading(column.heading))
        for place, value in enumerate(found):
            lines[place].append(cell(value, column.scale, column.digits, column.signed, place in best))
        if column.paper is None:
            continue
        figures = [column.paper(row) for row in rows]
        if any(figure is not None for figure in figures):
            header.append(Heading(PAPER_COLUMN, "paper"))
            for place, figure in enumerate(figures):
                lines[place].append(paper_cell(figure))
    said = [*notes]
    if any(column.ranked for column in columns):
        said.append(BOLD)
    if any(not row.comparable for row in rows):
        said.append(NOT_COMPARABLE)
    return Table(name, title, caption, tuple(header), tuple(map(tuple, lines)), tuple(said), folded)


def _best(rows: Sequence[Row], found: Sequence[Estimate]) -> set[int]:
    """Return the rows with the highest number for each condition: no reference, and none that is not comparable."""
    rivals: dict[str, list[int]] = {}
    for place, (row, value) in enumerate(zip(rows, found, strict=True)):
        if row.ranked and row.comparable and not math.isnan(value["estimate"]):
            rivals.setdefault(row.condition, []).append(place)
    best = set()
    for places in rivals.values():
        highest = max(found[place]["estimate"] for place in places)
        best |= {place for place in places if found[place]["estimate"] == highest}
    return best


def model_row(model: Model, **changes: Any) -> Row:
    """Return the row of a model."""
    given = {"label": model.label, "condition": "none", "subset": "all", **changes}
    return Row(
        model=model.slug,
        variant=model.variant,
        comparable=model.comparable,
        ranked=model.group != "reference",
        **given,
    )


def printed(
    measure: str,
    subset: str | None = None,
    target: str = "regions",
    model: str | None = None,
    table: str | None = None,
) -> Find:
    """Return the function that finds the paper's figure for a row, cited from ``table`` where that prints it."""

    def find(row: Row) -> Figure | None:
        return published().find(
            model or row.variant, measure, subset or row.subset, target, row.condition == "synthetic", table
        )

    return find


def scores(results: Results, measure: str, target: str, subset: str | None = None) -> Callable[[Row], Floats]:
    """Return the function that gives a row's measure, over its own subset unless another is given."""

    def values(row: Row) -> Floats:
        return results.within(results.score(row.model, measure, target, row.condition), subset or row.subset)

    return values


def changes(
    results: Results, perturbation: Perturbation, subset: str, target: str, how: Change, measure: str, row: Row
) -> Floats:
    """Return what a perturbation changes of a row's measure, over a subset."""
    return results.within(results.change(row.model, perturbation, measure, target, how), subset)


def stars(models: Sequence[Model]) -> tuple[str, ...]:
    """Return the note that explains the asterisk, where there is one."""
    return (NOT_COMPARABLE,) if any(not model.comparable for model in models) else ()
