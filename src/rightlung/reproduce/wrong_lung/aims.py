"""Criteria of our aims for +Sided, and of the paper's claims about radiologists' judgements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rightlung.reproduce.claims import FAILS, UNKNOWN, ClaimView, Evidence, Ruling, all_of, requires, side
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.results.estimate import Estimate

SIDED_TIMES, SIDED_SWAP, SIDED_SELECTION = 2.0, -0.40, 0.02
"""Our aims for +Sided: pointing relative to Retrained's, change of AUROC when sides are swapped, and how far its
selection accuracy may be below the best."""
SMALL_RATING = 0.5
"""Ratings within half a step of the scale count as about the same."""
NO_JUDGEMENTS = "Requires radiologists' judgements of the maps (--judgements TABLE --key KEY)."


def judged_best(view: ClaimView, target: str, variant: str, ratings: Sequence[str]) -> Ruling:
    """Judge whether radiologists rate a variant's maps above those of every other judged model."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    evidence = []
    for row in view.judgements["differences"]:
        if row["rating"] in ratings and variant in (row["first"], row["second"]):
            sign, other = (1, row["second"]) if row["first"] == variant else (-1, row["first"])
            evidence.append(_rated(f"{row['rating']}, {variant} minus {other}", row, sign, above=0.0))
    return all_of(evidence, "" if evidence else f"There are no judgements that compare {variant} with another model.")


def judged_like_released(view: ClaimView, target: str) -> Ruling:
    """Judge whether Retrained is rated about as precise and intuitive as the released GLoRIA, with lower recall."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    evidence = []
    for row in view.judgements["differences"]:
        pair = [row["first"], row["second"]]
        if "retrained" in pair and any("gloria" in name for name in pair):
            sign = 1 if pair[0] == "retrained" else -1
            label = f"{row['rating']}, Retrained minus released GLoRIA"
            criterion = {"below": 0.0} if row["rating"] == "recall" else {"within": SMALL_RATING}
            evidence.append(_rated(label, row, sign, **criterion))
    remark = f"“About as good” means within {SMALL_RATING:g} steps of the scale."
    return all_of(
        evidence, remark if evidence else "There are no judgements that compare Retrained with the released GLoRIA."
    )


def _rated(label: str, row: Mapping[str, Any], sign: int, **criterion: float) -> Evidence:
    low, high = sorted((sign * row["low"], sign * row["high"]))
    found = Estimate(sign * row["estimate"], low, high, row["n"], row["clusters"])
    return Evidence.judged(label, found, "rating", **criterion)


def judged_iou(view: ClaimView, target: str) -> Ruling:
    """Judge whether, of the automatic measures, IoU@10 % correlates most with the intuitiveness of +No Attn's maps."""
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    tables = [one for one in view.judgements["correlations"] if one["model"] == "no-attn"]
    rows = [row for one in tables for row in one["values"] if row["rating"] == "intuitiveness"]
    found = {row["measure"]: row["pearson"] for row in rows}
    own = found.get("iou@10 (regions)")
    if own is None:
        return Ruling(UNKNOWN, remark="+No Attn has no judgements or no measures.")
    best = max(found, key=lambda name: abs(found[name]["estimate"]))
    estimate = Estimate(own["estimate"], own["low"], own["high"], own["n"], own["clusters"])
    verdict = side(estimate, above=0.0) if best == "iou@10 (regions)" else FAILS
    evidence = Evidence("correlation of IoU@10 % with intuitiveness", estimate, verdict, "correlation")
    return all_of([evidence], f"Strongest of {len(found)} measures: {best}, {found[best]['estimate']:+.2f}.")


@requires("sided", "retrained")
def sided_pointing(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided's peak is inside the target at least twice as often as Retrained's."""
    sided, retrained = (view.value(variant, "pointing", target, "one-lung") for variant in ("sided", "retrained"))
    both = ~(np.isnan(sided) | np.isnan(retrained))
    if not both.any():
        return Ruling(UNKNOWN, remark="No One Lung phrase has an exact mask and answers of both models.")
    found = view.mean(sided - SIDED_TIMES * retrained)
    ours, theirs = float(sided[both].mean()), float(retrained[both].mean())
    times = f", {ours / theirs:.1f} times as often" if theirs else ""
    remark = f"{100 * ours:.1f} % versus {100 * theirs:.1f} %{times}."
    return all_of([Evidence.judged("pointing minus twice Retrained's", found, above=0.0)], remark)


@requires("sided", "prior")
def sided_prior(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided's peak is inside the target more often than the image-blind prior's."""
    sided, prior = (view.value(variant, "pointing", target, "one-lung") for variant in ("sided", "prior"))
    found = view.difference(sided, prior)
    return all_of([Evidence.judged("pointing minus the prior's", found, above=0.0)])


@requires("sided")
def sided_swap(view: ClaimView, target: str) -> Ruling:
    """Judge whether swapping the sides lowers +Sided's AUROC as much as intended."""
    found = view.mean(view.change("sided", "swap-sides", target))
    averaged = view.mean(view.change("sided", "swap-sides", target, how="all"))
    as_paper = Evidence("with the paper's averaging, where phrases without a side count 0", averaged, UNKNOWN)
    remark = f"Over the phrases that name a side; {as_paper.text}."
    return all_of([Evidence.judged("change of AUROC", found, below=SIDED_SWAP)], remark)


@requires("sided")
def sided_selection(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided selects sentences nearly as well as the best other variant.

    Models added with ``--model``, references and ablations are not counted.
    """
    rivals = {
        model.variant: float(view.mean(view.selection(model.variant, "global")).value)
        for model in view.measured.rows
        if model.variant != "sided" and model.comparable
        if any(one.slug == model.variant and not one.ablation for one in VARIANTS)
    }
    known = {variant: value for variant, value in rivals.items() if not math.isnan(value)}
    if not known:
        return Ruling(UNKNOWN, remark="The selection accuracy of no other variant was measured.")
    best = max(known, key=lambda variant: known[variant])
    found = view.mean(view.selection("sided", "global") - view.selection(best, "global"))
    label = f"selection accuracy minus that of {view.name(best)}, the best other variant"
    return all_of([Evidence.judged(label, found, above=-SIDED_SELECTION)])
