"""Tables of models by quantities, with confidence intervals, the published values, and the best model in bold.

Shares are in percent and their changes in percentage points, as in papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rightlung.pages.content import Cell, Column, Figure, Table
from rightlung.pages.figures import SeedsPanel, panel_figure
from rightlung.pages.numbers import estimate_cell, number
from rightlung.reproduce.published import Published, PublishedValue, Subject
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.results.measured import Measured, Perturbation
from rightlung.results.model import MeasuredModel

NOT_COMPARABLE = (
    "* not comparable: the model is given the region boxes, which include the target, so its scores are too high. It "
    "is never marked as the best."
)
BOLD = "Bold: the highest value of the comparable models. Its lead over the next model need not be significant."
FEW_SEEDS = 5
"""Up to this many seeds are listed one by one; for more, the lowest and highest are."""


@dataclass(frozen=True)
class ModelRow:
    """A table row: a model under a condition, over a subset."""

    label: str
    model: str
    comparable: bool = True
    ranked: bool = True
    variant: str = ""
    condition: str = "none"
    subset: str = "all"


@dataclass(frozen=True)
class Quantity:
    """A table column: a value for each phrase, and the published value to print next to its mean."""

    title: str
    values: Callable[[ModelRow], Floats]
    paper: Callable[[ModelRow], PublishedValue | None] | None = None
    scale: float = 100.0
    digits: int = 1
    signed: bool = False
    ranked: bool = False
    chance: float | None = None
    """Chance level or zero line, for plots."""

    def printed(self, value: float) -> str:
        """Return a value as printed in tables."""
        return number(self.scale * value, self.digits, self.signed)


def model_row(model: MeasuredModel, **changes: Any) -> ModelRow:
    """Return the row of a model."""
    known = {"variant": model.variant, "comparable": model.comparable, "ranked": model.group != "reference"}
    return ModelRow(**{"label": model.label, "model": model.slug, **known, **changes})


@dataclass(frozen=True)
class TableMaker:
    """Makes tables and figures from the measurements."""

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
        """Return a table of every quantity for every row.

        ``minus`` lists models (slug and column title) from which paired differences of the first quantity
        are added; models that were not measured are left out.
        """
        others = [(model, heading) for slug, heading in minus if (model := self.measured.model(slug)) is not None]
        columns = [quantity.values(row) for quantity in quantities for row in rows]
        columns += [
            quantities[0].values(row) - quantities[0].values(model_row(model)) for model, _ in others for row in rows
        ]
        estimates = iter(self.estimator.means(columns))
        header = [Column(first, "text")]
        lines: list[list[Cell]] = [[Cell(row.label)] for row in rows]
        for quantity in quantities:
            found = [next(estimates) for _ in rows]
            best = _best(rows, found) if quantity.ranked else ()
            header.append(Column(quantity.title))
            for place, estimate in enumerate(found):
                options = (quantity.scale, quantity.digits, quantity.signed, place in best)
                lines[place].append(estimate_cell(estimate, *options))
            figures = [quantity.paper(row) for row in rows] if quantity.paper is not None else []
            if any(figure is not None for figure in figures):
                header.append(Column(self.published.column, "paper"))
                for place, figure in enumerate(figures):
                    lines[place].append(_paper_cell(figure))
        for model, heading in others:
            header.append(Column(heading))
            for row, line in zip(rows, lines, strict=True):
                estimate = next(estimates)
                line.append(Cell("–") if row.model == model.slug else estimate_cell(estimate, 100.0, 1, signed=True))
        listed = [*notes, *([BOLD] if any(one.ranked for one in quantities) else []), *stars(rows)]
        return Table(name, title, caption, header, lines, listed, folded)

    def printed(
        self, measure: str, subset: str | None = None, target: str = "regions", model: str | None = None,
        table: str | None = None,
    ) -> Callable[[ModelRow], PublishedValue | None]:  # fmt: skip
        """Return a function that finds the published value of a row, cited from ``table`` if that table has it."""

        def find(row: ModelRow) -> PublishedValue | None:
            synthetic = row.condition == "synthetic"
            subject = Subject(model or row.variant, measure, subset or row.subset, target, synthetic)
            return self.published.find(subject, table)

        return find

    def values(
        self, measure: str, target: str | None = None, subset: str | Flags | None = None
    ) -> Callable[[ModelRow], Floats]:
        """Return a function that gives a row's measure, over the row's subset unless another is given."""
        measured = self.measured
        return lambda row: measured.within(
            measured.value(row.model, measure, target, row.condition), row.subset if subset is None else subset
        )

    def changes(
        self, perturbation: Perturbation, subset: str, target: str, measure: str = "auroc",
        how: Literal["changed", "all"] = "changed",
    ) -> Callable[[ModelRow], Floats]:  # fmt: skip
        """Return a function that gives the change of a row's measure under a perturbation, over a subset."""
        measured = self.measured
        return lambda row: measured.within(measured.change(row.model, perturbation, measure, target, how), subset)

    def seeds(self, quantities: Sequence[Quantity]) -> list[Table | Figure]:
        """Return a figure and a table of the single seeds; empty if no variant has several."""
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
            "Mean over seeds, then their standard deviation and the value of each seed (the range if there are more "
            f"than {FEW_SEEDS}). Percent or percentage points; entropy in nats."
        )
        panels = [
            SeedsPanel(
                title=one.title, line=one.chance, scale=one.scale, signed=one.signed,
                seeds=[found[row.variant][place] for row in measured.rows],
            )
            for place, one in enumerate(quantities)
        ]  # fmt: skip
        figure = panel_figure(
            "seeds", "The same training with different seeds",
            "One mark per training seed, on the same phrases. A single mark means one seed, or no training. Diamonds "
            "are references and models that are not comparable. The vertical line is chance or no change. The numbers "
            "are in the table below.",
            [row.label for row in measured.rows], panels, unit="percent; changes in percentage points; entropy in nats",
            references=references(measured.rows),
        )  # fmt: skip
        return [figure, Table("seeds", "Seeds of each variant", caption, header, lines, stars(several))]


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


def _paper_cell(figure: PublishedValue | None) -> Cell:
    if figure is None:
        return Cell("–")
    return Cell(figure.printed, f"Table {figure.table}", {"paper": figure.value, "table": figure.table})


def _best(rows: Sequence[ModelRow], found: Sequence[Estimate]) -> list[int]:
    """Return the rows with the highest value per condition, without references and models that are not comparable."""
    rivals = {
        place: (row.condition, estimate.value)
        for place, (row, estimate) in enumerate(zip(rows, found, strict=True))
        if row.ranked and row.comparable and estimate.defined
    }
    highest = dict(sorted(rivals.values()))
    return [place for place, (condition, value) in rivals.items() if value == highest[condition]]


def references(models: Sequence[MeasuredModel]) -> set[str]:
    """Return the labels of references and of models that are not comparable."""
    return {model.label for model in models if model.group == "reference" or not model.comparable}


def stars(models: Sequence[MeasuredModel] | Sequence[ModelRow]) -> list[str]:
    """Return the note on the asterisk, if any model has one."""
    return [NOT_COMPARABLE] if any(not model.comparable for model in models) else []
