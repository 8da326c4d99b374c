"""The page of a study of judgements: what was found, ratings of each model, and the tables behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rightlung.judgements.analysis import FEW_PATIENTS, estimate_of
from rightlung.judgements.judgement import RATINGS, SCALE
from rightlung.judgements.summary import RATINGS_SHOWN, best_model, measure_name, some, summary
from rightlung.pages.content import Cell, Column, Figure, Page, Section, Table
from rightlung.pages.figures import IntervalPanel, interval_figure
from rightlung.pages.numbers import estimate_cell, number, percent

SHOWN_FINDINGS = 10
SHOWN_PROBLEMS = 50
_SCALES = {
    "intuitiveness": "1 misleading – 5 as one might draw",
    "recall": "share of the region included, 1 to 5",
    "precision": "share of the heatmap of interest, 1 to 5",
}

Result = Mapping[str, Any]


def make_page(result: Result) -> Page:
    """Return the page of a study's result (see `rightlung.judgements.analyse_table`)."""
    facts = {"table": str(result.get("table", "–"))}
    facts |= {name: f"{value:,}" for name, value in result["settings"].items()}
    facts |= {"ratings": ", ".join(RATINGS), "models": "codes" if result["blinded"] else "names, by the key"}
    lead = "Ratings of models' heatmaps by people who did not know which model drew them."
    return Page("Judgements of heatmaps", lead, sections(result), facts)


def sections(result: Result) -> list[Section]:
    """Return the sections, of which those without content are not shown."""
    return [
        Section("summary", "What was found", items=summary(result)),
        _means(result),
        _differences(result),
        _correlations(result),
        _agreement(result),
        _findings(result),
        _prompts(result),
        _left_out(result),
    ]


def _level(result: Result) -> str:
    return f"{100 * result['settings']['level']:g} % intervals, {result['clusters']} resampled."


def _cell(value: Mapping[str, Any] | None, signed: bool = False) -> Cell:
    """Return an estimate; bold where it is shown to differ from zero."""
    return estimate_cell(estimate_of(value), signed=signed, strong=bool(value and value.get("shown")))


def _cells(values: Mapping[str, Any] | None, signed: bool = False) -> list[Cell]:
    return [_cell(values and values[name], signed) for name in RATINGS_SHOWN]


def _count(count: int) -> Cell:
    return Cell(f"{count:,}", value=count)


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


def _means(result: Result) -> Section:
    means = result["means"]
    if not means:
        return Section("means", "Ratings of each model")
    panels = [
        IntervalPanel(
            title=rating, subtitle=_SCALES[rating], limits=SCALE,
            series={rating: [estimate_of(row["ratings"][rating]) for row in means]},
        )
        for rating in RATINGS_SHOWN
    ]  # fmt: skip
    caption = f"Mean ratings over prompts from reports. {_level(result)}"
    figure = interval_figure("ratings", "Mean ratings", caption, [row["model"] for row in means], panels)
    rows = [
        [Cell(row["model"]), _count(row["judgements"]), _count(row["ratings"]["recall"]["clusters"])]
        + _cells(row["ratings"])
        for row in means
    ]
    header = ["model", "judgements", result["clusters"], *RATINGS_SHOWN]
    table = _table("means", "Mean ratings in numbers", caption, header, rows)
    return Section("means", "Ratings of each model", parts=[figure, table])


def _differences(result: Result) -> Section:
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result["differences"]:
        pairs.setdefault((row["first"], row["second"]), {})[row["rating"]] = row
    if not pairs:
        return Section("differences", "Models compared")
    rows = [
        [Cell(f"{first} − {second}"), _count(found["recall"]["n"])]
        + [cell for name in RATINGS_SHOWN for cell in (_cell(found[name], True), _p(found[name]["p_adjusted"]))]
        for (first, second), found in pairs.items()
    ]
    header = ["models", "pairs", *(title for name in RATINGS_SHOWN for title in (name, "p"))]
    caption = f"Mean difference on prompts that the same annotator judged for both models. {_level(result)}"
    note = (
        "A difference is shown (bold) where the interval excludes zero and the p-value of a sign-flip test, adjusted "
        "for all pairs and ratings (Holm), is below 1 − level."
    )
    table = _table("differences", "Differences between models", caption, header, rows)
    return Section("differences", "Models compared", [note], parts=[table])


def _p(value: float) -> Cell:
    return Cell("< 0.001" if value < 0.001 else number(value, 3), value=value)


def _correlations(result: Result) -> Section:
    best = best_model(result)
    ordered = sorted(result["correlations"], key=lambda found: bool(found["model"] != best))
    parts: list[Table | Figure] = [_correlation_figure(found, result) for found in ordered if found["model"] == best]
    parts += [_correlation_table(found, kind, result) for found in ordered for kind in ("pearson", "spearman")]
    note = (
        "Does what can be measured without asking anybody go with what people say? Each instance is one pair; the "
        "ratings of several annotators are averaged. A correlation is shown (bold) where the interval excludes zero and "
        "the p-value of a sign-flip test, adjusted for all measures and ratings of the table (Holm), is below 1 − level. "
        "A correlation that is not shown may still exist. The figure is of the most intuitive model."
    )
    return Section("correlations", "Ratings and automatic measures", [note] if parts else [], parts=parts)


def _by_measure(found: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for row in found["values"]:
        rows.setdefault(measure_name(row["measure"]), {"pairs": row["pairs"]})[row["rating"]] = row[kind]
    return rows


def _correlation_figure(found: Mapping[str, Any], result: Result) -> Figure:
    rows = _by_measure(found, "pearson")
    panels = [
        IntervalPanel(
            title=rating, line=0.0, limits=(-1, 1), signed=True,
            series={rating: [estimate_of(row[rating]) for row in rows.values()]},
        )
        for rating in RATINGS_SHOWN
    ]  # fmt: skip
    title = f"Correlation of measures with ratings, {found['model']}"
    caption = f"Pearson's correlation of each measure with each rating. {_level(result)}"
    return interval_figure("correlations", title, caption, list(rows), panels)


def _correlation_table(found: Mapping[str, Any], kind: str, result: Result) -> Table:
    rows = [
        [Cell(name), _count(row["pairs"]), *_cells(row, signed=True)] for name, row in _by_measure(found, kind).items()
    ]
    place = result["models"].index(found["model"]) if found["model"] in result["models"] else "all"
    title, caption = (
        f"{kind.title()}'s correlations, {found['model']}",
        f"{kind.title()}'s correlation with each rating.",
    )
    return _table(f"{kind}-{place}", title, f"{caption} {_level(result)}", ["measure", "pairs", *RATINGS_SHOWN], rows)


def _agreement(result: Result) -> Section:
    agreement, parts = result["agreement"], []
    if agreement["units"]:
        rows = []
        for rating in RATINGS_SHOWN:
            found = agreement["ratings"][rating]
            shares = [Cell(percent(estimate_of(found[name])), value=found[name]) for name in ("exact", "within_one")]
            rows.append([Cell(rating), _cell(found["ordinal"]), _cell(found["interval"]), *shares])
        caption = (
            f"{some(agreement['units'], 'heatmap')} that two annotators or more judged, of "
            f"{some(agreement['annotators'], 'annotator')}. {_level(result)}"
        )
        header = ["rating", "alpha, ordinal", "alpha, interval", "the same", "within one step"]
        parts.append(_table("agreement", "Agreement", caption, header, rows))
    rows = [
        [Cell(row["annotator"]), _count(row["judgements"]), *_cells(row["ratings"])] for row in result["annotators"]
    ]
    caption = f"Mean ratings of each annotator, of whatever each was given. {_level(result)}"
    parts.append(_table("annotators", "Each annotator", caption, ["annotator", "judgements", *RATINGS_SHOWN], rows))
    alone = [] if agreement["units"] else ["No heatmap was judged by two annotators: their agreement is not known."]
    return Section("annotators", "Annotators", alone, parts=parts)


def _findings(result: Result) -> Section:
    groups, models = result["findings"], result["models"] if len(result["models"]) > 1 else []
    if not groups:
        return Section("findings", "Intuitiveness by finding")
    rows = [
        [Cell(group["finding"] + (" *" if group["few"] else "")), _count(group["prompts"]), _count(group["clusters"])]
        + [_cell(value) for value in (group["all"], *(group["models"].get(model) for model in models))]
        for group in groups[:SHOWN_FINDINGS]
    ]
    notes = []
    if any(group["few"] for group in groups[:SHOWN_FINDINGS]):
        notes.append(f"* fewer than {FEW_PATIENTS} {result['clusters']}: the interval means little.")
    if len(groups) > SHOWN_FINDINGS:
        notes.append(f"The {SHOWN_FINDINGS} most judged of {len(groups)} findings; all are in judgements.json.")
    caption = f"Mean intuitiveness; a prompt counts for each finding it asserts. {_level(result)}"
    header = ["finding", "prompts", result["clusters"], "all models", *models]
    table = _table("findings", "The most judged findings", caption, header, rows, notes)
    return Section("findings", "Intuitiveness by finding", parts=[table])


def _prompts(result: Result) -> Section:
    rows = [
        [Cell(row["model"]), Cell(title), *_cells(row.get(name), signed=name == "difference")]
        for row in result["prompts"]
        for name, title in (("report", "from reports"), ("custom", "custom"), ("difference", "custom − from reports"))
    ]
    if not rows:
        return Section("prompts", "Prompts that annotators wrote")
    caption = f"Mean ratings; the difference is not paired. {_level(result)}"
    table = _table(
        "prompts", "Custom prompts and prompts from reports", caption, ["model", "prompts", *RATINGS_SHOWN], rows
    )
    return Section("prompts", "Prompts that annotators wrote", parts=[table])


def _left_out(result: Result) -> Section:
    items = [*result.get("problems", ()), *result["notes"]]
    if result.get("open"):
        items.append(f"{some(result['open'], 'row')} still to be judged")
    more = [f"… and {len(items) - SHOWN_PROBLEMS} more, in judgements.json"] if len(items) > SHOWN_PROBLEMS else []
    return Section("problems", "What was left out, and what to know", items=[*items[:SHOWN_PROBLEMS], *more])
