"""How each claim is judged: small functions of the results, by the kind of target.

A claim that compares variants goes by those that were measured, and says which were not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from rightlung.measuring.measures import find_measure
from rightlung.reproduce.claims import (
    FAILS,
    HOLDS,
    NOT_SHOWN,
    SMALL,
    UNKNOWN,
    ClaimView,
    Evidence,
    Ruling,
    missing,
    mostly,
    needs,
    side,
    small,
    together,
)
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Floats
from rightlung.scoring.statistics import pearson

WELL_ABOVE = 0.55
"""AUROC "well over 50 %" is taken as above 55 %."""
NEAR_UNIFORM = 0.95
"""An entropy of at least 95 % of its ceiling, ln(cells), is called near it."""

UNSUPERVISED = ("retrained", "clinical-masking", "no-attn", "abnormal")
OTHERS = ("retrained", "word-masking", "clinical-masking", "no-attn", "abnormal", "rand-sents")
COMPARED = ("thirty-shot", *OTHERS)
USUALLY = "Usually is taken as for more than half of the variants."


def released(view: ClaimView) -> str:
    """Return the variant for claims about GLoRIA with its released weights: itself if measured, else Retrained."""
    return "gloria" if view.has("gloria") else "retrained"


def above_chance(view: ClaimView, target: str) -> Ruling:
    """Judge whether GLoRIA's AUROC is well over one half."""
    subject = released(view)
    if absent := missing(view, subject):
        return absent
    found = view.mean(view.value(subject, "auroc", target))
    label = f"{view.name(subject)}, AUROC"
    remark = f"Well over 50 % is taken as above {100 * WELL_ABOVE:.0f} %."
    return together([Evidence(label, found, side(found, above=WELL_ABOVE), "percent")], remark)


def harder_subsets(view: ClaimView, target: str) -> Ruling:
    """Judge whether GLoRIA does worse on One Lung and MDRB than on the rest."""
    subject = released(view)
    if absent := missing(view, subject):
        return absent
    evidence = []
    inside = view.measured.subset
    for measure, said in (("auroc", "AUROC"), ("average_precision", "average precision")):
        whole = view.value(subject, measure, target)
        for subset in ("one-lung", "mdrb"):
            part, rest = (np.where(flags, whole, np.nan) for flags in (inside(subset), ~inside(subset)))
            found = view.estimator.contrast(part, rest)
            evidence.append(Evidence(f"{said}, {SUBSET_TITLES[subset]} minus the rest", found, side(found, below=0.0)))
    return together(evidence)


def loses(view: ClaimView, target: str, perturbation: str) -> Ruling:
    """Judge whether a perturbation costs GLoRIA AUROC."""
    subject = released(view)
    if absent := missing(view, subject):
        return absent
    found = view.mean(view.change(subject, perturbation, target))
    return together([Evidence(f"{view.name(subject)}, change of AUROC", found, side(found, below=0.0))])


def barely_changes(view: ClaimView, target: str, perturbation: str) -> Ruling:
    """Judge whether a perturbation leaves GLoRIA's AUROC about where it is."""
    subject = released(view)
    if absent := missing(view, subject):
        return absent
    found = view.mean(view.change(subject, perturbation, target))
    evidence = Evidence(f"{view.name(subject)}, change of AUROC", found, small(found))
    return together([evidence], "Up to two points either way is taken as barely.")


def beats(
    view: ClaimView, target: str, better: str, worse: Sequence[str], measures: Sequence[str] = ("auroc",)
) -> Ruling:
    """Judge whether a variant's measures over all instances are above those of each of the others that are there."""
    there = [variant for variant in _rivals(view, worse) if variant != better]
    if (absent := missing(view, better, *(() if there else worse[:1]))) is not None:
        return absent
    evidence = []
    for measure, variant in itertools.product(measures, there):
        found = view.difference(view.value(better, measure, target), view.value(variant, measure, target))
        said = f"{find_measure(measure).title}, " if len(measures) > 1 else ""
        label = f"{said}{view.name(better)} minus {view.name(variant)}"
        evidence.append(Evidence(label, found, side(found, above=0.0)))
    return together(evidence, _not_there(view, worse))


@needs("retrained", "thirty-shot")
def similar_or_better(view: ClaimView, target: str, measures: Sequence[str]) -> Ruling:
    """Judge whether Retrained's measures are no more than two points below those of +30-shot."""
    evidence = []
    for measure in measures:
        found = view.mean(view.value("retrained", measure, target) - view.value("thirty-shot", measure, target))
        label = f"{find_measure(measure).title}, {view.name('retrained')} minus {view.name('thirty-shot')}"
        evidence.append(Evidence(label, found, side(found, above=-SMALL)))
    remark = "Beside +30-shot, the paper's best at 5 and 10 %. Similar is taken as at most two points below."
    return together(evidence, remark)


def _not_there(view: ClaimView, variants: Sequence[str]) -> str:
    absent = [variant for variant in variants if not view.has(variant)]
    return f"Not measured: {', '.join(absent)}." if absent else ""


def _rivals(view: ClaimView, variants: Sequence[str]) -> list[str]:
    """Return those of the variants that were measured and are comparable."""
    models = {variant: view.model(variant) for variant in variants}
    return [variant for variant, model in models.items() if model is not None and model.comparable]


def _comparable(view: ClaimView) -> list[str]:
    """Return the variants that the paper compares with each other and that were measured."""
    return _rivals(view, COMPARED)


def trimmed_drops(view: ClaimView, target: str) -> Ruling:
    """Judge whether the average precision of all variants drops with trimmed labels."""
    evidence = []
    for variant in _comparable(view):
        whole, trimmed = (view.value(variant, "average_precision", kind) for kind in ("regions", "trimmed"))
        found = view.mean(trimmed - whole)
        evidence.append(Evidence(view.name(variant), found, side(found, below=0.0)))
    return together(evidence, _not_there(view, COMPARED))


def trimmed_trend(view: ClaimView, target: str) -> Ruling:
    """Judge whether the AUROCs of the variants correlate with those against trimmed labels."""
    means = [
        [float(view.mean(view.value(variant, "auroc", kind)).value) for variant in _comparable(view)]
        for kind in ("regions", "trimmed")
    ]
    return _over_variants(np.array(means[0]), np.array(means[1]), "AUROC with all boxes and trimmed", expected=True)


def loses_in_order(
    view: ClaimView, target: str, perturbation: str, order: Sequence[str], others: Sequence[str] = OTHERS
) -> Ruling:
    """Judge whether the first loses more than the second, and so on, and the last more than all that are not named."""
    if absent := missing(view, *order):
        return absent
    rest = [variant for variant in _rivals(view, others) if variant not in order]
    pairs = [*itertools.pairwise(order), *((order[-1], variant) for variant in rest)]
    evidence = []
    for more, less in pairs:
        found = view.difference(view.change(more, perturbation, target), view.change(less, perturbation, target))
        label = f"change of {view.name(more)} minus that of {view.name(less)}"
        evidence.append(Evidence(label, found, side(found, below=0.0)))
    return together(evidence, _not_there(view, others))


def considerably_changes(view: ClaimView, target: str, variant: str, perturbation: str) -> Ruling:
    """Judge whether a perturbation changes a variant's AUROC by more than two points, either way."""
    if absent := missing(view, variant):
        return absent
    found = view.mean(view.change(variant, perturbation, target))
    verdict = {HOLDS: FAILS, FAILS: HOLDS}.get(within := small(found), within)
    evidence = Evidence(f"{view.name(variant)}, change of AUROC", found, verdict)
    return together([evidence], "More than two points either way is taken as considerably.")


@needs("word-masking")
def selects_best(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Word Masking selects the right sentence more often than each other variant."""
    evidence = []
    for variant in _comparable(view):
        if variant == "word-masking":
            continue
        found = view.difference(view.selection("word-masking", "local"), view.selection(variant, "local"))
        evidence.append(
            Evidence(f"{view.name('word-masking')} minus {view.name(variant)}", found, side(found, above=0.0))
        )
    return together(evidence, _not_there(view, COMPARED))


@needs("no-attn", "retrained")
def selection_less(view: ClaimView, target: str) -> Ruling:
    """Judge whether +No Attn selects the right sentence less often than Retrained."""
    found = view.difference(view.selection("no-attn", "global"), view.selection("retrained", "global"))
    return together([Evidence(f"{view.name('no-attn')} minus {view.name('retrained')}", found, side(found, below=0.0))])


def selection_and_localisation(view: ClaimView, target: str) -> Ruling:
    """Judge whether, over variants, selecting the right sentence goes with a high AUROC: it is said not to."""
    return _with_selection(view, lambda variant: view.value(variant, "auroc", target), "AUROC")


def selection_and_sensitivity(view: ClaimView, target: str) -> Ruling:
    """Judge whether, over variants, selecting the right sentence goes with minding the sides: it is said not to."""
    said = "loss of AUROC when sides are swapped"
    return _with_selection(view, lambda variant: -view.change(variant, "swap-sides", target), said)


def _with_selection(view: ClaimView, values: Callable[[str], Floats], said: str) -> Ruling:
    variants = _comparable(view)
    selection = [float(view.mean(view.selection(variant, "global")).value) for variant in variants]
    other = [float(view.mean(values(variant)).value) for variant in variants]
    return _over_variants(np.array(selection), np.array(other), f"selection (global) and {said}", expected=False)


def _over_variants(first: Floats, second: Floats, label: str, expected: bool) -> Ruling:
    """Judge a correlation over variants: one that is expected, or one that is said not to be there."""
    defined = int((~(np.isnan(first) | np.isnan(second))).sum())
    if defined < 4:
        return Ruling(UNKNOWN, remark=f"Too few variants for a correlation: {defined}.")
    interval = pearson(first, second)
    found = Estimate(interval.estimate, interval.low, interval.high, defined)
    verdict = side(found, above=0.0)
    remark = f"Over {defined} variants, each counted once."
    if not expected:
        verdict = {HOLDS: FAILS, FAILS: HOLDS, NOT_SHOWN: NOT_SHOWN, UNKNOWN: UNKNOWN}[verdict]
        if verdict == NOT_SHOWN:
            remark += " No correlation is shown, which agrees with the paper and proves little with so few."
    return together([Evidence(f"correlation of {label}", found, verdict, "correlation")], remark)


@needs("no-attn")
def abstains_without_abnormality(view: ClaimView, target: str) -> Ruling:
    """Judge whether the No-Attn score correlates negatively with there being something abnormal."""
    abnormal = view.measured.subset("abnormal").astype(np.float64)
    return _abstains(view.of_one_seed(), "abnormal", abnormal)


@needs("no-attn")
def abstains_where_wrong(view: ClaimView, target: str) -> Ruling:
    """Judge whether the No-Attn score correlates negatively with IoU@10 %."""
    view = view.of_one_seed()
    return _abstains(view, "IoU@10 %", view.value("no-attn", "iou@10", target))


def _abstains(view: ClaimView, label: str, values: Floats) -> Ruling:
    pair = {"abstention": view.value("no-attn", "abstention"), label: values}
    found = view.estimator.correlations(pair)["abstention", label]
    return together([Evidence(f"correlation with {label}", found, side(found, below=0.0), "correlation")])


def synthetic_like_real(view: ClaimView, target: str) -> Ruling:
    """Judge whether synthetic sentences leave the AUROC of the variants about where it is."""
    evidence = []
    for variant in _comparable(view):
        if variant in ("rand-sents", "thirty-shot"):
            continue
        found = _real_to_synthetic(view, variant, target)
        evidence.append(Evidence(view.name(variant), found, small(found)))
    return together(
        evidence, "AUROC with synthetic minus real sentences; up to two points either way counts as the same."
    )


def _real_to_synthetic(view: ClaimView, variant: str, target: str) -> Estimate:
    synthetic, real = (view.value(variant, "auroc", target, condition=name) for name in ("synthetic", "none"))
    return view.mean(synthetic - real)


@needs("thirty-shot")
def synthetic_jump(view: ClaimView, target: str) -> Ruling:
    """Judge whether synthetic sentences raise the AUROC of +30-shot."""
    found = _real_to_synthetic(view, "thirty-shot", target)
    return together([Evidence(f"{view.name('thirty-shot')}, synthetic minus real", found, side(found, above=0.0))])


def random_boxes_mdrb(view: ClaimView, target: str) -> Ruling:
    """Judge whether random boxes raise the average precision of all variants on MDRB."""
    evidence = []
    for variant in _comparable(view):
        found = view.mean(view.change(variant, "random-boxes", target, "mdrb", "average_precision"))
        evidence.append(Evidence(view.name(variant), found, side(found, above=0.0)))
    return together(evidence, _not_there(view, COMPARED))


@needs("thirty-shot", "abnormal")
def divergence_order(view: ClaimView, target: str) -> Ruling:
    """Judge whom a random sentence moves most, and whom not at all."""
    rest = [variant for variant in _rivals(view, OTHERS) if variant != "abnormal"]
    pairs = [("thirty-shot", "abnormal"), *(("abnormal", variant) for variant in rest)]
    evidence = []
    for more, less in pairs:
        found = view.difference(view.value(more, "kl_random"), view.value(less, "kl_random"))
        evidence.append(Evidence(f"{view.name(more)} minus {view.name(less)}", found, side(found, above=0.0), "nats"))
    if view.has("rand-sents"):
        found = view.mean(view.value("rand-sents", "kl_random"))
        evidence.append(Evidence(view.name("rand-sents"), found, small(found, 0.005), "nats"))
    return together(evidence)


def cells(view: ClaimView, variant: str) -> int | None:
    """Return how many cells a model's own map has; ``None`` where its ``about.json`` does not say."""
    model = view.model(variant)
    grid = model.about.get("grid") if model is not None else None
    return int(grid[0]) * int(grid[1]) if grid else None


@needs("retrained")
def near_uniform(view: ClaimView, target: str) -> Ruling:
    """Judge whether the entropy of Retrained is near ln(cells); with one softmax it is said beside."""
    variants = [variant for variant in ("retrained", "retrained-one-softmax") if view.has(variant)]
    shares = {variant: _entropy_share(view, variant) for variant in variants}
    known = {variant: found for variant, found in shares.items() if found is not None}
    if variants[0] not in known:
        return Ruling(UNKNOWN, remark=f"The number of cells of {view.name(variants[0])}'s map is not given.")
    found = known[variants[0]]
    first = Evidence(
        f"{view.name(variants[0])}, share of the ceiling", found, side(found, above=NEAR_UNIFORM), "percent"
    )
    remark = f"Near is taken as above {100 * NEAR_UNIFORM:.0f} % of the ceiling."
    if len(known) > 1:
        beside = Evidence(view.name(variants[1]), known[variants[1]], UNKNOWN, "percent")
        remark += f" With one softmax: {beside.said}."
    return together([first], remark)


def _entropy_share(view: ClaimView, variant: str) -> Estimate | None:
    count = cells(view, variant)
    return None if count is None or count < 2 else view.mean(view.value(variant, "grid_entropy") / math.log(count))


@needs("retrained", "retrained-one-softmax")
def two_softmaxes(view: ClaimView, target: str) -> Ruling:
    """Judge whether a second softmax raises the entropy of the maps."""
    found = view.difference(
        view.value("retrained", "grid_entropy"), view.value("retrained-one-softmax", "grid_entropy")
    )
    label = f"entropy of {view.name('retrained')} minus {view.name('retrained-one-softmax')}"
    return together([Evidence(label, found, side(found, above=0.0), "nats")])


@needs("abnormal")
def entropy_localisation(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Abnormal's entropy correlates negatively with how well it localises."""
    view = view.of_one_seed()
    names = {"auroc": "AUROC", "average_precision": "average precision", "iou@10": "IoU@10 %"}
    values = {"entropy": view.value("abnormal", "grid_entropy")}
    values |= {said: view.value("abnormal", measure, target) for measure, said in names.items()}
    found = view.estimator.correlations(values)
    return together(
        [
            Evidence(
                f"correlation with {said}",
                found["entropy", said],
                side(found["entropy", said], below=0.0),
                "correlation",
            )
            for said in names.values()
        ]
    )


def iou_nearer_auroc(view: ClaimView, target: str) -> Ruling:
    """Judge whether IoU@10 % correlates more with AUROC than with average precision, for most variants."""
    view, evidence = view.of_one_seed(), []
    for variant in _comparable(view):
        iou, auroc, precision = (view.value(variant, name, target) for name in ("iou@10", "auroc", "average_precision"))
        found = view.estimator.correlation_contrast(iou, auroc, precision)
        evidence.append(Evidence(view.name(variant), found, side(found, above=0.0), "correlation"))
    remark = (
        "Of IoU@10 %: its correlation with AUROC minus that with average precision. Generally is taken as for more "
    )
    return (
        mostly(evidence, f"{remark}than half of the variants.") if evidence else mostly([], _not_there(view, COMPARED))
    )


def entropy_similarity(view: ClaimView, target: str, kind: Literal["local", "global"], positive: bool) -> Ruling:
    """Judge whether, for most variants, entropy correlates with a similarity: positively, or negatively."""
    view, evidence = view.of_one_seed(), []
    for variant in _comparable(view):
        pair = {"entropy": view.value(variant, "grid_entropy"), kind: view.value(variant, f"similarity_{kind}")}
        found = view.estimator.correlations(pair)["entropy", kind]
        verdict = side(found, above=0.0) if positive else side(found, below=0.0)
        evidence.append(Evidence(view.name(variant), found, verdict, "correlation"))
    return mostly(evidence, USUALLY if evidence else _not_there(view, COMPARED))
