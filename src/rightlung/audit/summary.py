"""What an audit found, in plain sentences: first of all whether the model adds anything to what needs no image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NAMES = {
    "auroc": "AUROC",
    "average_precision": "average precision",
    "pointing": "pointing",
    "cnr": "contrast to noise",
    "entropy": "entropy (nats)",
    "mass_inside": "mass inside",
    "miou": "mIoU",
    "mdice": "mDice",
    "peak_on_side": "peak on the finding's side",
    "abstention": "abstention",
    "similarity_global": "similarity, whole image",
    "similarity_local": "similarity, local",
    "moved_mass": "mass that moves",
    "moved_peak": "way of the peak",
}


def metric_name(metric: str) -> str:
    """Return how a measure is called on the page.

    >>> metric_name("iou@5"), metric_name("auroc")
    ('IoU@5 %', 'AUROC')
    """
    name, at, share = metric.partition("@")
    if at:
        spelt = {"iou": "IoU", "dice": "Dice"}.get(name, name)
        return f"{spelt}@{share} %"
    return NAMES.get(metric, metric.replace("_", " "))


def number(value: float | None, digits: int = 2, signed: bool = False) -> str:
    """Return a number as people read it, a dash where there is none."""
    if value is None or value != value:
        return "–"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text.replace("-", "−")


def span(value: Mapping[str, Any] | None, digits: int = 2, signed: bool = False) -> str:
    """Return an estimate with its interval.

    >>> span({"estimate": 0.5, "low": 0.25, "high": 0.75})
    '0.50 (0.25 to 0.75)'
    """
    if value is None:
        return "–"
    estimate = number(value["estimate"], digits, signed)
    if value["low"] is None or value["low"] != value["low"]:
        return f"{estimate} (no interval)" if estimate != "–" else "–"
    return f"{estimate} ({number(value['low'], digits)} to {number(value['high'], digits)})"


def verdict(difference: Mapping[str, Any] | None) -> str:
    """Return the difference if one is shown, and otherwise that none is."""
    if difference is None:
        return "–"
    return span(difference, signed=True) if difference["shown"] else "no difference shown"


def percent(value: Mapping[str, Any]) -> str:
    """Return a share with its interval in percent, a dash where there is none.

    >>> percent({"estimate": 0.5, "low": 0.25, "high": 0.75})
    '50 % (25 to 75 %)'
    """
    parts = [value["estimate"], value["low"], value["high"]]
    if parts[0] is None or parts[0] != parts[0]:
        return "–"
    if any(part is None or part != part for part in parts):
        return f"{100 * value['estimate']:.0f} %"
    estimate, low, high = (100 * part for part in parts)
    return f"{estimate:.0f} % ({low:.0f} to {high:.0f} %)"


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return what was found, one sentence or two a question."""
    return [
        *_beside_prior(result),
        *_by_finding(result["groups"]["finding"]),
        *_sides(result["sides"]),
        *_swapped(result["conditions"].get("swap-sides"), result["abstention"]["ever"]),
        *_exchanged(result["conditions"].get("exchange-image"), result["abstention"]["ever"]),
        *_abstention(result["abstention"]),
    ]


def _beside_prior(result: Mapping[str, Any]) -> Iterator[str]:
    overall = result["overall"].get("average_precision")
    if overall is None:
        yield "No phrase with a known target was asked, so nothing can be said about where the model looks."
        return
    model, prior, difference = overall["model"], overall["prior"], overall["difference"]
    basis = f"on {model['phrases']:,} phrases of {model['patients']:,} patients"
    if prior is None:
        yield f"The maps have a mean average precision of {span(model)} {basis}; no prior was fitted to compare with."
        return
    if not difference["shown"]:
        yield (
            f"No difference from the image-blind prior is shown {basis}: average precision {span(model)}, the prior's "
            f"{span(prior)}. The prior knows the words and never looks at the image."
        )
    elif difference["estimate"] > 0:
        yield (
            f"The model beats the image-blind prior {basis}: average precision {span(model)} against {span(prior)}, "
            f"a difference of {span(difference, signed=True)}."
        )
    else:
        yield (
            f"The model falls behind a prior that never looks at the image, {basis}: average precision {span(model)} "
            f"against {span(prior)}, a difference of {span(difference, signed=True)}."
        )
    pointing = result["overall"]["pointing"]
    yield (
        f"Its peak lies inside the target in {percent(pointing['model'])} of the phrases, the prior's in "
        f"{percent(pointing['prior'])}."
    )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _by_finding(groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    better: list[str] = []
    same: list[str] = []
    worse: list[str] = []
    for group in groups:
        difference = group["metrics"]["average_precision"]["difference"] if group["metrics"] else None
        if difference is None or group["few"]:
            continue
        kind = same if not difference["shown"] else better if difference["estimate"] > 0 else worse
        kind.append(group["name"])
    parts = []
    if better:
        parts.append(f"it beats the prior on {_listed(better)}")
    if same:
        parts.append(f"no difference is shown on {_listed(same)}")
    if worse:
        parts.append(f"it falls behind on {_listed(worse)}")
    if parts:
        yield f"By finding (average precision, at least five patients each): {'; '.join(parts)}."


def _sides(sides: Mapping[str, Any]) -> Iterator[str]:
    if sides["named"] is not None:
        yield f"Where the phrase names the finding's side, the peak is on it in {percent(sides['named']['model'])}."
    if sides["from_image"] is not None:
        yield _from_image(sides["from_image"], sides["left_out"])


def _from_image(found: Mapping[str, Any], left_out: Mapping[str, int]) -> str:
    """Say what the image tells of the side: first of all whether it is more than the prior knows."""
    model, prior, difference = found["model"], found["prior"], found["difference"]
    if prior is None:
        said = f"the peak is on the finding's side in {percent(model)}; no prior was fitted to compare with"
    else:
        gain = "no difference from the prior is shown"
        if difference["shown"]:
            gain = f"the model differs from the prior by {span(difference, signed=True)}"
        said = f"{gain}: the peak is on the finding's side in {percent(model)}, the prior's in {percent(prior)}"
    without = f" ({left_out_note(left_out)})" if any(left_out.values()) else ""
    return f"Where no word gives the side away and only the image can tell, {said}{without}."


def left_out_note(left_out: Mapping[str, int]) -> str:
    """Say how many phrases that name no side were left out, and why."""
    return (
        f"phrases that name no side but were left out: {left_out['words']:,} whose words give it away, "
        f"{left_out['device']:,} about devices"
    )


def movement(condition: Mapping[str, Any]) -> str | None:
    """Say how far a condition moves the maps, ``None`` where that was not measured."""
    mass, peak = (condition["moved"].get(name) for name in ("moved_mass", "moved_peak"))
    if mass is None or peak is None:
        return None
    if mass["estimate"] == 0:  # a mean of what is never negative: every single one is zero
        return f"leaves all {mass['phrases']:,} maps as they were"
    return f"moves {percent(mass)} of the maps' mass, and the peak by {span(peak)} of the image's size"


def _swapped(condition: Mapping[str, Any] | None, abstains: bool) -> Iterator[str]:
    if condition is None or not condition["change"]:
        return
    moves = movement(condition)
    if moves is not None:
        yield f"Swapping left and right in the words {moves}."
    change, follows = condition["change"].get("average_precision"), condition.get("follows_words")
    where = f" The peak then lies on the side now named in {percent(follows)} of one-sided phrases." if follows else ""
    if change is not None:
        said = f"average precision against the true side changes by {span(change, signed=True)}"
        said = said if change["shown"] else "no difference in average precision is shown"
        yield f"With left and right swapped, {said}.{where}{_abstention_then(condition) if abstains else ''}"


def _exchanged(condition: Mapping[str, Any] | None, abstains: bool) -> Iterator[str]:
    if condition is None or not condition["change"]:
        return
    moves = movement(condition)
    if moves is not None:
        yield f"Showing another patient's image {moves}."
    change = condition["change"].get("average_precision")
    if change is None:
        return
    beside = condition["beside_prior"].get("average_precision", {}).get("difference")
    said = "With another patient's image, no difference in average precision is shown"
    if change["shown"]:
        said = f"With another patient's image, average precision changes by {span(change, signed=True)}"
    left = ""
    if beside is not None and not beside["shown"]:
        left = "; no difference of what is left from the prior is shown"
    elif beside is not None:
        place = "above" if beside["estimate"] > 0 else "below"
        left = f"; what is left lies {place} the prior by {span(beside, signed=True)}"
    yield f"{said}{left}.{_abstention_then(condition) if abstains else ''}"


def _abstention_then(condition: Mapping[str, Any]) -> str:
    """Say whether the model notices, as far as its abstention tells."""
    change = condition["change"].get("abstention")
    if change is None:
        return ""
    said = f"changes by {span(change, signed=True)}" if change["shown"] else "shows no difference"
    return f" Its abstention {said}."


def _abstention(abstention: Mapping[str, Any]) -> Iterator[str]:
    if not abstention["given"]:
        yield "The predictions give no abstention."
    elif not abstention["ever"]:
        yield "The model never abstains."
    elif abstention["auroc"] is not None:
        yield (
            f"As a sign that a phrase is negated, its abstention has an AUROC of {span(abstention['auroc'])}; the "
            "words alone can give a negation away, so this says nothing about the image."
        )
