"""How our aims for +Sided are judged, and the claims about radiologists' judgements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rightlung.reproduce.claims import FAILS, UNKNOWN, ClaimView, Evidence, Ruling, needs, side, small, together
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.results.estimate import Estimate

SIDED_TIMES, SIDED_SWAP, SIDED_SELECTION = 2.0, -0.40, 0.02
"""Our aims for +Sided: pointing at least twice Retrained's, the change of AUROC when sides are swapped, how far its
selection may stay behind the best."""
SMALL_RATING = 0.5
"""Ratings within half a step of the scale are called about the same."""
NO_JUDGEMENTS = "It needs radiologists' judgements of the maps (--judgements TABLE --key KEY)."


def judged_best(view: ClaimView, target: str, variant: str, ratings: Sequence[str]) -> Ruling:
    """Judge whether radiologists rate a variant's maps above those of every other model that they judged."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    evidence = []
    for row in view.judgements["differences"]:
        if row["rating"] in ratings and variant in (row["first"], row["second"]):
            sign, other = (1, row["second"]) if row["first"] == variant else (-1, row["first"])
            evidence.append(_rated(f"{row['rating']}, {variant} minus {other}", row, sign, above=0.0))
    return together(evidence, "" if evidence else f"No judgements of {variant} and another model.")


def judged_like_released(view: ClaimView, target: str) -> Ruling:
    """Judge whether Retrained is rated about as precise and intuitive as the released GLoRIA, with less recall."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    evidence = []
    for row in view.judgements["differences"]:
        pair = [row["first"], row["second"]]
        if "retrained" in pair and any("gloria" in name for name in pair):
            sign = 1 if pair[0] == "retrained" else -1
            label = f"{row['rating']}, Retrained minus released GLoRIA"
            evidence.append(_rated(label, row, sign, below=0.0 if row["rating"] == "recall" else None))
    remark = f"About as good is taken as within {SMALL_RATING:g} of a step of the scale."
    return together(evidence, remark if evidence else "No judgements of Retrained and the released GLoRIA.")


def _rated(
    label: str, row: Mapping[str, Any], sign: int, above: float | None = None, below: float | None = None
) -> Evidence:
    low, high = sorted((sign * row["low"], sign * row["high"]))
    found = Estimate(sign * row["estimate"], low, high, row["n"], row["clusters"])
    close = above is None and below is None
    return Evidence(
        label, found, small(found, SMALL_RATING) if close else side(found, above=above, below=below), "rating"
    )


def judged_iou(view: ClaimView, target: str) -> Ruling:
    """Judge whether, of the automatic measures, IoU@10 % correlates most with the intuitiveness of +No Attn's maps."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    tables = [one for one in view.judgements["correlations"] if one["model"] == "no-attn"]
    rows = [row for one in tables for row in one["values"] if row["rating"] == "intuitiveness"]
    found = {row["measure"]: row["pearson"] for row in rows}
    own = found.get("iou@10 (regions)")
    if own is None:
        return Ruling(UNKNOWN, remark="No judgements of +No Attn, or no measures of it.")
    best = max(found, key=lambda name: abs(found[name]["estimate"]))
    estimate = Estimate(own["estimate"], own["low"], own["high"], own["n"], own["clusters"])
    verdict = side(estimate, above=0.0) if best == "iou@10 (regions)" else FAILS
    evidence = Evidence("correlation of IoU@10 % with intuitiveness", estimate, verdict, "correlation")
    return together([evidence], f"The strongest is {best}, {found[best]['estimate']:+.2f}, of {len(found)} measures.")


@needs("sided", "retrained")
def sided_pointing(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided points at least twice as often into the target as Retrained."""
    sided, retrained = (view.value(variant, "pointing", target, "one-lung") for variant in ("sided", "retrained"))
    both = ~(np.isnan(sided) | np.isnan(retrained))
    if not both.any():
        return Ruling(UNKNOWN, remark="No One Lung phrase has an exact mask and both answers.")
    found = view.mean(sided - SIDED_TIMES * retrained)
    ours, theirs = float(sided[both].mean()), float(retrained[both].mean())
    times = f", {ours / theirs:.1f} times as often" if theirs else ""
    remark = f"{100 * ours:.1f} % against {100 * theirs:.1f} %{times}."
    return together([Evidence("pointing minus twice Retrained's", found, side(found, above=0.0))], remark)


@needs("sided", "prior")
def sided_prior(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided points better than the image-blind prior."""
    sided, prior = (view.value(variant, "pointing", target, "one-lung") for variant in ("sided", "prior"))
    found = view.difference(sided, prior)
    return together([Evidence("pointing minus the prior's", found, side(found, above=0.0))])


@needs("sided")
def sided_swap(view: ClaimView, target: str) -> Ruling:
    """Judge whether swapping the sides costs +Sided as much AUROC as it should."""
    found = view.mean(view.change("sided", "swap-sides", target))
    averaged = view.mean(view.change("sided", "swap-sides", target, how="all"))
    beside = Evidence("as the paper averages, phrases that name no side counting 0", averaged, UNKNOWN)
    remark = f"Over the phrases that name a side; {beside.said}."
    return together([Evidence("change of AUROC", found, side(found, below=SIDED_SWAP))], remark)


@needs("sided")
def sided_selection(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided selects sentences nearly as well as the best other variant.

    Its rivals are the paper's variants and ours: no model of somebody's own, no reference, none of its own ablations.
    """
    rivals = {
        model.variant: float(view.mean(view.selection(model.variant, "global")).value)
        for model in view.measured.rows
        if model.variant != "sided" and model.comparable
        if any(one.slug == model.variant and not one.ablation for one in VARIANTS)
    }
    known = {variant: value for variant, value in rivals.items() if not math.isnan(value)}
    if not known:
        return Ruling(UNKNOWN, remark="No other variant's selection was measured.")
    best = max(known, key=lambda variant: known[variant])
    found = view.mean(view.selection("sided", "global") - view.selection(best, "global"))
    return together([Evidence(f"minus {view.name(best)}, the best other", found, side(found, above=-SIDED_SELECTION))])
