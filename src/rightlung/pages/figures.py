"""Make figures of intervals, seeds, distributions, shares and correlations. matplotlib is imported to draw them.

The colours are suitable for colour-blind readers, and model and baseline also differ in shape. On a page they follow
the reader's light or dark setting (see `rightlung.pages.formats`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
"""Colours by role. The style sheet of pages has variables of the same names."""

WIDTH = 11.2
"""Width of a page in inches; wider figures scroll."""
_LONGEST = 42
_ROW, _GAP = 0.25, 0.26


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel of a figure with rows: its titles, its axis, and a line at chance or at no change."""

    title: str
    subtitle: str = ""
    line: float | None = None
    limits: tuple[float, float] | None = None
    """Limits of the axis. Default: from the values."""
    scale: float = 1.0
    """Factor of all values, 100 for percent."""
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class IntervalPanel(Panel):
    """A panel of estimates by series, one estimate per row. The first series is the model, a second its baseline.

    References do not set the axis: an arrow marks what lies outside. With ``fit_references`` they do.
    """

    series: Mapping[str, Sequence[Estimate | None]]
    fit_references: bool = False

    def _check(self, rows: int) -> None:
        if not 1 <= len(self.series) <= 2 or any(len(found) != rows for found in self.series.values()):
            raise ValueError(f"panel {self.title!r}: one or two series with {rows} estimates each are needed")

    def _numbers(self, labels: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"panel": self.title, "series": series, "row": label, **found.as_json()}
            for series, estimates in self.series.items()
            for label, found in zip(labels, estimates, strict=True)
            if found is not None
        ]

    def _extent(self, reference: Sequence[bool]) -> list[float]:
        """Return the values that set the axis: those of references only where there is nothing else."""
        rows = [row for row, flag in enumerate(reference) if self.fit_references or not flag] or range(len(reference))
        found = (estimates[row] for estimates in self.series.values() for row in rows)
        return [self.scale * value for one in found if one is not None for value in (one.value, one.low, one.high)]

    def _draw_on(self, axes: Axes, reference: Sequence[bool]) -> set[int]:
        """Draw marks with whiskers, open ones for the baseline and references; return the rows that have any."""
        drawn: set[int] = set()
        for order, estimates in enumerate(self.series.values()):
            shift = 0.4 * (order - (len(self.series) - 1) / 2)
            there = {row: found for row, found in enumerate(estimates) if found is not None and found.defined}
            drawn |= set(there)
            for open_mark in (False, True):
                rows = [row for row in there if (order == 1 or reference[row]) == open_mark]
                _whiskers(axes, [(row + shift, there[row]) for row in rows], self.scale, open_mark)
        return drawn


@dataclass(frozen=True, kw_only=True)
class SeedsPanel(Panel):
    """A panel of one quantity, with the values of all seeds for each row."""

    seeds: Sequence[Sequence[float]]

    def _check(self, rows: int) -> None:
        if len(self.seeds) != rows:
            raise ValueError(f"panel {self.title!r}: values for {rows} rows are needed, not {len(self.seeds)}")

    def _numbers(self, labels: Sequence[str]) -> list[dict[str, Any]]:
        rows = zip(labels, self.seeds, strict=True)
        return [{"panel": self.title, "row": label, "values": list(values)} for label, values in rows]

    def _extent(self, reference: Sequence[bool]) -> list[float]:
        return [self.scale * value for values in self.seeds for value in values]

    def _draw_on(self, axes: Axes, reference: Sequence[bool]) -> set[int]:
        """Draw a mark per seed and a line over their range; return the rows that have any."""
        scaled = [[self.scale * value for value in values if not math.isnan(value)] for values in self.seeds]
        for open_mark in (False, True):
            rows = [row for row, found in enumerate(scaled) if found and reference[row] == open_mark]
            style, points = _style(open_mark), [(value, row) for row in rows for value in scaled[row]]
            low, high = ([end(scaled[row]) for row in rows] for end in (min, max))
            axes.hlines(rows, low, high, style["color"], linewidth=1.2)
            axes.plot([x for x, _ in points], [y for _, y in points], alpha=0.85, **style)
        return {row for row, found in enumerate(scaled) if found}


@dataclass(frozen=True, kw_only=True)
class DistributionPanel(Panel):
    """A panel of many values for each row: a box from the first to the third quartile with the median, and all values.

    A line covers the values between the 5th and the 95th percentile.
    """

    values: Sequence[Sequence[float]]

    def _check(self, rows: int) -> None:
        if len(self.values) != rows:
            raise ValueError(f"panel {self.title!r}: values for {rows} rows are needed, not {len(self.values)}")

    def _numbers(self, labels: Sequence[str]) -> list[dict[str, Any]]:
        found = []
        for label, values in zip(labels, self._there(), strict=True):
            quantiles = dict(zip(("5", "25", "50", "75", "95"), _quantiles(values).tolist(), strict=True))
            found.append({"panel": self.title, "row": label, "n": len(values), "percentiles": quantiles})
        return found

    def _there(self) -> list[NDArray[np.float64]]:
        arrays = [self.scale * np.asarray(values, np.float64) for values in self.values]
        return [values[~np.isnan(values)] for values in arrays]

    def _extent(self, reference: Sequence[bool]) -> list[float]:
        return [float(value) for values in self._there() for value in values]

    def _draw_on(self, axes: Axes, reference: Sequence[bool]) -> set[int]:
        """Draw the values as faint marks above and below a box; return the rows that have any."""
        there, spread = self._there(), np.random.default_rng(0)
        for row, values in enumerate(there):
            if len(values):
                heights = row + spread.uniform(-0.32, 0.32, len(values))
                colour = COLOURS["baseline" if reference[row] else "model"]
                axes.plot(values, heights, ".", color=colour, markersize=3, alpha=0.25, markeredgewidth=0, zorder=2)
                low, first, median, third, high = _quantiles(values)
                axes.hlines(row, low, high, colour, linewidth=1.4, zorder=3)
                axes.hlines(row, first, third, colour, linewidth=7, alpha=0.55, zorder=3)
                axes.plot([median], [row], "|", color=COLOURS["ink"], markersize=12, markeredgewidth=2, zorder=4)
        return {row for row, values in enumerate(there) if len(values)}


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))) if len(values) else np.full(5, np.nan)


def panel_figure(
    name: str,
    title: str,
    caption: str,
    labels: Sequence[str],
    panels: Sequence[IntervalPanel | SeedsPanel | DistributionPanel],
    *,
    unit: str = "",
    references: Collection[str] = (),
    shared: bool = False,
    folded: bool = False,
) -> Figure:
    """Return a figure with a row per label and panels side by side.

    Rows named in ``references`` are drawn as open diamonds, other rows as filled circles. With ``shared``, all panels
    have the same axis.
    """
    for panel in panels:
        panel._check(len(labels))
    reference = [label in references for label in labels]
    series = max((list(panel.series) for panel in panels if isinstance(panel, IntervalPanel)), key=len, default=[])

    def draw() -> Drawing:
        limits = [_limits(panel, panel._extent(reference)) for panel in panels]
        if shared:
            limits = [(min(low for low, _ in limits), max(high for _, high in limits))] * len(limits)
        drawing, axes = _frame(labels, panels, limits, unit, _ROW + (0.1 if len(series) > 1 else 0.0))
        for panel, place in zip(panels, axes, strict=True):
            _not_measured(place, set(range(len(labels))) - panel._draw_on(place, reference))
        if len(series) > 1:
            _legend(drawing, axes[0], series, any(panel.subtitle for panel in panels))
        return drawing

    numbers = [number for panel in panels for number in panel._numbers(labels)]
    return Figure(name, title, caption, cache(draw), folded, numbers)


def correlation_figure(
    name: str,
    title: str,
    caption: str,
    names: Sequence[str],
    found: Mapping[tuple[str, str], Estimate],
    *,
    folded: bool = False,
) -> Figure:
    """Return a triangle of correlations: blue above zero, orange below, bold where the interval excludes zero.

    ``found`` has the estimate of each pair (first, second) in the order of ``names``. A name on the diagonal labels the
    row to its left and the column below it.
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
                place.text(s=number(one.value), color=COLOURS["ink"], fontweight=weight, **centre)
        return drawing

    return Figure(name, title, caption, cache(draw), folded, kept)


def share_figure(
    name: str,
    title: str,
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    counts: Sequence[Sequence[int]],
) -> Figure:
    """Return a heat map of counts, each cell darker the greater its share of the row, with the share in percent."""

    def draw() -> Drawing:
        from matplotlib.figure import Figure as Drawing
        from matplotlib.patches import Rectangle

        margin, wide, high, head = 0.076 * max(map(len, rows), default=0) + 0.3, 0.62, 0.27, 1.75
        size = margin + wide * len(columns) + 0.9, head + high * len(rows) + 0.1
        drawing = Drawing(figsize=size, facecolor=COLOURS["paper"])
        place = drawing.add_axes(
            (margin / size[0], 0.1 / size[1], wide * len(columns) / size[0], high * len(rows) / size[1])
        )
        place.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
        place.axis("off")
        for row, label in enumerate(rows):
            place.text(-0.12, row + 0.5, _short(label), ha="right", va="center", color=COLOURS["ink"], fontsize=8.5)
            total = max(1, sum(counts[row]))
            for column, count in enumerate(counts[row]):
                box = Rectangle((column + 0.02, row + 0.04), 0.96, 0.92, facecolor=COLOURS["positive"], linewidth=0)
                box.set_alpha(count / total)
                place.add_patch(box)
                centre: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": COLOURS["ink"]}
                place.text(column + 0.5, row + 0.5, f"{100 * count / total:.0f}" if count else "·", **centre)
        for column, label in enumerate(columns):
            tilted: dict[str, Any] = {"rotation": 40, "ha": "left", "va": "bottom", "fontsize": 8.5}
            place.text(column + 0.35, -0.15, _short(label), color=COLOURS["ink"], **tilted)
        return drawing

    listed = [{"row": row, **dict(zip(columns, own, strict=True))} for row, own in zip(rows, counts, strict=True)]
    return Figure(name, title, caption, cache(draw), numbers=listed)


def _frame(
    labels: Sequence[str], panels: Sequence[Panel], ends: Sequence[tuple[float, float]], unit: str, row: float
) -> tuple[Drawing, list[Axes]]:
    """Return a figure with empty panels: labels at the left, banded rows, ticks, titles and lines."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    margin = 0.076 * max((len(_short(label)) for label in labels), default=0) + 0.25
    wide = max(1.1, min(4.2, (WIDTH - margin) / max(1, len(panels)) - _GAP))
    foot = 0.45 if unit else 0.25
    width, height = margin + len(panels) * (wide + _GAP), 0.5 + row * len(labels) + foot
    drawing, axes = Drawing(figsize=(width, height), facecolor=COLOURS["paper"]), []
    for column, (panel, limits) in enumerate(zip(panels, ends, strict=True)):
        left = margin + column * (wide + _GAP)
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
    middle = margin + (len(panels) * (wide + _GAP) - _GAP) / 2
    drawing.text(middle / width, 0.06 / height, _text(unit), ha="center", fontsize=8.5, color=COLOURS["soft"])
    return drawing, axes


def _heading(place: Axes, text: str, above: float, size: float, ink: str) -> None:
    offset: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center"}
    place.annotate(_text(text), (0.5, 1), (0, above), fontsize=size, color=COLOURS[ink], **offset)


def _text(text: str) -> str:
    """Return a text with dollar signs escaped, so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def _short(label: str) -> str:
    """Return a label cut to the maximum length, keeping a final asterisk."""
    if len(label) > _LONGEST:
        star = " *" if label.endswith(" *") else ""
        label = f"{label[: _LONGEST - 1 - len(star)]}…{star}"
    return _text(label)


def _limits(panel: Panel, values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of a panel's axis: as given, or from the values and the line with some padding."""
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
    """Draw estimates with their intervals; arrows mark what lies outside the axis."""
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
    """Add a legend of the two series above the first panel."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    handles = [Line2D([], [], **_style(order == 1)) for order in range(len(names))]
    above = place.transAxes + ScaledTranslation(0, 0.4 if subtitled else 0.26, drawing.dpi_scale_trans)
    drawing.legend(
        handles, [_text(name) for name in names], loc="lower left", bbox_to_anchor=(0, 1), bbox_transform=above,
        ncols=2, frameon=False, fontsize=8.5, labelcolor=COLOURS["ink"], borderpad=0, handlelength=1.0,
    )  # fmt: skip
