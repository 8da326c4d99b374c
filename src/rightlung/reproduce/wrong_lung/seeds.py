"""What another seed of the same training changes: each seed by itself, as a figure and as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rightlung.reproduce.wrong_lung.figures import FOOT, HEAD, LINE, Drawing, Mark, label_marks, mark_of
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Floats, Model, Results
from rightlung.reproduce.wrong_lung.tables import Cell, Heading, Measured, Table, signed_number, stars, text_cell

WIDE, APART, FEW = 140, 34, 5
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Quantity:
    """One number of a model."""

    heading: tuple[str, str]
    values: Callable[[str], Floats]
    signed: bool = False
    chance: float | None = None
    scale: float = 100.0
    digits: int = 1

    def said(self, value: float, digits: int | None = None) -> str:
        """Return a value as it is printed."""
        return signed_number(self.scale * value, self.digits if digits is None else digits, self.signed)

    @property
    def name(self) -> str:
        """Both lines of the heading as one."""
        return ", ".join(self.heading)

    def mean(self, model: Model) -> float:
        """Return the mean over the instances that have it."""
        values = self.values(model.slug)
        there = values[~np.isnan(values)]
        return float(there.mean()) if len(there) else math.nan


def quantities(results: Results) -> tuple[Quantity, ...]:
    """Return what seeds are compared by."""
    swap, untold = PERTURBATIONS[0], ~results.instances.flags["names_side"]
    return (
        Quantity(("entropy", "nats, All"), lambda slug: results.answer(slug, "entropy"), scale=1.0, digits=3),
        Quantity(("AUROC, regions", "All"), lambda slug: results.score(slug, "auroc"), chance=0.5),
        Quantity(("AUROC, exact", "All"), lambda slug: results.score(slug, "auroc", "exact"), chance=0.5),
        Quantity(
            ("pointing, exact", "One Lung"),
            lambda slug: results.within(results.score(slug, "pointing", "exact"), "one-lung"),
        ),
        Quantity(
            ("change of AUROC, exact", "One Lung, sides swapped"),
            lambda slug: results.within(results.change(slug, swap, "auroc", "exact"), "one-lung"),
            signed=True,
            chance=0.0,
        ),
        Quantity(
            ("peak on the finding's side", "no word gives it away"),
            lambda slug: results.within(results.peak_on_side(slug), untold),
            chance=0.5,
        ),
        Quantity(("selection, global", "All"), lambda slug: results.selection(slug, "global"), chance=0.5),
    )


def seeds_table(measured: Measured) -> Table | None:
    """Make the table of the variants that have several seeds; ``None`` where none has."""
    results = measured.results
    listed, shown = quantities(results), _several(results)
    if not shown:
        return None
    lines = []
    for row in shown:
        models = results.seeds(row.variant)
        cells = [_cell(models, quantity) for quantity in listed]
        lines.append((text_cell(row.label), text_cell(f"{len(models)}"), *cells))
    header = (Heading("variant", "text"), Heading("seeds", "text"), *(Heading(quantity.name) for quantity in listed))
    caption = (
        "Mean over the seeds, in brackets their standard deviation and each seed by itself (of more than "
        f"{FEW} the lowest and highest); percent or points, entropy in nats."
    )
    return Table("seeds", "Each variant's seeds", caption, header, tuple(lines), stars(shown))


def _several(results: Results) -> list[Model]:
    return [row for row in results.rows if len(results.seeds(row.variant)) > 1]


def _cell(models: Sequence[Model], quantity: Quantity) -> Cell:
    means = np.array([quantity.mean(model) for model in models])
    if np.isnan(means).any():
        return Cell("–")
    mean, spread = float(means.mean()), float(means.std(ddof=1))
    each = {model.slug: float(one) for model, one in zip(models, means, strict=True)}
    listed = [quantity.said(one) for one in each.values()]
    if len(listed) > FEW:
        listed = [f"{quantity.said(min(each.values()))} to {quantity.said(max(each.values()))}"]
    value = {"mean": mean, "spread": spread, "seeds": each}
    return Cell(quantity.said(mean), f"±{quantity.scale * spread:.{quantity.digits}f}; {', '.join(listed)}", value)


def seeds_figure(measured: Measured) -> Drawing | None:
    """Draw every seed as a mark, one panel a quantity; ``None`` where no variant has several."""
    results = measured.results
    if not _several(results):
        return None
    rows, listed = results.rows, quantities(results)
    beside, marks = label_marks([row.label for row in rows])
    height = HEAD + LINE * len(rows) + FOOT
    for column, quantity in enumerate(listed):
        found = [[quantity.mean(model) for model in results.seeds(row.variant)] for row in rows]
        marks += draw_panel(beside + column * (WIDE + APART), height, quantity, found, [mark_of(row) for row in rows])
    middle = beside + (len(listed) * (WIDE + APART) - APART) / 2
    marks.append(
        Mark(
            "text", (middle, height - 8), "soft", "percent; changes in percentage points; entropy in nats", "middle", 10
        )
    )
    described = (
        "A mark for each seed of training, on the same phrases; what has only one mark was trained once or not at all. "
        "Diamonds are references and models that are not comparable. A dark line is chance, or no change. The numbers "
        "are in the table below."
    )
    title = "The same training with another seed"
    return Drawing("seeds", title, beside + len(listed) * (WIDE + APART), height, tuple(marks), described)


def draw_panel(
    left: float, height: float, quantity: Quantity, found: Sequence[Sequence[float]], kinds: Sequence[str]
) -> list[Mark]:
    """Draw the means of each row's seeds on a scale of their own."""
    low, high, step = _scale([value for row in found for value in row if not math.isnan(value)])
    digits = max(0, math.ceil(-math.log10(quantity.scale * step) - 1e-9))

    def across(value: float) -> float:
        return left + WIDE * (value - low) / (high - low)

    marks = [
        Mark("text", (left + WIDE / 2, 13), text=quantity.heading[0], anchor="middle"),
        Mark("text", (left + WIDE / 2, 28), "soft", quantity.heading[1], "middle", 10),
    ]
    for place in range(round((high - low) / step) + 1):
        tick = low + place * step
        x, said = across(tick), quantity.said(tick, digits) if abs(tick) > step / 2 else "0"
        marks += [
            Mark("line", (x, HEAD - 6, x, height - FOOT), "line"),
            Mark("text", (x, height - FOOT + 14), "soft", said, "middle", 10),
        ]
    if quantity.chance is not None and low <= quantity.chance <= high:
        marks.append(Mark("line", (across(quantity.chance), HEAD - 6, across(quantity.chance), height - FOOT), "soft"))
    for place, (row, kind) in enumerate(zip(found, kinds, strict=True)):
        y, ink = HEAD + LINE * (place + 0.5), "model" if kind == "disc" else "prior"
        there = [value for value in row if not math.isnan(value)]
        if len(there) > 1:
            marks.append(Mark("line", (across(min(there)), y, across(max(there)), y), ink))
        marks += [Mark(kind, (across(value), y, 3.0 if kind == "disc" else 4.0), ink) for value in there]
    return marks


def _scale(values: Sequence[float]) -> tuple[float, float, float]:
    """Return ends that are multiples of a round step, and the step, of which there are at most five.

    >>> [round(number, 2) for number in _scale([0.03, 0.38])]
    [0.0, 0.4, 0.1]
    """
    least, most = (min(values), max(values)) if values else (0.0, 1.0)
    for step in _TICKS:
        low, high = math.floor(least / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step
        if high - low <= 5 * step + 1e-9:
            break
    return low, max(high, low + step), step
