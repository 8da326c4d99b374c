"""Leaderboard of audits: models × kinds of maps × sources, from their result files alone.

Results are put into one table if their protocols differ in nothing that changes a score (`OF_NO_SCORE` may differ).
Pages have no scripts, so a table is sorted by links: each column has a page of its own, sorted by it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rightlung.core import InputError
from rightlung.core.errors import check_known
from rightlung.core.files import read_json
from rightlung.measuring import find_measure
from rightlung.measuring.protocols import Protocol
from rightlung.models.maps import split_map
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table, relative_link, slugs
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.html import render_html
from rightlung.pages.numbers import estimate_cell
from rightlung.pages.write import write_page
from rightlung.results.estimate import Estimate
from rightlung.results.tables import BY_INSTANCE, OF_NO_SCORE

MEASURES = ("average_precision", "above_prior", "pointing", "auroc", "mdice", "miou")
"""The columns of numbers; ``above_prior`` is the paired difference of average precision from the location prior."""
PRIOR = "location prior"
_TITLES = {"above_prior": "average precision − prior"}
_HELP = "The difference from the image-blind location prior of the same phrases: what the model adds to the words."


@dataclass(frozen=True)
class Result:
    """The result of one audit. ``kind`` is the kind of map, ``values`` the estimates of `MEASURES`."""

    file: Path
    model: str
    kind: str
    source: str
    protocol: Mapping[str, Any]
    values: Mapping[str, Estimate]
    prior: Mapping[str, Estimate]
    warnings: Sequence[str] = ()

    @property
    def table(self) -> dict[str, Any]:
        """The fields of the protocol that all results of one table share."""
        hashed = Protocol.from_json(self.protocol, str(self.file)).hashed
        return {name: value for name, value in hashed.items() if name not in OF_NO_SCORE}

    @property
    def page(self) -> Path:
        """The audit's page, or its text where the page was not kept."""
        page, text = self.file.with_suffix(".html"), self.file.with_suffix(".md")
        return text if text.is_file() and not page.is_file() else page


def read_result(path: Path) -> Result:
    """Read the result of an audit: its folder, or the file ``audit.json`` in it."""
    file = path / "audit.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{path}: there is no result of an audit (audit.json) here")
    found = read_json(file)
    if not isinstance(found, dict) or not isinstance(found.get("overall"), dict) or "hash" not in (
        found.get("protocol") or ()
    ):  # fmt: skip
        raise InputError(
            f"{file}: not the result of an audit of heatmaps: it has no 'overall' and 'protocol'; audit without --task"
        )
    if not found["overall"]:
        raise InputError(f"{file}: no phrase had a known target, so there is nothing to rank")
    Protocol.from_json(found["protocol"], str(file))  # refuses unknown fields and a hash of other fields
    model, kind = split_map(str(found.get("model") or "model not named"))
    values, prior, differences = (_estimates(file, found["overall"], of) for of in ("model", "prior", "difference"))
    if MEASURES[0] in differences:
        values["above_prior"] = differences[MEASURES[0]]
    return Result(
        file, model, kind, str(found.get("source")), found["protocol"], values, prior, found.get("warnings") or ()
    )


def _estimates(file: Path, overall: Mapping[str, Any], of: str) -> dict[str, Estimate]:
    """Return the estimates of the known measures: of the ``model``, of the ``prior`` or of their ``difference``."""
    estimates = {}
    for name in (name for name in MEASURES if name in overall):
        try:
            if (given := overall[name].get(of)) is None:
                continue
            value, *ends = (
                math.nan if given[one] is None else float(given[one]) for one in ("estimate", "low", "high")
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(f"{file}, overall.{name}.{of}: expected an estimate with its interval") from None
        counts = int(given.get("phrases", 0)), int(given.get("patients", 0))
        estimates[name] = Estimate(value, ends[0], ends[1], *counts)
    return estimates


def read_results(paths: Sequence[Path]) -> dict[str, list[Result]]:
    """Return the results by the title of their table: the source, and the protocol of the first if it has several."""
    tables: dict[tuple[str, str], list[Result]] = {}
    for one in map(read_result, paths):
        table = tables.setdefault((one.source, json.dumps(one.table, sort_keys=True)), [])
        if twin := next((other for other in table if (other.model, other.kind) == (one.model, one.kind)), None):
            what = f"{one.model} ({one.kind} map) on {one.source}"
            raise InputError(f"{twin.file} and {one.file} are both results of {what}; give one of them")
        table.append(one)
    sources = [source for source, _ in tables]
    return {
        source if sources.count(source) == 1 else f"{source}, protocol {table[0].protocol['hash']}": table
        for (source, _), table in tables.items()
    }


def differing(tables: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return a sentence for each source with several protocols: the fields in which they differ."""
    first: dict[str, Result] = {}
    sentences = []
    for one, *_ in tables.values():
        other = first.setdefault(one.source, one)
        ours, theirs = one.table, other.table
        names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
        if other is not one:
            paired = "they are ranked apart; 'rightlung compare' compares them on the phrases that both have."
            rule = paired if {*names} <= {*BY_INSTANCE} else "do not compare them."
            sentences.append(f"{one.source}: {one.file} and {other.file} differ in {', '.join(names)}; {rule}")
    return sentences


def warnings_of(tables: Mapping[str, Sequence[Result]]) -> list[str]:
    """Return the warnings of the audits, such as mirrored heatmaps, and the fields in which protocols differ."""
    told = [f"{one.file}: {said}" for table in tables.values() for one in table for said in one.warnings]
    return [*differing(tables), *told]


def leaderboard(paths: Sequence[Path], out: Path, sort: str = MEASURES[0]) -> dict[str, Any]:
    """Write ``leaderboard.html``, one page for each other column to sort by, Markdown and JSON; return the JSON."""
    check_known("column", sort, ("model", "map", *MEASURES))
    tables = read_results(paths)
    names = _page_names(sort)
    pages = {column: _page(tables, column, names, out) for column in names}
    further = {names[column]: render_html(page).encode() for column, page in pages.items() if column != sort}
    rows = [
        {"model": one.model, "map": one.kind, "source": one.source, "table": title, "protocol": one.protocol["hash"],
         "audit": str(one.file), **_values(one)}
        for title, table in tables.items() for one in _sorted(table, sort)
    ]  # fmt: skip
    priors = {
        title: _values(one) for title, table in tables.items() for one in _with_prior(table) if one.model == PRIOR
    }
    data = {"sorted_by": sort, "results": rows, "priors": priors, "warnings": warnings_of(tables)}
    write_page(
        pages[sort], out, html=names[sort], markdown="leaderboard.md", json_name="leaderboard.json", data=data,
        further=further,
    )  # fmt: skip
    return data


def _values(one: Result) -> dict[str, Any]:
    return {name: value.as_json() for name, value in one.values.items()}


def _page_names(sort: str) -> dict[str, str]:
    columns = ("model", "map", *MEASURES)
    named = dict(zip(columns, slugs(columns), strict=True))
    return {name: "leaderboard.html" if name == sort else f"by-{slug}.html" for name, slug in named.items()}


def _page(tables: Mapping[str, Sequence[Result]], sort: str, names: Mapping[str, str], out: Path) -> Page:
    sections = [
        Section(slug, title, parts=[_table(slug, title, table, sort, names, out), *_figure(slug, table, sort)])
        for slug, (title, table) in zip(slugs(tables), tables.items(), strict=True)
    ]
    count = sum(map(len, tables.values()))
    lead = (
        f"{count} audits, sorted by {_title(sort)}. In the HTML pages, a column's heading leads to the page sorted "
        "by it; each number leads to its audit. Compare rows of one table only."
    )
    return Page("Leaderboard", lead, sections, warning=" ".join(warnings_of(tables)))


def _title(column: str) -> str:
    if column in ("model", "map"):
        return column
    return _TITLES.get(column) or find_measure(column).title


def _sorted(table: Sequence[Result], sort: str) -> list[Result]:
    if sort in ("model", "map"):
        return sorted(table, key=lambda one: (one.kind, one.model) if sort == "map" else (one.model, one.kind))

    def place(one: Result) -> tuple[bool, float]:
        value = one.values.get(sort, Estimate(math.nan))
        return not value.defined, -value.value if value.defined else 0.0

    return sorted(table, key=place)


def _with_prior(table: Sequence[Result]) -> list[Result]:
    """Add the location prior, which all audits of one protocol share, as a row of its own."""
    known = next((one for one in table if one.prior), None)
    if known is None:
        return list(table)
    return [*table, replace(known, model=PRIOR, kind="image-blind", values=known.prior)]


def _table(
    name: str, title: str, table: Sequence[Result], sort: str, names: Mapping[str, str], out: Path
) -> Table:  # fmt: skip
    columns = [
        Column(
            f"{_title(column)} ▾" if column == sort else _title(column),
            "text" if column in ("model", "map") else "number",
            _HELP if column == "above_prior" else "" if column in ("model", "map") else find_measure(column).meaning,
            names[column],
        )
        for column in names
    ]
    rows = [
        [
            Cell(one.model, link=link), Cell(one.kind),
            *(replace(estimate_cell(one.values.get(column), signed=column == "above_prior"), link=link)
              for column in MEASURES),
        ]
        for one in _sorted(_with_prior(table), sort) for link in [relative_link(one.page, out)]
    ]  # fmt: skip
    some, *_ = table
    count = next(iter(some.values.values()), Estimate(math.nan))
    caption = (
        f"{count.n:,} phrases of {count.patients:,} patients; {100 * some.protocol.get('level', 0.95):g} % intervals "
        f"over patients; {_protocols(table)}. The location prior never sees the image."
    )
    return Table(name, title, caption, columns, rows)


def _protocols(table: Sequence[Result]) -> str:
    """Return the protocols of a table, and in which fields they differ."""
    hashes = [*dict.fromkeys(one.protocol["hash"] for one in table)]
    if len(hashes) == 1:
        return f"protocol {hashes[0]}"
    names = [
        name for name in OF_NO_SCORE if any(one.protocol.get(name) != table[0].protocol.get(name) for one in table)
    ]
    return f"protocols {', '.join(hashes)}, which differ in {', '.join(names)} only"


def _figure(name: str, table: Sequence[Result], sort: str) -> list[Figure]:
    if sort in ("model", "map"):
        return []
    rows = _sorted(_with_prior(table), sort)
    labels = [one.model if one.kind in ("own", "image-blind") else f"{one.model}, {one.kind}" for one in rows]
    signed = sort == "above_prior"
    panel = IntervalPanel(
        title=_title(sort), series={"model": [one.values.get(sort) for one in rows]}, signed=signed,
        line=0.0 if signed else None, fit_references=True,
    )  # fmt: skip
    references = [label for label, one in zip(labels, rows, strict=True) if one.model == PRIOR]
    title = f"{_title(sort)[0].upper()}{_title(sort)[1:]} with intervals"
    caption = f"{title}; the open mark is the image-blind location prior."
    return [panel_figure(f"{name}-figure", title, caption, labels, [panel], references=references)]
