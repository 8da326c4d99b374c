"""Summarise an audit in plain sentences: first, whether the model adds anything to a baseline that sees no image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.numbers import percent, span
from rightlung.results.estimate import Comparison
from rightlung.results.groups import (
    FEW_PATIENTS,
    Abstention,
    Breakdown,
    ConditionChanges,
    GroupResult,
    PriorComparison,
    SideResults,
)


def sentences(found: Breakdown) -> list[str]:
    """Return the findings, one or two sentences per question."""
    return [
        *_compared_with_prior(found),
        *_by_finding(found.groups["finding"]),
        *_sides(found.sides),
        *_perturbed(found, "swap-sides", "Swapping left and right in the words", "With left and right swapped"),
        *_perturbed(found, "exchange-image", "Showing another patient's image", "With another patient's image"),
        *_abstention(found.abstention),
    ]


def _compared_with_prior(found: Breakdown) -> Iterator[str]:
    precision = found.overall.get("average_precision")
    if precision is None:
        yield "No phrase has a known target, so localisation cannot be measured."
        return
    model, prior, difference = precision
    basis = f"over {model.n:,} phrases from {model.patients:,} patients"
    if prior is None or difference is None:
        yield f"Mean average precision is {span(model)} {basis}. No prior was fitted, so there is no baseline."
        return
    outcome, by = "shows no difference from", ""
    if difference.shown:
        outcome = "beats" if difference.value > 0 else "is worse than"
        by = f"; the paired difference is {span(difference, signed=True)}"
    yield (
        f"The model {outcome} the image-blind prior (a baseline that reads the phrase but never sees the image). Mean "
        f"average precision is {span(model)} for the model and {span(prior)} for the prior, {basis}{by}."
    )
    pointing = found.overall["pointing"]
    yield (
        f"The peak of the model's map is inside the target for {percent(pointing.model)} of the phrases; the prior's "
        f"for {percent(pointing.prior)}."
    )


def _by_finding(groups: Sequence[GroupResult]) -> Iterator[str]:
    better, same, worse = "better than the prior for", "no difference shown for", "worse than the prior for"
    named: dict[str, list[str]] = {better: [], same: [], worse: []}
    for group in groups:
        difference = group.metrics["average_precision"].difference if group.metrics else None
        if difference is not None and not group.few:
            outcome = better if difference.value > 0 else worse
            named[outcome if difference.shown else same].append(group.name)
    parts = [f"{outcome} {_listed(names)}" for outcome, names in named.items() if names]
    if parts:
        yield f"By finding (average precision, at least {FEW_PATIENTS} patients each): {'; '.join(parts)}."


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
        outcome = "no difference shown"
        if difference.shown:
            outcome = f"a difference of {span(difference, signed=True)}"
        compared = f"The prior's peak is on that side for {percent(prior)}: {outcome}"
    without = f" ({left_out_note(left_out)})" if any(left_out.values()) else ""
    return (
        "When the words do not reveal the side and only the image shows it, the peak is on the side of the finding "
        f"for {percent(model)} of the phrases. {compared}{without}."
    )


def left_out_note(left_out: Mapping[str, int]) -> str:
    """Return how many phrases without a named side are not counted, and why."""
    words, device = (f"{left_out[why]:,} phrase{'' if left_out[why] == 1 else 's'}" for why in ("words", "device"))
    return f"not counted: {words} whose other words imply a side, and {device} about devices"


def map_change(condition: ConditionChanges) -> str | None:
    """Return how much a condition changes the maps, ``None`` where that was not measured."""
    change, displacement = (condition.moved.get(name) for name in ("moved_mass", "moved_peak"))
    if change is None or displacement is None:
        return None
    if change.value == 0:  # the mean of values that are never negative, so each of them is zero
        return f"none of the {change.n:,} maps changes"
    return (
        f"map change (total variation, 0–1) {span(change)}, peak displacement (fraction of the image) "
        f"{span(displacement)}"
    )


def _perturbed(found: Breakdown, name: str, how: str, when: str) -> Iterator[str]:
    """Yield what a condition changes, and what remains: the side that the peak follows, or the lead over the prior."""
    condition = found.conditions.get(name)
    if condition is None or not condition.change:
        return
    if (change := map_change(condition)) is not None:
        yield f"{how}: {change}."
    if "average_precision" in condition.change:
        remaining = side = ""
        if name == "exchange-image" and (compared := condition.compared_with_prior.get("average_precision")):
            remaining = _remaining(compared.difference)
        if follows := condition.follows_words:
            side = f" The peak is on the side now named for {percent(follows)} of the one-sided phrases."
        effect = _precision_change(condition.change["average_precision"])
        yield f"{when}, {effect}{remaining}.{side}{_abstention_change(condition, found.abstention.ever)}"


def _precision_change(change: Comparison) -> str:
    if not change.shown:
        return "no change of average precision (against the original target) is shown"
    return f"average precision (against the original target) changes by {span(change, signed=True)}"


def _remaining(difference: Comparison | None) -> str:
    if difference is None:
        return ""
    if not difference.shown:
        return "; the model then shows no difference from the prior"
    return f"; its difference from the prior is then {span(difference, signed=True)}"


def _abstention_change(condition: ConditionChanges, abstains: bool) -> str:
    """Say whether abstention reacts to the change, where the model ever abstains."""
    change = condition.change.get("abstention") if abstains else None
    if change is None:
        return ""
    return f" Abstention changes by {span(change, signed=True)}." if change.shown else " Abstention shows no change."


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
