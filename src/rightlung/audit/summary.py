"""Summarise an audit in plain sentences: first the verdict, then the details of each section of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.content import Mark, MarkedSentence
from rightlung.pages.numbers import percent, span, verdict
from rightlung.results.groups import (
    Abstention,
    Breakdown,
    ConditionChanges,
    GroupResult,
    PriorComparison,
    SideResults,
)
from rightlung.scoring.statistics import Verdict

_SWAPPED = "With left and right swapped"


def sentences(found: Breakdown) -> list[str]:
    """Return the verdict and the details, one or two sentences per question."""
    said = [f"{one.text} {one.detail}".strip() for one in verdicts(found)]
    return [*said, *(text for texts in details(found).values() for text in texts)]


def verdicts(found: Breakdown) -> list[MarkedSentence]:
    """Answer whether the map depends on the image, the words and the side, and whether it beats the prior."""
    words, subject, how = "swap-sides", "the words left and right", _SWAPPED
    if "random-sentence" in found.conditions:
        words, subject, how = "random-sentence", "the words", "With another patient's sentence"
    peak = "the share of peaks on the finding's side"
    return [
        _dependence(
            found, "exchange-image", "average_precision", "the image", "With another patient's image, average precision"
        ),
        _dependence(found, words, "average_precision", subject, f"{how}, average precision"),
        _dependence(found, "swap-sides", "peak_on_side", "the side named in the phrase", f"{_SWAPPED}, {peak}"),
        _beats_prior(found),
    ]


def details(found: Breakdown) -> dict[str, list[str]]:
    """Return what the tables show in sentences, by section of the page."""
    swapped, exchanged = "Swapping left and right in the words", "Showing another patient's image"
    return {
        "overall": [*_pointing(found)],
        "sides": [*_sides(found.sides)],
        "conditions": [*_perturbed(found, "exchange-image", exchanged), *_perturbed(found, "swap-sides", swapped)],
        "groups": [*_by_finding(found.groups["finding"])],
        "abstention": [*_abstention(found.abstention)],
    }


def _dependence(found: Breakdown, condition: str, measure: str, subject: str, effect: str) -> MarkedSentence:
    """Judge whether the map depends on what a condition changes, by the change of a measure."""
    changes = found.conditions.get(condition)
    if changes is None or measure not in changes.change:
        reason = "has no phrase with a suitable target" if changes else "is not in the predictions"
        return MarkedSentence(
            "not tested", f"Not tested: does the map depend on {subject}?", f"The condition {condition} {reason}."
        )
    change, moved = changes.change[measure], changes.moved.get("moved_mass")
    detail = f"{effect} changes by {verdict(change)}."
    if moved is not None and moved.value == 0:  # the mean of values that are never negative, so each of them is zero
        unchanged = f"None of the {moved.n:,} maps changes. {detail}"
        return MarkedSentence("no", f"The map does not depend on {subject}.", unchanged)
    if change.shown and change.value < 0:
        return MarkedSentence("yes", f"The map depends on {subject}.", detail)
    if change.shown:
        return MarkedSentence("no", f"The map gains nothing from {subject}.", detail)
    if change.verdict == "too few patients to tell":
        return MarkedSentence("unclear", f"Too few patients to tell whether the map depends on {subject}.", detail)
    if moved is not None and round(moved.value, 2) > 0:
        return MarkedSentence(
            "unclear", f"The map changes with {subject}, but it is not shown to gain from it.", detail
        )
    return MarkedSentence("unclear", f"It is not shown that the map depends on {subject}.", detail)


def _beats_prior(found: Breakdown) -> MarkedSentence:
    precision = found.overall.get("average_precision")
    if precision is None:
        return MarkedSentence("not tested", "No phrase has a known target, so localisation cannot be measured.")
    model, prior, difference = precision
    detail = f"Average precision: model {span(model)}"
    if prior is None or difference is None:
        return MarkedSentence("not tested", "No prior was fitted, so there is no baseline.", f"{detail}.")
    outcomes: dict[Verdict, tuple[Mark, str]] = {
        "difference shown": ("yes", "The model beats the image-blind prior.")
        if difference.value > 0
        else ("no", "The model is worse than the image-blind prior."),
        "no difference shown": ("unclear", "The model shows no difference from the image-blind prior."),
        "too few patients to tell": (
            "unclear",
            "Too few patients to tell whether the model beats the image-blind prior.",
        ),
    }
    mark, text = outcomes[difference.verdict]
    detail += f", prior {span(prior)}, paired difference {verdict(difference)}."
    return MarkedSentence(mark, text, detail)


def _pointing(found: Breakdown) -> Iterator[str]:
    if found.overall and (pointing := found.overall["pointing"]).prior is not None:
        yield (
            f"The peak of the model's map is inside the target for {percent(pointing.model)} of the phrases; the "
            f"prior's for {percent(pointing.prior)}."
        )


def _by_finding(groups: Sequence[GroupResult]) -> Iterator[str]:
    better, worse = "better than the prior for", "worse than the prior for"
    same, few = "no difference shown for", "too few patients to tell for"
    named: dict[str, list[str]] = {better: [], same: [], worse: [], few: []}
    for group in groups:
        difference = group.metrics["average_precision"].difference if group.metrics else None
        if difference is not None:
            shown = better if difference.value > 0 else worse
            named[shown if difference.shown else f"{difference.verdict} for"].append(group.name)
    parts = [f"{outcome} {_listed(names)}" for outcome, names in named.items() if names]
    if parts:
        yield f"By finding (average precision): {'; '.join(parts)}."


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _sides(sides: SideResults) -> Iterator[str]:
    if sides.named is not None:
        share = percent(sides.named.model)
        yield f"When the phrase names the side of the finding, the peak is on that side for {share} of the phrases."
    if sides.from_image is not None:
        yield _from_image(sides.from_image, sides.left_out)


def _from_image(found: PriorComparison, left_out: Mapping[str, int]) -> str:
    """Say whether the model finds the side in the image, compared with what the prior knows about it."""
    model, prior, difference = found
    compared = "No prior was fitted to compare with"
    if prior is not None and difference is not None:
        compared = f"The prior's peak is on that side for {percent(prior)}; the difference is {verdict(difference)}"
    without = f" ({left_out_note(left_out)})" if any(left_out.values()) else ""
    return (
        "When the words do not reveal the side and only the image shows it, the peak is on the side of the finding "
        f"for {percent(model)} of the phrases. {compared}{without}."
    )


def left_out_note(left_out: Mapping[str, int]) -> str:
    """Return how many phrases without a named side are not counted, and why."""
    words, device = (f"{left_out[why]:,} phrase{'' if left_out[why] == 1 else 's'}" for why in ("words", "device"))
    return f"not counted: {words} whose other words imply a side, and {device} about devices"


def _perturbed(found: Breakdown, name: str, how: str) -> Iterator[str]:
    """Yield how much a condition changes the maps, the lead over the prior, the side of the peak, and abstention."""
    condition = found.conditions.get(name)
    if condition is None or not condition.change:
        return
    said = [f"{how}: {change}."] if (change := _map_change(condition)) else []
    if name == "exchange-image" and (compared := condition.compared_with_prior.get("average_precision")):
        said += [f"The model's difference from the prior is then {verdict(compared.difference)}."]
    if follows := condition.follows_words:
        said += [f"The peak is on the side now named for {percent(follows)} of the one-sided phrases."]
    if found.abstention.ever and (abstention := condition.change.get("abstention")):
        said += [f"Abstention changes by {verdict(abstention)}."]
    if said:
        yield " ".join(said)


def _map_change(condition: ConditionChanges) -> str | None:
    """Return how much a condition changes the maps, ``None`` where that was not measured."""
    change, displacement = (condition.moved.get(name) for name in ("moved_mass", "moved_peak"))
    if change is None or displacement is None:
        return None
    if change.value == 0:
        return f"none of the {change.n:,} maps changes"
    return (
        f"map change (total variation, 0–1) {span(change)}, peak displacement (fraction of the image) "
        f"{span(displacement)}"
    )


def _abstention(abstention: Abstention) -> Iterator[str]:
    if not abstention.given:
        yield "The predictions contain no abstention values."
    elif not abstention.ever:
        yield "The model never abstains."
    elif abstention.auroc is not None:
        yield (
            f"Abstention separates negated from asserted phrases with an AUROC of {span(abstention.auroc)}. Negation "
            "can be read from the words alone, so this does not show that the model uses the image."
        )
