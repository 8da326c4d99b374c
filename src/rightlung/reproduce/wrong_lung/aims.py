"""Criteria of our aims for +Sided, and of the paper's claims about radiologists' judgements."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rightlung.reproduce.claims import FAILS, UNKNOWN, ClaimView, Evidence, Ruling, all_of, missing, verdict_on
from rightlung.reproduce.wrong_lung.variants import VARIANTS
from rightlung.results.estimate import Estimate

SIDED_TIMES, SIDED_SWAP, SIDED_SELECTION = 2.0, -0.40, 0.02
"""Our aims for +Sided: pointing relative to Retrained's, change of AUROC when sides are swapped, and how far its
selection accuracy may be below the best."""
NO_JUDGEMENTS = "Requires radiologists' judgements of the maps (--judgements TABLE --key KEY)."


def rated(
    view: ClaimView, target: str, variant: str, ratings: Mapping[str, Mapping[str, float]], rival: str = "",
    label: str = "{}, {} minus {}", remark: str = "",
) -> Ruling:  # fmt: skip
    """Judge radiologists' ratings of a variant minus those of every other model whose name contains ``rival``.

    ``ratings`` has the criterion of each rating.
    """
    if view.judgements is None:
        return Ruling(UNKNOWN, remark=NO_JUDGEMENTS)
    evidence = []
    for row in view.judgements["differences"]:
        pair = [row["first"], row["second"]]
        if row["rating"] in ratings and variant in pair and rival in (other := pair[pair[0] == variant]):
            sign = 1 if pair[0] == variant else -1
            low, high = sorted((sign * row["low"], sign * row["high"]))
            found = Estimate(sign * row["estimate"], low, high, row["n"], row["clusters"])
            named = label.format(row["rating"], variant, other)
            evidence.append(Evidence.judged(named, found, "rating", **ratings[row["rating"]]))
    nothing = f"There are no judgements that compare {variant} with {rival or 'another model'}."
    return all_of(evidence, remark if evidence else nothing)


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
    verdict = verdict_on(estimate, above=0.0) if best == "iou@10 (regions)" else FAILS
    evidence = Evidence("correlation of IoU@10 % with intuitiveness", estimate, verdict, "correlation")
    return all_of([evidence], f"Strongest of {len(found)} measures: {best}, {found[best]['estimate']:+.2f}.")


def sided_pointing(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided's peak is inside the target at least twice as often as Retrained's."""
    if absent := missing(view, "sided", "retrained"):
        return absent
    sided, retrained = (
        view.values(variant, target, "pointing", subset="one-lung") for variant in ("sided", "retrained")
    )
    both = ~(np.isnan(sided) | np.isnan(retrained))
    if not both.any():
        return Ruling(UNKNOWN, remark="No One Lung phrase has an exact mask and answers of both models.")
    found = view.mean(sided - SIDED_TIMES * retrained)
    ours, theirs = float(sided[both].mean()), float(retrained[both].mean())
    times = f", {ours / theirs:.1f} times as often" if theirs else ""
    remark = f"{100 * ours:.1f} % versus {100 * theirs:.1f} %{times}."
    return all_of([Evidence.judged("pointing minus twice Retrained's", found, above=0.0)], remark)


def sided_swap(view: ClaimView, target: str) -> Ruling:
    """Judge whether swapping the sides lowers +Sided's AUROC as much as intended."""
    if absent := missing(view, "sided"):
        return absent
    found = view.mean(view.values("sided", target, perturbation="swap-sides"))
    averaged = view.mean(view.values("sided", target, perturbation="swap-sides", how="all"))
    as_paper = Evidence("with the paper's averaging, where phrases without a side count 0", averaged, UNKNOWN)
    remark = f"Over the phrases that name a side; {as_paper.text}."
    return all_of([Evidence.judged("change of AUROC", found, below=SIDED_SWAP)], remark)


def sided_selection(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Sided selects sentences nearly as well as the best other variant.

    Models added with ``--model``, references and ablations are not counted.
    """
    if absent := missing(view, "sided"):
        return absent
    rivals = {
        model.variant: float(view.mean(view.values(model.variant, None, "selection_global")).value)
        for model in view.measured.rows
        if model.variant != "sided" and model.comparable
        if any(one.slug == model.variant and not one.ablation for one in VARIANTS)
    }
    known = {variant: value for variant, value in rivals.items() if not math.isnan(value)}
    if not known:
        return Ruling(UNKNOWN, remark="The selection accuracy of no other variant was measured.")
    best = max(known, key=lambda variant: known[variant])
    ours, others = (view.values(variant, None, "selection_global") for variant in ("sided", best))
    found = view.mean(ours - others)
    label = f"selection accuracy minus that of {view.name(best)}, the best other variant"
    return all_of([Evidence.judged(label, found, above=-SIDED_SELECTION)])
