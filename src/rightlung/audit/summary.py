"""What an audit found, in plain sentences: first of all whether the model adds anything to what needs no image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rightlung.pages.numbers import percent, span
from rightlung.results.estimate import Comparison
from rightlung.results.groups import Abstention, Breakdown, Compared, ConditionChanges, GroupResult, SideResults


def sentences(found: Breakdown) -> list[str]:
    """Return what was found, one sentence or two for each question."""
    abstains = found.abstention.ever
    return [
        *_compared_with_prior(found),
        *_by_finding(found.groups["finding"]),
        *_sides(found.sides),
        *_swapped(found.conditions.get("swap-sides"), abstains),
        *_exchanged(found.conditions.get("exchange-image"), abstains),
        *_abstention(found.abstention),
    ]


def _compared_with_prior(found: Breakdown) -> Iterator[str]:
    precision = found.overall.get("average_precision")
    if precision is None:
        yield "No phrase with a known target was asked, so nothing can be said about where the model looks."
        return
    model, prior, difference = precision
    basis = f"on {model.n:,} phrases of {model.patients:,} patients"
    if prior is None or difference is None:
        yield f"The maps have a mean average precision of {span(model)} {basis}; no prior was fitted to compare with."
        return
    if not difference.shown:
        yield (
            f"No difference from the image-blind prior is shown {basis}: average precision {span(model)}, the prior's "
            f"{span(prior)}. The prior knows the words and never looks at the image."
        )
    else:
        won = (
            "beats the image-blind prior"
            if difference.value > 0
            else "falls behind a prior that never looks at the image"
        )
        yield (
            f"The model {won}, {basis}: average precision {span(model)} against {span(prior)}, a difference of "
            f"{span(difference, signed=True)}."
        )
    pointing = found.overall["pointing"]
    yield (
        f"Its peak lies inside the target in {percent(pointing.model)} of the phrases, the prior's in "
        f"{percent(pointing.prior)}."
    )


def _by_finding(groups: Sequence[GroupResult]) -> Iterator[str]:
    named: dict[str, list[str]] = {
        "it beats the prior on": [],
        "no difference is shown on": [],
        "it falls behind on": [],
    }
    for group in groups:
        difference = group.metrics["average_precision"].difference if group.metrics else None
        if difference is not None and not group.few:
            better = "it beats the prior on" if difference.value > 0 else "it falls behind on"
            named[better if difference.shown else "no difference is shown on"].append(group.name)
    parts = [f"{said} {_listed(names)}" for said, names in named.items() if names]
    if parts:
        yield f"By finding (average precision, at least five patients each): {'; '.join(parts)}."


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _sides(sides: SideResults) -> Iterator[str]:
    if sides.named is not None:
        yield f"Where the phrase names the finding's side, the peak is on it in {percent(sides.named.model)}."
    if sides.from_image is not None:
        yield _from_image(sides.from_image, sides.left_out)


def _from_image(found: Compared, left_out: Mapping[str, int]) -> str:
    """Say what the image shows of the side: first of all whether it is more than the prior knows."""
    model, prior, difference = found
    if prior is None or difference is None:
        said = f"the peak is on the finding's side in {percent(model)}; no prior was fitted to compare with"
    else:
        gain = "no difference from the prior is shown"
        if difference.shown:
            gain = f"the model differs from the prior by {span(difference, signed=True)}"
        said = f"{gain}: the peak is on the finding's side in {percent(model)}, the prior's in {percent(prior)}"
    without = f" ({left_out_note(left_out)})" if any(left_out.values()) else ""
    return f"Where no word gives the side away and only the image can tell, {said}{without}."


def left_out_note(left_out: Mapping[str, int]) -> str:
    """Say how many phrases that name no side were left out, and why."""
    return (
        f"left out, though they name no side: {left_out['words']:,} phrases whose words give it away, "
        f"{left_out['device']:,} about devices"
    )


def map_change(condition: ConditionChanges) -> str | None:
    """Say how much a condition changes the maps, ``None`` where that was not measured."""
    mass, peak = (condition.moved.get(name) for name in ("moved_mass", "moved_peak"))
    if mass is None or peak is None:
        return None
    if mass.value == 0:  # a mean of what is never negative: every single one is zero
        return f"leaves all {mass.n:,} maps as they were"
    return f"changes {percent(mass)} of the maps' mass, and moves the peak by {span(peak)} of the image's size"


def _swapped(condition: ConditionChanges | None, abstains: bool) -> Iterator[str]:
    if condition is None or not condition.change:
        return
    if (said := map_change(condition)) is not None:
        yield f"Swapping left and right in the words {said}."
    change, follows = condition.change.get("average_precision"), condition.follows_words
    where = f" The peak then lies on the side now named in {percent(follows)} of one-sided phrases." if follows else ""
    if change is not None:
        said = f"average precision against the true side changes by {span(change, signed=True)}"
        said = said if change.shown else "no difference in average precision is shown"
        yield f"With left and right swapped, {said}.{where}{_abstention_then(condition) if abstains else ''}"


def _exchanged(condition: ConditionChanges | None, abstains: bool) -> Iterator[str]:
    if condition is None or not condition.change:
        return
    if (said := map_change(condition)) is not None:
        yield f"Showing another patient's image {said}."
    change = condition.change.get("average_precision")
    if change is None:
        return
    left = condition.beside_prior["average_precision"].difference if condition.beside_prior else None
    said = "With another patient's image, no difference in average precision is shown"
    if change.shown:
        said = f"With another patient's image, average precision changes by {span(change, signed=True)}"
    yield f"{said}{_what_is_left(left)}.{_abstention_then(condition) if abstains else ''}"


def _what_is_left(difference: Comparison | None) -> str:
    if difference is None:
        return ""
    if not difference.shown:
        return "; no difference of what is left from the prior is shown"
    place = "above" if difference.value > 0 else "below"
    return f"; what is left lies {place} the prior by {span(difference, signed=True)}"


def _abstention_then(condition: ConditionChanges) -> str:
    """Say whether the model notices, as far as its abstention shows."""
    change = condition.change.get("abstention")
    if change is None:
        return ""
    said = f"changes by {span(change, signed=True)}" if change.shown else "shows no difference"
    return f" Its abstention {said}."


def _abstention(abstention: Abstention) -> Iterator[str]:
    if not abstention.given:
        yield "The predictions give no abstention."
    elif not abstention.ever:
        yield "The model never abstains."
    elif abstention.auroc is not None:
        yield (
            f"As a sign that a phrase is negated, its abstention has an AUROC of {span(abstention.auroc)}; the words "
            "alone can give a negation away, so this says nothing about the image."
        )
