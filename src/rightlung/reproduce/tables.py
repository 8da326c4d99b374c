"""Tables of models by quantities: every cell estimated together, the paper's figures beside ours, the best in bold.

Every number carries the interval of its own comparison. Shares are in percent and their changes in percentage points,
as papers print them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightlung.pages.content import Cell, Column, Figure, Table
from rightlung.pages.figures import SeedsPanel, seeds_figure
from rightlung.pages.numbers import estimate_cell, number
from rightlung.reproduce.published import Published, PublishedFigure, Subject
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel

NOT_COMPARABLE = (
    "* not comparable: it is given the boxes of the regions, of which the target is a subset, so its scores are "
    "artificially high; it is never counted as the best."
)
BOLD = "Bold: the highest of the comparable models, which need not be shown to differ from the next."
FEW_SEEDS = 5
"""Up to so many seeds are listed one by one; of more, the lowest and the highest."""


@dataclass(frozen=True)
class ModelRow:
    """One line: a model, asked under a condition, over a subset."""

    label: str
    model: str
    comparable: bool = True
    ranked: bool = True
    variant: str = ""
    condition: str = "none"
    subset: str = "all"


@dataclass(frozen=True)
class Quantity:
    """One column: a value for every phrase of a row's model, and the paper's figure beside its mean."""

    title: str
    values: Callable[[ModelRow], Floats]
    paper: Callable[[ModelRow], PublishedFigure | None] | None = None
    scale: float = 100.0
    digits: int = 1
    signed: bool = False
    ranked: bool = False
    chance: float | None = None
    """What a model without knowledge would have, for figures."""

    def printed(self, value: float) -> str:
        """Return a value as tables print it."""
        return number(self.scale * value, self.digits, self.signed)


def model_row(model: MeasuredModel, **changes: Any) -> ModelRow:
    """Return the row of a model."""
    known = {"variant": model.variant, "comparable": model.comparable, "ranked": model.group != "reference"}
    return ModelRow(**{"label": model.label, "model": model.slug, **known, **changes})


@dataclass(frozen=True)
class TableMaker:
    """Makes tables of what was measured."""

    measured: Measured
    estimator: Estimator
    published: Published

    def table(
        self,
        name: str,
        title: str,
        caption: str,
        rows: Sequence[ModelRow],
        quantities: Sequence[Quantity],
        *,
        first: str = "model",
        folded: bool = False,
        notes: Sequence[str] = (),
        minus: Sequence[tuple[str, str]] = (),
    ) -> Table:
        """Estimate every quantity for every row; ``minus`` adds the first one's paired differences from other models.

        ``minus`` lists slugs with their column titles; those that were not measured are left out.
        """
        others = [(slug, said) for slug, said in minus if self.measured.model(slug) is not None]
        columns = [quantity.values(row) for quantity in quantities for row in rows]
        columns += [
            quantities[0].values(row) - quantities[0].values(model_row(self._model(slug)))
            for slug, _ in others
            for row in rows
        ]
        estimates = iter(self.estimator.means(columns))
        header = [Column(first, "text")]
        lines: list[list[Cell]] = [[Cell(row.label)] for row in rows]
        for quantity in quantities:
            found = [next(estimates) for _ in rows]
            best = _best(rows, found) if quantity.ranked else set()
            header.append(Column(quantity.title))
            for place, estimate in enumerate(found):
                options = (quantity.scale, quantity.digits, quantity.signed, place in best)
                lines[place].append(estimate_cell(estimate, *options))
            figures = [quantity.paper(row) for row in rows] if quantity.paper is not None else []
            if any(figure is not None for figure in figures):
                header.append(Column(self.published.column, "paper"))
                for place, figure in enumerate(figures):
                    lines[place].append(_paper_cell(figure))
        for slug, title_of_column in others:
            header.append(Column(title_of_column))
            for row, line in zip(rows, lines, strict=True):
                estimate = next(estimates)
                line.append(Cell("–") if row.model == slug else estimate_cell(estimate, 100.0, 1, signed=True))
        listed = [*notes, *([BOLD] if any(one.ranked for one in quantities) else []), *stars(rows)]
        return Table(name, title, caption, header, lines, listed, folded)

    def _model(self, slug: str) -> MeasuredModel:
        model = self.measured.model(slug)
        assert model is not None
        return model

    def printed(
        self, measure: str, subset: str | None = None, target: str = "regions", model: str | None = None,
        table: str | None = None,
    ) -> Callable[[ModelRow], PublishedFigure | None]:  # fmt: skip
        """Return the function that finds the paper's figure for a row, cited from ``table`` where that prints it."""

        def find(row: ModelRow) -> PublishedFigure | None:
            synthetic = row.condition == "synthetic"
            subject = Subject(model or row.variant, measure, subset or row.subset, target, synthetic)
            return self.published.find(subject, table)

        return find

    def values(
        self, measure: str, target: str | None = None, subset: str | None = None
    ) -> Callable[[ModelRow], Floats]:
        """Return the function that gives a row's measure, over its own subset unless another is given."""

        def of_row(row: ModelRow) -> Floats:
            found = self.measured.value(row.model, measure, target, row.condition)
            return self.measured.within(found, subset or row.subset)

        return of_row

    def seeds(self, quantities: Sequence[Quantity]) -> list[Table | Figure]:
        """Return a figure and a table of each seed by itself; nothing where no variant has several."""
        measured = self.measured
        several = [row for row in measured.rows if len(measured.seeds(row.variant)) > 1]
        if not several:
            return []
        found = {
            row.variant: [[_mean(one.values(model_row(model))) for model in measured.seeds(row.variant)]
                          for one in quantities]
            for row in measured.rows
        }  # fmt: skip
        lines = [
            [Cell(row.label), Cell(str(len(measured.seeds(row.variant)))),
             *(_seeds_cell(one, values, measured.seeds(row.variant))
               for one, values in zip(quantities, found[row.variant], strict=True))]
            for row in several
        ]  # fmt: skip
        header = [Column("variant", "text"), Column("seeds", "text"), *(Column(one.title) for one in quantities)]
        caption = (
            "Mean over the seeds; below it their standard deviation and each seed by itself (of more than "
            f"{FEW_SEEDS} the lowest and highest). Percent or points; entropy in nats."
        )
        panels = [
            SeedsPanel(
                title=one.title, line=one.chance, scale=one.scale, signed=one.signed,
                seeds=[found[row.variant][place] for row in measured.rows],
            )
            for place, one in enumerate(quantities)
        ]  # fmt: skip
        figure = seeds_figure(
            "seeds", "The same training with another seed",
            "A mark for each seed of training, on the same phrases; a single mark was trained once or not at all. "
            "Diamonds are references and models that are not comparable. The line is chance, or no change. The numbers "
            "are in the table below.",
            [row.label for row in measured.rows], panels, unit="percent; changes in percentage points; entropy in nats",
            references=references(measured.rows),
        )  # fmt: skip
        return [figure, Table("seeds", "Each variant's seeds", caption, header, lines, stars(several))]


def _mean(values: Floats) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan


def _seeds_cell(quantity: Quantity, means: Sequence[float], models: Sequence[MeasuredModel]) -> Cell:
    if np.isnan(means).any():
        return Cell("–")
    mean, deviation = float(np.mean(means)), float(np.std(means, ddof=1))
    listed = [quantity.printed(one) for one in means]
    if len(listed) > FEW_SEEDS:
        listed = [f"{quantity.printed(min(means))} to {quantity.printed(max(means))}"]
    each = {model.slug: one for model, one in zip(models, means, strict=True)}
    value = {"mean": mean, "standard_deviation": deviation, "seeds": each}
    detail = f"±{quantity.scale * deviation:.{quantity.digits}f}; {', '.join(listed)}"
    return Cell(quantity.printed(mean), detail, value)


def _paper_cell(figure: PublishedFigure | None) -> Cell:
    if figure is None:
        return Cell("–")
    return Cell(figure.printed, f"Table {figure.table}", {"paper": figure.value, "table": figure.table})


def _best(rows: Sequence[ModelRow], found: Sequence[Estimate]) -> set[int]:
    """Return the rows with the highest number for each condition: no reference, and none that is not comparable."""
    rivals: dict[str, list[int]] = {}
    for place, (row, estimate) in enumerate(zip(rows, found, strict=True)):
        if row.ranked and row.comparable and estimate.defined:
            rivals.setdefault(row.condition, []).append(place)
    best = set()
    for places in rivals.values():
        highest = max(found[place].value for place in places)
        best |= {place for place in places if found[place].value == highest}
    return best


def references(models: Sequence[MeasuredModel]) -> set[str]:
    """Return the labels of rows that stand for reference, or are not comparable."""
    return {model.label for model in models if model.group == "reference" or not model.comparable}


def stars(models: Sequence[MeasuredModel] | Sequence[ModelRow]) -> list[str]:
    """Return the note that explains the asterisk, where there is one."""
    return [NOT_COMPARABLE] if any(not model.comparable for model in models) else []
