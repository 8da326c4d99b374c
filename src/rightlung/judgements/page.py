"""Lay out the page of a study of judgements: the findings, the ratings of each model, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rightlung.judgements.analysis import estimate_of
from rightlung.judgements.judgement import RATINGS, SCALE
from rightlung.judgements.summary import RATINGS_SHOWN, best_model, counted, measure_name, summary
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, panel_figure
from rightlung.pages.numbers import estimate_cell, number, percent

SHOWN_FINDINGS = 10
SHOWN_PROBLEMS = 50
_SCALES = {
    "intuitiveness": "1 misleading, 5 as a reader would draw it",
    "recall": "share of the region covered, 1 to 5",
    "precision": "share of the heatmap that is relevant, 1 to 5",
}
_TESTED = "is shown (bold) if the interval excludes zero and the sign-flip test survives Holm's correction for all "
_COMPARED = f"A difference {_TESTED}pairs and ratings."
_CORRELATED = (
    "Which automatic measures agree with the ratings? Each instance is one pair; the ratings of several annotators are "
    f"averaged. A correlation {_TESTED}measures and ratings of the table. A correlation that is not shown may still "
    "exist. The figure shows the most intuitive model."
)

Result = Mapping[str, Any]


def make_page(result: Result) -> Page:
    """Return the page of a study's result (see `rightlung.judgements.analyse_table`)."""
    facts = {"table": str(result.get("table", "–"))}
    facts |= {name: f"{value:,}" for name, value in result["settings"].items()}
    facts |= {"ratings": ", ".join(RATINGS), "models": "codes (no key)" if result["blinded"] else "names from the key"}
    lead = "Ratings of heatmaps by annotators who did not know which model made them."
    return Page("Judgements of heatmaps", lead, sections(result), facts)


def sections(result: Result) -> list[Section]:
    """Return the sections; those without content are not shown."""
    findings = [_findings(result)] if result["findings"] else []
    prompts = [_prompts(result)] if result["prompts"] else []
    alone = "No heatmap was judged by two annotators, so their agreement is unknown."
    return [
        Section("summary", "Findings", items=summary(result)),
        Section("ratings", "Ratings by model", parts=_means(result) if result["means"] else []),
        Section("comparison", "Differences between models", **_explained(_COMPARED, _differences(result))),
        Section("measures", "Ratings and automatic measures", **_explained(_CORRELATED, _correlations(result))),
        Section("people", "Annotators", [] if result["agreement"]["units"] else [alone], parts=_annotators(result)),
        Section("by-finding", "Intuitiveness by finding", parts=findings),
        Section("custom", "Custom prompts", parts=prompts),
        Section("problems", "Left out, and notes", items=_left_out(result)),
    ]


def _explained(text: str, parts: Sequence[Table | Figure]) -> dict[str, Any]:
    return {"paragraphs": [text] if parts else [], "parts": parts}


def _level(result: Result) -> str:
    return f"{100 * result['settings']['level']:g} % confidence intervals (bootstrap over {result['clusters']})."


def _cell(value: Mapping[str, Any] | None, signed: bool = False) -> Cell:
    """Return an estimate, bold where it is shown to differ from zero."""
    return estimate_cell(estimate_of(value), signed=signed, strong=bool(value and value.get("shown")))


def _cells(values: Mapping[str, Any] | None, signed: bool = False) -> list[Cell]:
    return [_cell(values and values[name], signed) for name in RATINGS_SHOWN]


def _named(name: str, *counts: int) -> list[Cell]:
    return [Cell(name), *(Cell(f"{count:,}", value=count) for count in counts)]


def _table(
    name: str,
    title: str,
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    notes: Sequence[str] = (),
) -> Table:
    columns = [Column(header[0], "text"), *(Column(title) for title in header[1:])]
    return Table(name, title, caption, columns, rows, notes, folded=True)


def ratings_figure(
    name: str, title: str, caption: str, rows: Mapping[str, Mapping[str, Any]], folded: bool = False, **panel: Any
) -> Figure:
    """Return a figure with a panel for each rating; ``rows`` has the values of the ratings by label."""
    panels = [
        IntervalPanel(title=rating, series={rating: [estimate_of(row[rating]) for row in rows.values()]}, **panel)
        for rating in RATINGS_SHOWN
    ]
    return panel_figure(name, title, caption, list(rows), panels, folded=folded)


def _means(result: Result) -> list[Table | Figure]:
    scales = "; ".join(f"{name}: {scale}" for name, scale in _SCALES.items())
    caption = f"Mean ratings of prompts from reports ({scales}). {_level(result)}"
    rows = [
        _named(row["model"], row["judgements"], row["ratings"]["recall"]["clusters"]) + _cells(row["ratings"])
        for row in result["means"]
    ]
    header = ["model", "judgements", result["clusters"], *RATINGS_SHOWN]
    drawn = {row["model"]: row["ratings"] for row in result["means"]}
    figure = ratings_figure("ratings", "Mean ratings", caption, drawn, limits=SCALE)
    return [figure, _table("means", "Mean ratings, table", caption, header, rows)]


def _differences(result: Result) -> list[Table]:
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result["differences"]:
        pairs.setdefault((row["first"], row["second"]), {})[row["rating"]] = row
    rows = [
        _named(f"{first} − {second}", found["recall"]["n"])
        + [cell for name in RATINGS_SHOWN for cell in (_cell(found[name], True), _p(found[name]["p_adjusted"]))]
        for (first, second), found in pairs.items()
    ]
    header = ["models", "paired judgements", *(title for name in RATINGS_SHOWN for title in (name, "p"))]
    caption = f"Mean difference on prompts that the same annotator judged for both models. {_level(result)}"
    return [_table("differences", "Paired differences", caption, header, rows)] if rows else []


def _p(value: float) -> Cell:
    return Cell("< 0.001" if value < 0.001 else number(value, 3), value=value)


def _correlations(result: Result) -> list[Table | Figure]:
    best, parts = best_model(result), list[Table | Figure]()
    for found in sorted(result["correlations"], key=lambda found: bool(found["model"] != best)):
        place = result["models"].index(found["model"]) if found["model"] in result["models"] else "all"
        for kind in ("pearson", "spearman"):
            values: dict[str, dict[str, Any]] = {}
            for row in found["values"]:
                values.setdefault(measure_name(row["measure"]), {"pairs": row["pairs"]})[row["rating"]] = row[kind]
            title = f"{kind.title()} correlations, {found['model']}"
            caption = f"{kind.title()} correlation of each measure with each rating. {_level(result)}"
            if found["model"] == best and kind == "pearson":
                parts.append(ratings_figure("best", title, caption, values, line=0.0, limits=(-1, 1), signed=True))
            rows = [_named(name, row["pairs"]) + _cells(row, signed=True) for name, row in values.items()]
            header = ["measure", "pairs", *RATINGS_SHOWN]
            parts.append(_table(f"{kind}-{place}", f"{title}, table", caption, header, rows))
    return parts


def _annotators(result: Result) -> list[Table]:
    agreement, parts = result["agreement"], []
    if agreement["units"]:
        rows = []
        for rating in RATINGS_SHOWN:
            found = agreement["ratings"][rating]
            shares = [Cell(percent(estimate_of(found[name])), value=found[name]) for name in ("exact", "within_one")]
            rows.append([Cell(rating), _cell(found["ordinal"]), _cell(found["interval"]), *shares])
        caption = (
            f"{counted(agreement['units'], 'heatmap')} judged by at least two of "
            f"{counted(agreement['annotators'], 'annotator')}. {_level(result)}"
        )
        header = ["rating", "Krippendorff's alpha (ordinal)", "alpha (interval)", "same rating", "within one step"]
        parts.append(_table("agreement", "Agreement", caption, header, rows))
    rows = [_named(row["annotator"], row["judgements"]) + _cells(row["ratings"]) for row in result["annotators"]]
    caption = f"Mean ratings by annotator; annotators may have judged different prompts. {_level(result)}"
    return [
        *parts,
        _table("annotators", "Ratings by annotator", caption, ["annotator", "judgements", *RATINGS_SHOWN], rows),
    ]


def _findings(result: Result) -> Table:
    groups, models = result["findings"][:SHOWN_FINDINGS], result["models"] if len(result["models"]) > 1 else []
    rows = [
        _named(group["finding"], group["prompts"], group["clusters"])
        + [_cell(value) for value in (group["all"], *(group["models"].get(model) for model in models))]
        for group in groups
    ]
    notes = []
    if (count := len(result["findings"])) > SHOWN_FINDINGS:
        notes.append(f"The {SHOWN_FINDINGS} most frequent of {count} findings; all are in judgements.json.")
    caption = f"Mean intuitiveness. A prompt that asserts several findings counts for each. {_level(result)}"
    header = ["finding", "prompts", result["clusters"], "all models", *models]
    return _table("findings", "Most frequent findings", caption, header, rows, notes)


def _prompts(result: Result) -> Table:
    rows = [
        [Cell(f"{row['model']}, {title}"), *_cells(row.get(name), signed=name == "difference")]
        for row in result["prompts"]
        for name, title in (("report", "from reports"), ("custom", "custom"), ("difference", "custom − from reports"))
    ]
    caption = f"Mean ratings of prompts written by annotators and prompts from reports (unpaired). {_level(result)}"
    return _table("prompts", "Custom prompts and prompts from reports", caption, ["prompts", *RATINGS_SHOWN], rows)


def _left_out(result: Result) -> list[str]:
    items = [*result.get("problems", ()), *result["notes"]]
    if result.get("open"):
        items.append(f"{counted(result['open'], 'row')} not yet judged")
    more = [f"… and {len(items) - SHOWN_PROBLEMS} more, in judgements.json"] if len(items) > SHOWN_PROBLEMS else []
    return [*items[:SHOWN_PROBLEMS], *more]
