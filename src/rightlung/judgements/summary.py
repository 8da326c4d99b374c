"""What a study of judgements found, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rightlung.judgements.analysis import estimate_of
from rightlung.judgements.judgement import SCALE
from rightlung.measuring.measures import find_measure
from rightlung.pages.numbers import percent, span

RATINGS_SHOWN = ("intuitiveness", "recall", "precision")
"""The ratings in the order in which they are read."""


def measure_name(measure: str) -> str:
    """Return how a measure is called, with its target.

    >>> measure_name("iou@10 (regions)"), measure_name("entropy")
    ('IoU@10 %, regions', 'entropy (nats)')
    """
    name, _, target = measure.partition(" (")
    title = find_measure(name).title
    return f"{title}, {target.removesuffix(')')}" if target else title


def best_model(result: Mapping[str, Any]) -> str | None:
    """Return the model whose heatmaps are the most intuitive, ``None`` where no prompt from a report was judged."""
    means = result["means"]
    if not means:
        return None
    return str(max(means, key=lambda row: row["ratings"]["intuitiveness"]["estimate"])["model"])


def some(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> some(1, "study"), some(1200, "study")
    ('1 study', '1,200 studies')
    """
    several = f"{what[:-1]}ies" if what.endswith("dy") else f"{what}s"
    return f"{count:,} {what if count == 1 else several}"


def summary(result: Mapping[str, Any]) -> list[str]:
    """Return what was found, a sentence or two for each question."""
    return [*_who(result), *_ranking(result), *_shown_differences(result), *_agreed(result), *_related(result)]


def _who(result: Mapping[str, Any]) -> Iterator[str]:
    counts = result["counts"]
    cluster = "patient" if result["clusters"] == "patients" else "study"
    yield (
        f"{some(counts['annotators'], 'annotator')} judged {some(counts['models'], 'model')} on "
        f"{some(counts['prompts'], 'prompt')} about {some(counts['clusters'], cluster)}: "
        f"{some(counts['judgements'], 'judgement')}."
    )
    if result["blinded"]:
        yield "Models are called by their codes: no key was given."


def _ranking(result: Mapping[str, Any]) -> Iterator[str]:
    ratings = {row["model"]: row["ratings"] for row in result["means"]}
    if best := best_model(result):
        most = "The most intuitive on average is" if len(ratings) > 1 else "The one model judged is"
        means = ", ".join(f"{name} {span(estimate_of(ratings[best][name]), 1)}" for name in RATINGS_SHOWN)
        yield f"{most} {best}: {means}, on a scale from {SCALE[0]} to {SCALE[1]}."


def _shown_differences(result: Mapping[str, Any]) -> Iterator[str]:
    found = [row for row in result["differences"] if row["rating"] == "intuitiveness"]
    if not found:
        return
    shown = [row for row in found if row["shown"]]
    pairs = f"in {len(shown)} of {some(len(found), 'pair')} of models" if len(found) > 1 else "between the two models"
    if not shown:
        yield f"No difference in intuitiveness is shown {'between any two models' if len(found) > 1 else pairs}."
        return
    largest = max(shown, key=lambda row: abs(row["estimate"]))
    detail = f"{largest['first']} − {largest['second']} {span(estimate_of(largest), signed=True)}"
    yield f"A difference in intuitiveness is shown {pairs}; the largest: {detail}."


def _agreed(result: Mapping[str, Any]) -> Iterator[str]:
    agreement = result["agreement"]
    if not agreement["units"]:
        yield "No prompt was judged by two annotators for the same model, so nothing can be said about their agreement."
        return
    found = {name: estimate_of(value) for name, value in agreement["ratings"]["intuitiveness"].items()}
    yield (
        f"On intuitiveness the annotators agree with a Krippendorff's alpha of {span(found['ordinal'])} (ordinal; 1 is "
        f"perfect, 0 what chance gives); two of them say the same in {percent(found['exact'])} of the cases and differ "
        f"by one step at most in {percent(found['within_one'])}."
    )


def _related(result: Mapping[str, Any]) -> Iterator[str]:
    model = best_model(result)
    for found in (one for one in result["correlations"] if one["model"] == model):
        rows = [row for row in found["values"] if row["rating"] == "intuitiveness"]
        shown = [row for row in rows if row["pearson"]["shown"]]
        basis = f"over {found['pairs']:,} instances of {model}"
        if not shown:
            yield f"No correlation of an automatic measure with intuitiveness is shown {basis}."
            return
        best = max(shown, key=lambda row: abs(row["pearson"]["estimate"]))
        yield (
            f"Of {some(len(rows), 'automatic measure')}, {len(shown)} {'have' if len(shown) > 1 else 'has'} a "
            f"correlation with intuitiveness that is shown {basis}; the strongest is {measure_name(best['measure'])} "
            f"with {span(estimate_of(best['pearson']), signed=True)}."
        )
