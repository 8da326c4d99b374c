"""Makers of figures: intervals, seeds and correlations. matplotlib is imported when a figure is drawn.

The colours are the same everywhere and can be told apart by colour-blind readers; the model and its baseline also
differ in shape. On a page they follow the reader's light or dark setting (see `rightlung.pages.formats`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rightlung.pages.content import Figure
from rightlung.pages.numbers import number
from rightlung.results.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLOURS = {
    "ink": "#1b1f24",
    "soft": "#59636e",
    "line": "#d1d9e0",
    "wash": "#f4f6f8",
    "paper": "#fefefe",
    "model": "#0b62c4",
    "baseline": "#b85000",
    "positive": "#4a90dd",
    "negative": "#e08a3c",
}
"""Colours by what they are for. The page's style sheet has variables of the same names."""

WIDTH = 11.2
"""Inches that a page has room for; wider figures are scrolled."""
_LONGEST = 42
_ROW, _GAP = 0.25, 0.26


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The axis of one panel: headings, scale, and a line at chance or at no change."""

    title: str
    subtitle: str = ""
    line: float | None = None
    limits: tuple[float, float] | None = None
    """Ends of the axis; from what is drawn where they are not given."""
    scale: float = 1.0
    """Factor of all values, 100 for percent."""
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class IntervalPanel(Panel):
    """A panel of estimates: by the name of a series (first the model, then its baseline), one for each row."""

    series: Mapping[str, Sequence[Estimate | None]]


@dataclass(frozen=True, kw_only=True)
class SeedsPanel(Panel):
    """A panel of one quantity: for each row the values of all its seeds."""

    seeds: Sequence[Sequence[float]]


def interval_figure(
    name: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    panels: Sequence[IntervalPanel],
    *,
    unit: str = "",
    references: Collection[str] = (),
    shared: bool = False,
    folded: bool = False,
) -> Figure:
    """Draw estimates as marks with whiskers, panels side by side.

    A panel has one or two series: the model is a filled circle and its baseline an open diamond. Rows named in
    ``references`` are open diamonds, too, and do not set the scale: what lies beyond it is cut off with an arrow.
    With ``shared`` all panels have the same scale.
    """
    for panel in panels:
        if not 1 <= len(panel.series) <= 2 or any(len(found) != len(labels) for found in panel.series.values()):
            raise ValueError(f"panel {panel.title!r}: one or two series with {len(labels)} estimates each are needed")
    kept = [
        {"panel": panel.title, "series": series, "row": label, **found.as_json()}
        for panel in panels
        for series, estimates in panel.series.items()
        for label, found in zip(labels, estimates, strict=True)
        if found is not None
    ]

    def draw() -> Drawing:
        drawn = [list(_drawn(panel, labels, references)) for panel in panels]
        ends = [_limits(panel, values) for panel, values in zip(panels, drawn, strict=True)]
        if shared:
            ends = [(min(low for low, _ in ends), max(high for _, high in ends))] * len(ends)
        several = max((len(panel.series) for panel in panels), default=1)
        drawing, axes = _frame(labels, panels, ends, unit, _ROW + 0.1 * (several - 1))
        for panel, place in zip(panels, axes, strict=True):
            missing = set(range(len(labels)))
            for order, estimates in enumerate(panel.series.values()):
                shift = 0.4 * (order - (len(panel.series) - 1) / 2)
                there = {row: found for row, found in enumerate(estimates) if found is not None and found.defined}
                missing -= set(there)
                for reference in (False, True):
                    rows = [row for row in there if (order == 1 or labels[row] in references) == reference]
                    _whiskers(place, [(row + shift, there[row]) for row in rows], panel.scale, reference)
            _not_measured(place, missing)
        if several > 1:
            names = next(list(panel.series) for panel in panels if len(panel.series) == several)
            _legend(drawing, axes[0], names, any(panel.subtitle for panel in panels))
        return drawing

    return Figure(name, title, caption, cache(draw), folded, kept)


def seeds_figure(
    name: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    panels: Sequence[SeedsPanel],
    *,
    unit: str = "",
    references: Collection[str] = (),
    folded: bool = False,
) -> Figure:
    """Draw a mark for every seed of every row, one panel for each quantity, each on its own scale."""
    for panel in panels:
        if len(panel.seeds) != len(labels):
            raise ValueError(f"panel {panel.title!r}: values for {len(labels)} rows are needed, not {len(panel.seeds)}")
    kept = [
        {"panel": panel.title, "row": label, "values": list(values)}
        for panel in panels
        for label, values in zip(labels, panel.seeds, strict=True)
    ]

    def draw() -> Drawing:
        ends = [_limits(panel, [panel.scale * one for row in panel.seeds for one in row]) for panel in panels]
        drawing, axes = _frame(labels, panels, ends, unit, _ROW)
        for panel, place in zip(panels, axes, strict=True):
            scaled = [[panel.scale * value for value in values if not math.isnan(value)] for values in panel.seeds]
            for reference in (False, True):
                rows = [row for row, found in enumerate(scaled) if found and (labels[row] in references) == reference]
                style, points = _style(reference), [(value, row) for row in rows for value in scaled[row]]
                low, high = ([end(scaled[row]) for row in rows] for end in (min, max))
                place.hlines(rows, low, high, style["color"], linewidth=1.2)
                place.plot([x for x, _ in points], [y for _, y in points], alpha=0.85, **style)
            _not_measured(place, [row for row, found in enumerate(scaled) if not found])
        return drawing

    return Figure(name, title, caption, cache(draw), folded, kept)


def correlation_figure(
    name: str,
    title: str,
    caption: str,
    names: Sequence[str],
    found: Mapping[tuple[str, str], Estimate],
    *,
    digits: int = 2,
    folded: bool = False,
) -> Figure:
    """Draw a triangle of correlations: blue above zero, orange below, bold where the interval excludes zero.

    ``found`` has the estimate of each pair (first, second) in the order of ``names``. A name on the diagonal belongs
    to the row on its left and to the column below it.
    """
    kept = [{"first": first, "second": second, **one.as_json()} for (first, second), one in found.items()]

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing
        from matplotlib.patches import Rectangle

        side = len(names)
        drawing = Drawing(figsize=(0.44 * side + 2.2, 0.27 * side), facecolor=COLOURS["paper"])
        place = drawing.add_axes((0, 0, 0.44 * side / drawing.get_figwidth(), 1))
        place.set(xlim=(0, side), ylim=(side, 0))
        place.axis("off")
        for row, label in enumerate(names):
            place.text(row + 0.08, row + 0.5, _short(label), va="center", color=COLOURS["ink"], fontsize=8.5)
            for column in range(row):
                one = found[names[column], label]
                centre: dict[str, Any] = {"x": column + 0.5, "y": row + 0.5, "fontsize": 8}
                centre |= {"ha": "center", "va": "center_baseline"}
                if not one.defined:
                    place.text(s="–", color=COLOURS["soft"], **centre)
                    continue
                colour = COLOURS["positive" if one.value > 0 else "negative"]
                box = Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, facecolor=colour, linewidth=0)
                box.set_alpha(min(1.0, abs(one.value)))
                place.add_patch(box)
                weight = "bold" if one.excludes(0.0) else "normal"
                place.text(s=number(one.value, digits), color=COLOURS["ink"], fontweight=weight, **centre)
        return drawing

    return Figure(name, title, caption, cache(draw), folded, kept)


# --- what the figures are made of -------------------------------------------------------------------------------------


def _frame(
    labels: Sequence[str], panels: Sequence[Panel], ends: Sequence[tuple[float, float]], unit: str, row: float
) -> tuple[Drawing, list[Axes]]:
    """Make the panels of a figure with rows: labels at the left, banded rows, ticks, headings and lines."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    beside = 0.076 * max((len(_short(label)) for label in labels), default=0) + 0.25
    wide = max(1.1, min(4.2, (WIDTH - beside) / max(1, len(panels)) - _GAP))
    foot = 0.45 if unit else 0.25
    width, height = beside + len(panels) * (wide + _GAP), 0.5 + row * len(labels) + foot
    drawing, axes = Drawing(figsize=(width, height), facecolor=COLOURS["paper"]), []
    for column, (panel, limits) in enumerate(zip(panels, ends, strict=True)):
        left = beside + column * (wide + _GAP)
        place = drawing.add_axes((left / width, foot / height, wide / width, row * len(labels) / height))
        place.set_facecolor("none")
        place.spines[:].set_visible(False)
        place.set(xlim=limits, ylim=(len(labels) - 0.5, -0.5))
        for band in range(0, len(labels), 2):
            place.axhspan(band - 0.5, band + 0.5, color=COLOURS["wash"], linewidth=0, zorder=0)
        place.xaxis.set_major_locator(MaxNLocator(4 if wide < 2 else 6, steps=[1, 2, 5, 10]))
        ticks = place.get_xticks()
        digits = max(0, math.ceil(-math.log10(ticks[1] - ticks[0]) - 1e-9))
        place.xaxis.set_major_formatter(FuncFormatter(lambda at, _, d=digits, s=panel.signed: number(at, d, s)))
        place.grid(axis="x", color=COLOURS["line"], linewidth=0.8, zorder=1)
        if panel.line is not None:
            place.axvline(panel.scale * panel.line, color=COLOURS["soft"], linewidth=1.1, zorder=2)
        place.tick_params(length=0, labelsize=8, labelcolor=COLOURS["soft"], pad=3)
        named = [_short(label) for label in labels] if column == 0 else []
        place.set_yticks(range(len(named)), named)
        place.tick_params(axis="y", labelsize=8.5, labelcolor=COLOURS["ink"], pad=7)
        _heading(place, panel.title, 16 if panel.subtitle else 6, 9, "ink")
        _heading(place, panel.subtitle, 5, 8, "soft")
        axes.append(place)
    middle = beside + (len(panels) * (wide + _GAP) - _GAP) / 2
    drawing.text(middle / width, 0.06 / height, _text(unit), ha="center", fontsize=8.5, color=COLOURS["soft"])
    return drawing, axes


def _heading(place: Axes, text: str, above: float, size: float, ink: str) -> None:
    offset: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center"}
    place.annotate(_text(text), (0.5, 1), (0, above), fontsize=size, color=COLOURS[ink], **offset)


def _text(text: str) -> str:
    """Return a text that matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def _short(label: str) -> str:
    """Shorten a long label, and keep the star that marks it."""
    if len(label) > _LONGEST:
        star = " *" if label.endswith(" *") else ""
        label = f"{label[: _LONGEST - 1 - len(star)]}…{star}"
    return _text(label)


def _drawn(panel: IntervalPanel, labels: Sequence[str], references: Collection[str]) -> Iterator[float]:
    """Yield the values that set a panel's scale: those of references only where there is nothing else."""
    rows = [row for row, label in enumerate(labels) if label not in references] or range(len(labels))
    for estimates in panel.series.values():
        for found in (estimates[row] for row in rows):
            if found is not None:
                yield from (panel.scale * value for value in (found.value, found.low, found.high))


def _limits(panel: Panel, values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a panel's axis: those that are given, or the values with some room and the line."""
    if panel.limits is not None:
        return panel.scale * panel.limits[0], panel.scale * panel.limits[1]
    there = [value for value in values if math.isfinite(value)]
    there += [] if panel.line is None else [panel.scale * panel.line]
    low, high = min(there, default=0.0), max(there, default=1.0)
    room = 0.06 * (high - low) or 0.5 * abs(low) or 1.0
    return low - room, high + room


def _style(reference: bool) -> dict[str, Any]:
    colour = COLOURS["baseline" if reference else "model"]
    face = COLOURS["paper"] if reference else colour
    shape = {"marker": "D", "markersize": 5.5} if reference else {"marker": "o", "markersize": 6.0}
    return {"color": colour, "linestyle": "", "markerfacecolor": face, "markeredgewidth": 1.4, "zorder": 4, **shape}


def _whiskers(place: Axes, rows: Sequence[tuple[float, Estimate]], scale: float, reference: bool) -> None:
    """Draw estimates with the ends of their intervals, which may lie inside the mark; arrows where one is cut off."""
    style, (least, most) = _style(reference), place.get_xlim()
    y = np.array([y for y, _ in rows])
    value, low, high = scale * np.array([(one.value, one.low, one.high) for _, one in rows]).reshape(-1, 3).T
    seen = (low <= most) & (high >= least)
    place.hlines(y[seen], low[seen].clip(least), high[seen].clip(None, most), style["color"], linewidth=1.8, zorder=3)
    ends, at = np.stack([low, high], axis=1).ravel(), np.repeat(y, 2)
    inside = (least <= ends) & (ends <= most)
    place.plot(ends[inside], at[inside], "|", color=style["color"], markersize=8, markeredgewidth=1.4, zorder=5)
    inside = (least <= value) & (value <= most)
    place.plot(value[inside], y[inside], clip_on=False, **style)
    solid = {"markerfacecolor": style["color"], "markersize": 6.5, "clip_on": False}
    for cut, edge, arrow in ((np.fmin(value, low) < least, least, "<"), (np.fmax(value, high) > most, most, ">")):
        place.plot([edge] * cut.sum(), y[cut], **(style | {"marker": arrow} | solid))


def _not_measured(place: Axes, rows: Iterable[int]) -> None:
    for row in rows:
        place.text(
            0.5, row, "not measured", transform=place.get_yaxis_transform(), ha="center", va="center", fontsize=7.5,
            color=COLOURS["soft"], style="italic",
        )  # fmt: skip


def _legend(drawing: Drawing, place: Axes, names: Sequence[str], subtitled: bool) -> None:
    """Name the two series above the first panel's headings."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    handles = [Line2D([], [], **_style(order == 1)) for order in range(len(names))]
    above = place.transAxes + ScaledTranslation(0, 0.4 if subtitled else 0.26, drawing.dpi_scale_trans)
    drawing.legend(
        handles, [_text(name) for name in names], loc="lower left", bbox_to_anchor=(0, 1), bbox_transform=above,
        ncols=2, frameon=False, fontsize=8.5, labelcolor=COLOURS["ink"], borderpad=0, handlelength=1.0,
    )  # fmt: skip
