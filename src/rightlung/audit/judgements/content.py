"""What a study found as sections of sentences and tables, for the page and for Markdown alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rightlung.audit.judgements.analysis import FEW_PATIENTS
from rightlung.audit.judgements.judgement import RATINGS, SCALE
from rightlung.audit.summary import metric_name, number, percent, span, verdict

SHOWN_FINDINGS = 10
SHOWN_PROBLEMS = 50
_CLUSTER = {"patients": "patient", "studies": "study"}
_MEASURES = {"kl_random": "KL to a random sentence's map"}


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, what is plotted, the cells after the plot."""

    name: str
    plotted: Mapping[str, Any] | None
    cells: Sequence[str]
    few: bool = False


@dataclass(frozen=True)
class Part:
    """A table with a plot in its second column, from ``low`` to ``high``; ``folded`` where it is not shown at once."""

    name: str
    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Row]
    low: float
    high: float
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with sentences and tables."""

    name: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Part] = ()
    listed: Sequence[str] = field(default=())


def sections(result: Mapping[str, Any]) -> list[Section]:
    """Return the sections that have anything to say."""
    found = [
        Section("summary", "What was found", listed=summary(result)),
        _means(result),
        _differences(result),
        _correlations(result),
        _agreement(result),
        _findings(result),
        _prompts(result),
        _left_out(result),
    ]
    return [one for one in found if one.sentences or one.tables or one.listed]


def measure_name(measure: str) -> str:
    """Return how a measure is called, with its target.

    >>> measure_name("iou@10 (regions)"), measure_name("entropy")
    ('IoU@10 %, regions', 'entropy (nats)')
    """
    name, _, target = measure.partition(" (")
    called = _MEASURES.get(name) or metric_name(name)
    return f"{called}, {target.removesuffix(')')}" if target else called


# --- in sentences -----------------------------------------------------------------------------------------------------


def best_model(result: Mapping[str, Any]) -> str | None:
    """Return the model whose heatmaps are judged the most intuitive, ``None`` where no report's prompt was judged."""
    means = result["means"]
    if not means:
        return None
    return str(max(means, key=lambda row: row["ratings"]["intuitiveness"]["estimate"])["model"])


def summary(result: Mapping[str, Any]) -> list[str]:
    """Return what was found, a sentence or two a question."""
    return [*_who(result), *_ranking(result), *_shown_differences(result), *_agreed(result), *_related(result)]


def _who(result: Mapping[str, Any]) -> Iterator[str]:
    counts = result["counts"]
    yield (
        f"{_some(counts['annotators'], 'annotator')} judged {_some(counts['models'], 'model')} on "
        f"{_some(counts['prompts'], 'prompt')} about {_some(counts['clusters'], _CLUSTER[result['clusters']])}: "
        f"{_some(counts['judgements'], 'judgement')}."
    )
    if result["blinded"]:
        yield "Models are called by their codes: no key was given."


def _ranking(result: Mapping[str, Any]) -> Iterator[str]:
    best = best_model(result)
    for row in result["means"]:
        if row["model"] == best:
            ratings = row["ratings"]
            most = "The most intuitive on average is" if len(result["means"]) > 1 else "The one model judged is"
            said = ", ".join(f"{name} {span(ratings[name], 1)}" for name in _RATINGS_SHOWN)
            yield f"{most} {best}: {said}, on a scale from {SCALE[0]} to {SCALE[1]}."


def _shown_differences(result: Mapping[str, Any]) -> Iterator[str]:
    found = [row for row in result["differences"] if row["rating"] == "intuitiveness"]
    if not found:
        return
    shown = [row for row in found if row["shown"]]
    pairs = f"in {len(shown)} of {_some(len(found), 'pair')} of models" if len(found) > 1 else "between the two models"
    if not shown:
        yield f"No difference in intuitiveness is shown {'between any two models' if len(found) > 1 else pairs}."
        return
    largest = max(shown, key=lambda row: abs(row["estimate"]))
    value = span(largest, signed=True)
    detail = f"{largest['first']} − {largest['second']} {value}"
    yield f"A difference in intuitiveness is shown {pairs}; the largest: {detail}."


def _agreed(result: Mapping[str, Any]) -> Iterator[str]:
    agreement = result["agreement"]
    if not agreement["units"]:
        yield "No prompt was judged by two annotators for the same model, so nothing can be said about their agreement."
        return
    found = agreement["ratings"]["intuitiveness"]
    yield (
        f"On intuitiveness the annotators agree with a Krippendorff's alpha of {span(found['ordinal'])} (ordinal; 1 is "
        f"perfect, 0 what chance gives); two of them say the same in {percent(found['exact'])} of the cases and differ "
        f"by one step at most in {percent(found['within_one'])}."
    )


def _related(result: Mapping[str, Any]) -> Iterator[str]:
    for found in result["correlations"]:
        if found["model"] != best_model(result):
            continue
        rows = [row for row in found["values"] if row["rating"] == "intuitiveness"]
        shown = [row for row in rows if row["pearson"]["shown"]]
        basis = f"over {found['pairs']:,} instances of {found['model']}"
        if not shown:
            yield f"No correlation of an automatic measure with intuitiveness is shown {basis}."
            continue
        best = max(shown, key=lambda row: abs(row["pearson"]["estimate"]))
        yield (
            f"Of {_some(len(rows), 'automatic measure')}, {len(shown)} "
            f"{'have' if len(shown) > 1 else 'has'} a correlation with intuitiveness that is shown {basis}; the "
            f"strongest is {measure_name(best['measure'])} with {span(best['pearson'], signed=True)}."
        )


def _some(count: int, what: str) -> str:
    several = f"{what[:-1]}ies" if what.endswith("dy") else f"{what}s"
    return f"{count:,} {what if count == 1 else several}"


# --- in tables --------------------------------------------------------------------------------------------------------


def _level(result: Mapping[str, Any]) -> str:
    return f"{100 * result['settings']['level']:g} % intervals, {result['clusters']} resampled."


def _means(result: Mapping[str, Any]) -> Section:
    tables = [
        Part(
            f"means-{rating}",
            rating.title(),
            f"Mean {rating}, {_SCALES[rating]}, over prompts from reports. {_level(result)}",
            ["model", "judgements", result["clusters"], "mean"],
            [
                Row(row["model"], value, [f"{row['judgements']:,}", f"{value['clusters']:,}", span(value)])
                for row in result["means"]
                for value in [row["ratings"][rating]]
            ],
            *SCALE,
        )
        for rating in _RATINGS_SHOWN
        if result["means"]
    ]
    return Section("means", "Ratings of each model", tables=tables)


_RATINGS_SHOWN = ("intuitiveness", "recall", "precision")
_SCALES = {
    "intuitiveness": "from 1 (misleading) to 5 (almost exactly what one might draw)",
    "recall": "how much of the region of interest the heatmap includes, 1 to 5 for 0–20 … 80–100 %",
    "precision": "how much of the heatmap is of interest, 1 to 5 for 0–20 … 80–100 %",
}


def _differences(result: Mapping[str, Any]) -> Section:
    tables = []
    for rating in _RATINGS_SHOWN:
        rows = [
            Row(
                f"{row['first']} − {row['second']}",
                row,
                [f"{row['n']:,}", span(row, signed=True), _p(row["p_adjusted"]), verdict(row)],
            )
            for row in result["differences"]
            if row["rating"] == rating
        ]
        if rows:
            title = f"Difference in {rating}"
            caption = f"{title}, on prompts that the same annotator judged for both models. {_level(result)}"
            header = ["models", "pairs", "difference", "p", "verdict"]
            folded = rating != "intuitiveness"
            tables.append(Part(f"differences-{rating}", title, caption, header, rows, -4.0, 4.0, folded))
    note = (
        "A difference is shown where the interval excludes zero and the p-value of a sign-flip test, adjusted for all "
        "pairs and ratings (Holm), says so, too."
    )
    return Section("differences", "Models compared", [note] if tables else [], tables)


def _p(value: float) -> str:
    return "–" if value is None or value != value else "< 0.001" if value < 0.001 else number(value, 3)


def _correlations(result: Mapping[str, Any]) -> Section:
    best = best_model(result)
    ordered = sorted(result["correlations"], key=lambda found: found["model"] != best)
    tables = [_correlated(found, kind, result, best) for found in ordered for kind in ("pearson", "spearman")]
    note = (
        "Does what can be measured without asking anybody go with what people say? One pair an instance; several "
        "annotators' ratings of it are averaged. An asterisk marks what is shown: the interval excludes zero, and the "
        "p-value of a sign-flip test, adjusted for all the measures and ratings of the table (Holm), says so, too. A "
        "correlation that is not marked may still be there. Open below: the most intuitive model."
    )
    return Section("correlations", "Ratings and automatic measures", [note] if tables else [], tables)


def _correlated(found: Mapping[str, Any], kind: str, result: Mapping[str, Any], best: str | None) -> Part:
    by_measure: dict[str, dict[str, Any]] = {}
    pairs: dict[str, int] = {}
    for row in found["values"]:
        by_measure.setdefault(row["measure"], {})[row["rating"]] = row[kind]
        pairs[row["measure"]] = row["pairs"]
    rows = [
        Row(
            measure_name(measure),
            values["intuitiveness"],
            [f"{pairs[measure]:,}", *(_marked(values[rating]) for rating in _RATINGS_SHOWN)],
        )
        for measure, values in by_measure.items()
    ]
    title = f"{kind.title()}'s correlations, {found['model']}"
    header = ["measure", "pairs", *_RATINGS_SHOWN]
    folded = not (found["model"] == best and kind == "pearson")
    caption = f"{kind.title()}'s correlation with each rating. Plotted: intuitiveness. {_level(result)}"
    place = result["models"].index(found["model"]) if found["model"] in result["models"] else "all"
    return Part(f"{kind}-{place}", title, caption, header, rows, -1.0, 1.0, folded)


def _marked(value: Mapping[str, Any]) -> str:
    return span(value, signed=True) + (" *" if value["shown"] else "")


def _agreement(result: Mapping[str, Any]) -> Section:
    agreement = result["agreement"]
    tables = []
    if agreement["units"]:
        rows = []
        for rating in _RATINGS_SHOWN:
            found = agreement["ratings"][rating]
            cells = [span(found["ordinal"]), span(found["interval"]), percent(found["exact"])]
            rows.append(Row(rating, found["ordinal"], [*cells, percent(found["within_one"])]))
        caption = (
            f"{_some(agreement['units'], 'heatmap')} that two annotators or more judged, of "
            f"{_some(agreement['annotators'], 'annotator')}. Plotted: ordinal alpha. {_level(result)}"
        )
        header = ["rating", "alpha, ordinal", "alpha, interval", "the same", "within one step"]
        tables.append(Part("agreement", "Agreement", caption, header, rows, -1.0, 1.0))
    rows = [
        Row(
            row["annotator"],
            row["ratings"]["intuitiveness"],
            [f"{row['judgements']:,}", *(span(row["ratings"][rating]) for rating in _RATINGS_SHOWN)],
        )
        for row in result["annotators"]
    ]
    caption = f"Mean ratings of each annotator, of whatever each was given. Plotted: intuitiveness. {_level(result)}"
    tables.append(
        Part("annotators", "Each annotator", caption, ["annotator", "judgements", *_RATINGS_SHOWN], rows, *SCALE)
    )
    alone = [] if agreement["units"] else ["No heatmap was judged by two annotators: their agreement is not known."]
    return Section("agreement", "Annotators", alone, tables)


def _findings(result: Mapping[str, Any]) -> Section:
    groups = result["findings"]
    if not groups:
        return Section("findings", "Intuitiveness by finding")
    several = len(result["models"]) > 1
    rows = [
        Row(
            group["finding"] + (" *" if group["few"] else ""),
            group["all"],
            [
                f"{group['prompts']:,}",
                f"{group['clusters']:,}",
                span(group["all"]),
                *(span(group["models"].get(model)) for model in result["models"] if several),
            ],
            group["few"],
        )
        for group in groups[:SHOWN_FINDINGS]
    ]
    header = ["finding", "prompts", result["clusters"], "all models", *(result["models"] if several else [])]
    caption = f"Mean intuitiveness; a prompt counts for each finding it asserts. Plotted: all models. {_level(result)}"
    notes = []
    if any(group["few"] for group in groups[:SHOWN_FINDINGS]):
        notes.append(f"* fewer than {FEW_PATIENTS} {result['clusters']}: the interval means little.")
    if len(groups) > SHOWN_FINDINGS:
        notes.append(f"The {SHOWN_FINDINGS} most judged of {len(groups)} findings; all are in judgements.json.")
    return Section(
        "findings",
        "Intuitiveness by finding",
        notes,
        [Part("findings", "The most judged", caption, header, rows, *SCALE)],
    )


def _prompts(result: Mapping[str, Any]) -> Section:
    tables = []
    for rating in _RATINGS_SHOWN:
        rows = [
            Row(
                row["model"],
                row["difference"][rating] if row["report"] else None,
                [
                    span(row["report"][rating]) if row["report"] else "–",
                    f"{row['custom'][rating]['n']:,}",
                    span(row["custom"][rating]),
                    span(row["difference"][rating], signed=True) if row["report"] else "–",
                ],
            )
            for row in result["prompts"]
        ]
        if rows:
            title = rating.title()
            header = ["model", "from reports", "judgements", "custom", "difference"]
            caption = f"Mean {rating}. Plotted: custom minus from reports, not paired. {_level(result)}"
            folded = rating != "intuitiveness"
            tables.append(Part(f"prompts-{rating}", title, caption, header, rows, -4.0, 4.0, folded))
    return Section("prompts", "Prompts that annotators wrote", tables=tables)


def _left_out(result: Mapping[str, Any]) -> Section:
    listed = [*result.get("problems", ()), *result["notes"]]
    if result.get("open"):
        listed.append(f"{_some(result['open'], 'row')} still to be judged")
    more = [f"… and {len(listed) - SHOWN_PROBLEMS} more, in judgements.json"] if len(listed) > SHOWN_PROBLEMS else []
    return Section("problems", "What was left out, and what to know", listed=[*listed[:SHOWN_PROBLEMS], *more])


def settings(result: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return what the numbers rest on, by name."""
    yield "table", str(result.get("table", "–"))
    for name, value in result["settings"].items():
        yield name, f"{value:,}" if isinstance(value, int) else str(value)
    yield "ratings", ", ".join(RATINGS)
    yield "models", "codes" if result["blinded"] else "names, by the key"
