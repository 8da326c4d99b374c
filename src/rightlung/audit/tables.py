"""Tables of an audit's page: numbers beside small plots, reachable by keyboard, read out with their captions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rightlung.audit import plots
from rightlung.audit.markup import Markup, element
from rightlung.audit.summary import metric_name, span, verdict


def slug(name: str) -> str:
    """Return a name as part of an id, which must not hold blanks.

    >>> slug("noise image (50 %)")
    'noise-image-50'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def key() -> Markup:
    """Build the key to the plots."""
    model = {"estimate": 0.5, "low": 0.5, "high": 0.5}
    return element(
        "p",
        "In the plots a filled circle is the model and an open diamond the prior, each with its interval.",
        plots.beside({"model": model | {"low": 0.3, "high": 0.7}, "prior": model | {"low": 0.4, "high": 0.6}}),
        class_="small key",
    )


def table(name: str, caption: str, header: Sequence[Markup | str], rows: Sequence[Markup]) -> Markup:
    """Build a table that can be scrolled by keyboard where it is wider than the screen."""
    cells = [
        element("th", cell, scope="col", class_="number" if place > 1 else None) for place, cell in enumerate(header)
    ]
    table = element(
        "table",
        element("caption", element("span", caption), id=f"caption-{name}"),
        element("thead", element("tr", cells)),
        element("tbody", list(rows)),
    )
    return element("div", table, class_="scroll", role="region", tabindex="0", aria_labelledby=f"caption-{name}")


def cell(text: str) -> Markup:
    """Build a cell with a number."""
    return element("td", text, class_="number")


def _plotted(name: str) -> bool:
    return name not in (metric_name("cnr"), metric_name("entropy"))  # all others lie between 0 and 1


def beside_row(name: str, value: Mapping[str, Any], counted: bool = True, few: bool = False) -> Markup:
    """Build the row of a group or a measure: the plot first, which is what a narrow screen shows."""
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", plots.beside(value) if _plotted(name) else None),
        [cell(f"{value['model'][what]:,}") for what in ("phrases", "patients")] if counted else None,
        cell(span(value["model"])),
        cell(span(value["prior"])),
        cell(verdict(value["difference"])),
        class_="few" if few else None,
    )
