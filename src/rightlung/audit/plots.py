"""Small SVG plots for table cells: intervals of model and prior on one axis, changes about zero.

Each is drawn beside the numbers it shows, so it is hidden from screen readers; shapes differ as well as colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rightlung.audit.markup import Markup, element, joined

WIDTH, HEIGHT, MARGIN = 160, 26, 8


def _x(value: float, low: float, high: float) -> float:
    share = (min(max(value, low), high) - low) / (high - low)
    return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1)


def _known(value: Mapping[str, Any] | None) -> bool:
    return value is not None and value["estimate"] is not None and value["estimate"] == value["estimate"]


def _whisker(value: Mapping[str, Any], low: float, high: float, y: float, kind: str) -> Markup:
    centre = _x(value["estimate"], low, high)
    line: Markup | None = None
    if value["low"] is not None and value["low"] == value["low"]:
        ends = _x(value["low"], low, high), _x(value["high"], low, high)
        line = element("line", x1=ends[0], x2=ends[1], y1=y, y2=y, class_=kind)
    if kind == "prior":
        points = f"{centre},{y - 4.5} {centre + 4.5},{y} {centre},{y + 4.5} {centre - 4.5},{y}"
        return joined(line, element("polygon", points=points, class_=kind))
    return joined(line, element("circle", cx=centre, cy=y, r=4, class_=kind))


def _frame(children: Sequence[Markup | None], ticks: Sequence[float], low: float, high: float) -> Markup:
    grid = [
        element("line", x1=_x(tick, low, high), x2=_x(tick, low, high), y1=0, y2=HEIGHT, class_="tick")
        for tick in ticks
    ]
    return element(
        "svg",
        grid,
        list(children),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        aria_hidden="true",
        focusable="false",
    )


def beside(value: Mapping[str, Any], low: float = 0.0, high: float = 1.0) -> Markup:
    """Draw the model's interval above the prior's."""
    parts = [
        _whisker(value[kind], low, high, y, kind) if _known(value[kind]) else None
        for kind, y in (("model", 8.5), ("prior", 18.5))
    ]
    return _frame(parts, (low, (low + high) / 2, high), low, high)


def change(value: Mapping[str, Any], reach: float = 1.0) -> Markup:
    """Draw a difference about zero."""
    part = _whisker(value, -reach, reach, HEIGHT / 2, "model") if _known(value) else None
    return _frame([part], (-reach, 0.0, reach), -reach, reach)


def axis(low: float = 0.0, high: float = 1.0) -> Markup:
    """Draw the axis that stands above a column of plots."""
    middle = (low + high) / 2
    labels = [
        element("text", f"{tick:g}".replace("-", "−"), x=_x(tick, low, high), y=11, text_anchor=anchor)
        for tick, anchor in ((low, "start"), (middle, "middle"), (high, "end"))
    ]
    return element(
        "svg", labels, viewBox=f"0 0 {WIDTH} 14", width=WIDTH, height=14, aria_hidden="true", focusable="false"
    )
