"""Summarise a study of judgements in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rightlung.judgements.analysis import estimate_of
from rightlung.judgements.judgement import SCALE
from rightlung.measuring.measures import find_measure
from rightlung.pages.numbers import percent, span

RATINGS_SHOWN = ("intuitiveness", "recall", "precision")
"""The ratings in the order of tables and figures."""


def measure_name(measure: str) -> str:
    """Return the title of a measure with its target.

    >>> measure_name("iou@10 (regions)"), measure_name("entropy")
    ('IoU@10 %, regions', 'entropy (nats)')
    """
    name, _, target = measure.partition(" (")
    title = find_measure(name).title
    return f"{title}, {target.removesuffix(')')}" if target else title


def best_model(result: Mapping[str, Any]) -> str | None:
    """Return the model with the highest mean intuitiveness, ``None`` if no prompt from a report was judged."""
    means = result["means"]
    if not means:
        return None
    return str(max(means, key=lambda row: row["ratings"]["intuitiveness"]["estimate"])["model"])


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "study"), counted(1200, "study")
    ('1 study', '1,200 studies')
    """
    several = f"{what[:-1]}ies" if what.endswith("dy") else f"{what}s"
    return f"{count:,} {what if count == 1 else several}"


def summary(result: Mapping[str, Any]) -> list[str]:
    """Return the findings, one or two sentences per question."""
    return [*_who(result), *_ranking(result), *_shown_differences(result), *_agreed(result), *_related(result)]


def _who(result: Mapping[str, Any]) -> Iterator[str]:
    counts = result["counts"]
    cluster = "patient" if result["clusters"] == "patients" else "study"
    yield (
        f"{counted(counts['annotators'], 'annotator')} judged {counted(counts['models'], 'model')} on "
        f"{counted(counts['prompts'], 'prompt')} from {counted(counts['clusters'], cluster)}: "
        f"{counted(counts['judgements'], 'judgement')}."
    )
    if result["blinded"]:
        yield "No key was given, so models are named by their codes."


def _ranking(result: Mapping[str, Any]) -> Iterator[str]:
    ratings = {row["model"]: row["ratings"] for row in result["means"]}
    if best := best_model(result):
        highest = ratings[best]["intuitiveness"]["estimate"]
        tied = [name for name in ratings if name != best and ratings[name]["intuitiveness"]["estimate"] == highest]
        most = "Most intuitive on average" + (f", together with {', '.join(tied)}:" if tied else ":")
        most = most if len(ratings) > 1 else "The only model judged:"
        means = ", ".join(f"{name} {span(estimate_of(ratings[best][name]), 1)}" for name in RATINGS_SHOWN)
        yield f"{most} {best} ({means}; scale {SCALE[0]} to {SCALE[1]})."


def _shown_differences(result: Mapping[str, Any]) -> Iterator[str]:
    found = [row for row in result["differences"] if row["rating"] == "intuitiveness"]
    if not found:
        return
    shown = [row for row in found if row["shown"]]
    pairs = (
        f"for {len(shown)} of {counted(len(found), 'pair')} of models" if len(found) > 1 else "between the two models"
    )
    largest = max(shown or found, key=lambda row: abs(row["estimate"]))
    detail = f"{largest['first']} − {largest['second']} {span(estimate_of(largest), signed=True)}"
    if shown:
        yield f"A difference in intuitiveness is shown {pairs}; the largest: {detail}."
    else:
        between = "between any two models" if len(found) > 1 else pairs
        yield f"No difference in intuitiveness is shown {between}; the largest: {detail}."
    if few := [f"{row['first']} − {row['second']}" for row in found if row["verdict"] == "too few patients to tell"]:
        yield f"Too few patients to tell for {', '.join(few)}."


def _agreed(result: Mapping[str, Any]) -> Iterator[str]:
    agreement = result["agreement"]
    if not agreement["units"]:
        yield "No heatmap was judged by two annotators, so their agreement is unknown."
        return
    found = {name: estimate_of(value) for name, value in agreement["ratings"]["intuitiveness"].items()}
    yield (
        f"Agreement on intuitiveness: Krippendorff's alpha {span(found['ordinal'])} (ordinal; 1 is perfect, 0 is "
        f"chance). Two annotators give the same rating in {percent(found['exact'])} of the cases, and ratings at most "
        f"one step apart in {percent(found['within_one'])}."
    )


def _related(result: Mapping[str, Any]) -> Iterator[str]:
    model = best_model(result)
    for found in (one for one in result["correlations"] if one["model"] == model):
        rows = [row for row in found["values"] if row["rating"] == "intuitiveness"]
        shown = [row for row in rows if row["pearson"]["shown"]]
        basis = f"over {found['pairs']:,} instances of {model}"
        if not shown:
            few = all(row["pearson"]["verdict"] == "too few patients to tell" for row in rows)
            outcome = "Too few patients to tell: no" if few else "No"
            yield f"{outcome} automatic measure shows a correlation with intuitiveness {basis}."
            return
        best = max(shown, key=lambda row: abs(row["pearson"]["estimate"]))
        yield (
            f"{len(shown)} of {counted(len(rows), 'automatic measure')} correlate significantly with intuitiveness "
            f"{basis}. Strongest: {measure_name(best['measure'])}, {span(estimate_of(best['pearson']), signed=True)}."
        )
