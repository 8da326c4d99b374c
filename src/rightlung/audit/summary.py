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
    """Return a share with its interval in percent."""
    parts = [value["estimate"], value["low"], value["high"]]
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
        *_swapped(result["conditions"].get("swap-sides")),
        *_exchanged(result["conditions"].get("exchange-image")),
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
        prior = sides["from_image"]["prior"]
        beside = f" (the prior: {percent(prior)})" if prior is not None else ""
        yield (
            f"Where no word names the side and only the image can tell, the peak is on the finding's side in "
            f"{percent(sides['from_image']['model'])}{beside}."
        )


def _swapped(condition: Mapping[str, Any] | None) -> Iterator[str]:
    change = (condition or {}).get("change", {}).get("average_precision")
    if condition is None or change is None:
        return
    follows = condition.get("follows_words")
    where = f" The peak then lies on the side now named in {percent(follows)} of one-sided phrases." if follows else ""
    if not change["shown"]:
        yield f"Its maps do not move when left and right are swapped in the words: no difference shown.{where}"
    else:
        yield (
            f"Its maps move when left and right are swapped in the words: average precision against the true side "
            f"changes by {span(change, signed=True)}.{where}"
        )


def _exchanged(condition: Mapping[str, Any] | None) -> Iterator[str]:
    change = (condition or {}).get("change", {}).get("average_precision")
    if condition is None or change is None:
        return
    beside = condition["beside_prior"].get("average_precision", {}).get("difference")
    if not change["shown"]:
        said = "Shown another patient's image, its maps score the same: no difference shown"
    else:
        said = f"Shown another patient's image, its average precision changes by {span(change, signed=True)}"
    if beside is None:
        yield f"{said}."
    elif not beside["shown"]:
        yield f"{said}; what is left shows no difference from the prior."
    else:
        place = "above" if beside["estimate"] > 0 else "below"
        yield f"{said}; what is left lies {place} the prior by {span(beside, signed=True)}."


def _abstention(abstention: Mapping[str, Any]) -> Iterator[str]:
    if not abstention["ever"]:
        yield "The model never abstains."
    elif abstention["auroc"] is not None:
        yield (
            f"As a sign that a phrase is negated, its abstention has an AUROC of {span(abstention['auroc'])}; the "
            "words alone can give a negation away, so this says nothing about the image."
        )
