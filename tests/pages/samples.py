"""A page with every kind of content, for the tests of its renderers."""

from __future__ import annotations

import math

import PIL.Image

from rightlung.pages.content import Case, Cell, Column, Figure, Gallery, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, correlation_figure, panel_figure
from rightlung.pages.numbers import estimate_cell
from rightlung.results.estimate import Estimate

HOSTILE = '<script>alert("x")</script> | `a` *b* [c](d) & "e"'
MODEL, PRIOR = Estimate(0.5, 0.25, 0.75, 120, 40), Estimate(0.4, 0.3, 0.45, 120, 40)


def picture() -> PIL.Image.Image:
    return PIL.Image.new("RGB", (64, 48), (200, 30, 30))


def intervals() -> Figure:
    panel = IntervalPanel(title="AUROC", series={"model": [MODEL, Estimate(math.nan)], "prior": [PRIOR, None]})
    return panel_figure("scores", f"Scores {HOSTILE}", f"Caption {HOSTILE}", ["first", HOSTILE], [panel])


def table(name: str = "scores", folded: bool = False, text: str = "plain") -> Table:
    columns = [Column(text, "text"), Column("AUROC", help=text), Column("paper", "paper"), Column("loss", "curve")]
    curve = [(0.0, 4.0), (10.0, 2.0), (20.0, 1.0)]
    row = [Cell(text, text), estimate_cell(MODEL, strong=True), Cell("60.1", "Table 1"), Cell("", text, curve=curve)]
    other = [Cell("b", items=[text, "x"]), estimate_cell(Estimate(math.nan)), Cell("–"), Cell("–")]
    return Table(name, text, text, columns, [row, other], [text], folded)


def page(text: str = "plain") -> Page:
    pairs = {("a", "b"): Estimate(0.6, 0.4, 0.8), ("a", "c"): Estimate(-0.1, -0.3, 0.1), ("b", "c"): Estimate(math.nan)}
    correlations = correlation_figure("pairs", text, text, ["a", "b", "c"], pairs, folded=True)
    gallery = Gallery("cases", text, text, [Case(text, [(text, picture), ("map", picture)], [text])])
    sections = [
        Section("found", f"Found {text}", [text], [text, "second"]),
        Section("scores", "Scores", parts=[table(text=text), intervals(), table("folded", True, text)]),
        Section("pairs", "Pairs", parts=[correlations]),
        Section("cases", "Cases", parts=[gallery], code=f"run {text}\n```\nthen"),
        Section("nothing", "Nothing"),
    ]
    return Page(f"Title {text}", text, sections, {text: text, "patients": "40"}, warning=text)
