"""The page of a study of judgements: one HTML file without network or script, and its inside for other pages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import plots
from rightlung.audit.judgements.content import Part, Row, Section, sections, settings
from rightlung.audit.markup import Markup, element, joined
from rightlung.audit.tables import cell, slug, table

TITLE = "Judgements of heatmaps"


def render_page(result: Mapping[str, Any]) -> str:
    """Return the page of a study's result (see `run.analyse_table`) as HTML."""
    shown = sections(result)
    links = [element("li", element("a", one.title, href=f"#judgements-{one.name}")) for one in shown]
    body = [
        element("a", "Skip to what was found", href="#judgements-summary", class_="skip"),
        element("header", element("h1", TITLE), element("p", NOT_A_MEDICAL_DEVICE, class_="note")),
        element("nav", element("ul", links), aria_label="Sections"),
        element("main", fragment(result)),
        element(
            "footer",
            element("dl", [joined(element("dt", name), element("dd", value)) for name, value in settings(result)]),
            element("p", f"rightlung {result['version']}. {NOT_A_MEDICAL_DEVICE}", class_="meta"),
        ),
    ]
    style = files("rightlung.audit").joinpath("style.css").read_text(encoding="utf-8")
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("style", Markup(style)),
    ]
    return "<!doctype html>\n" + element("html", element("head", head), element("body", body), lang="en") + "\n"


def fragment(result: Mapping[str, Any], heading: str = "h2") -> Markup:
    """Return the sections alone, for a page that has more to show; its style is the audit's."""
    return joined([_section(one, heading) for one in sections(result)])


def _section(section: Section, heading: str) -> Markup:
    name = f"judgements-{section.name}"
    listed = [element("li", text) for text in section.listed]
    return element(
        "section",
        element(heading, section.title, id=name),
        [element("p", text) for text in section.sentences],
        element("ul", listed, class_="summary" if section.name == "summary" else None) if listed else None,
        [_table(part, f"h{int(heading[1]) + 1}") for part in section.tables],
        aria_labelledby=name,
    )


def _table(part: Part, heading: str) -> Markup:
    name = f"judgements-{slug(part.name)}"
    first, *others = part.header
    header = [first, plots.axis(part.low, part.high), *others]
    found = table(name, part.caption, header, [_row(row, part) for row in part.rows])
    if part.folded:
        return element("details", element("summary", part.title), found)
    return joined(element(heading, part.title), found)


def _row(row: Row, part: Part) -> Markup:
    value = {"model": row.plotted, "prior": None}
    if row.plotted is not None and part.low == -part.high:
        drawn = plots.change(row.plotted, part.high)
    else:
        drawn = plots.beside(value, part.low, part.high)
    return element(
        "tr",
        element("th", row.name, scope="row"),
        element("td", drawn),
        [cell(text) for text in row.cells],
        class_="few" if row.few else None,
    )
