"""Lay out the page of scored reports: the sections of an audit of tasks, and what each measure does not notice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from rightlung.audit.task_page import BLIND_NOTE, make_task_page
from rightlung.audit.task_results import PartResult
from rightlung.measuring import find_measure
from rightlung.pages.content import Cell, Column, Page, Section, Table
from rightlung.pages.numbers import number

CHECKED = ("references", "sides exchanged", "findings left out")
MISSES = 0.9
"""A change that leaves this share of a measure's value is one it does not notice."""


def make_report_page(result: Mapping[str, Any], parts: Sequence[PartResult], check: pa.Table) -> Page:
    """Return the page of scored reports (see `report_scores.score_reports`)."""
    page = make_task_page(result, parts, [])
    counts = result["counts"]
    of = (
        f" of {counts['patients']:,} patients"
        if counts["clusters"] == "patients"
        else ", by report: no patient is known"
    )
    lead = (
        f"{result['model']} against {result['source']}: {counts['studies']:,} reports{of}; {counts['left_out']:,} rows "
        f"left out. {BLIND_NOTE} Here they learn from {result['baselines']['learned_from']}."
    )
    at = next(place for place, one in enumerate(page.sections) if one.name == "problems")
    added = [
        Section("notes", "Notes", items=[*result["notes"]]),
        Section("check", "What each measure does not notice", [check_sentence(check)], parts=[check_table(check)]),
    ]
    sections = [*page.sections[:at], *added, *page.sections[at:]]
    return replace(page, title="Scores of generated reports", lead=lead, sections=sections)


def _kept(row: Mapping[str, Any], name: str) -> bool:
    return bool(row["none"] > 0 and row[name] >= MISSES * row["none"])


def check_sentence(check: pa.Table) -> str:
    """Say which measures hardly fall when the references' sides are exchanged, and which do."""
    rows = [row for row in check.to_pylist() if row["none"] > 0]
    titles = {
        kept: [find_measure(row["measure"]).title for row in rows if _kept(row, "swap-sides") == kept]
        for kept in (True, False)
    }
    falls = f"Lower: {', '.join(titles[False])}." if titles[False] else "None is lower: no reference names a side."
    return (
        "The references are scored against themselves, unchanged and changed. With left and right exchanged, "
        f"{len(titles[True])} of {len(rows)} measures keep at least {100 * MISSES:.0f} % of their value. {falls}"
    )


def check_rows(check: pa.Table) -> list[list[str]]:
    """Return a row of texts for each measure: its title and its value for the references and the changed ones."""
    names = [name for name in check.column_names if name != "measure"]
    rows = check.to_pylist()
    return [[find_measure(row["measure"]).title, *(number(row[name], 3) for name in names)] for row in rows]


def check_table(check: pa.Table) -> Table:
    """Return the table of what each measure gives for changed references."""
    columns = [Column("measure", "text"), *map(Column, CHECKED)]
    caption = "Scores of the references, and of changed references, against the references."
    rows = [[*map(Cell, row)] for row in check_rows(check)]
    return Table("check", "What each measure does not notice", caption, columns, rows)
