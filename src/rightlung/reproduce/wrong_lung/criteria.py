"""Criteria: one function per claim of the paper, from the measurements and a kind of target to a ruling.

A claim that compares variants uses those that were measured, and says which were not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Literal

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
    Judge,
    Ruling,
    all_of,
    missing,
    most_of,
    requires,
    side,
    small,
)
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Floats
from rightlung.scoring.statistics import pearson

WELL_ABOVE = 0.55
"""AUROC that counts as "well over 50 %"."""
NEAR_UNIFORM = 0.95
"""Share of the maximum entropy, ln(cells), that counts as near the maximum."""

OTHERS = ("retrained", "word-masking", "clinical-masking", "no-attn", "abnormal", "rand-sents")
COMPARED = ("thirty-shot", *OTHERS)
_OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}


# ------------------------------------------------------------------ shared parts


def _on_released(judge: Judge) -> Judge:
    """Decorate a claim about GLoRIA's released weights: judged on them if measured, else on Retrained."""

    @wraps(judge)
    def judged(view: ClaimView, target: str, **options: Any) -> Ruling:
        subject = "gloria" if view.has("gloria") else "retrained"
        return missing(view, subject) or judge(view, target, subject=subject, **options)

    return judged


def _rivals(view: ClaimView, variants: Sequence[str] = COMPARED) -> list[str]:
    """Return those of the variants that were measured and are comparable."""
    models = {variant: view.model(variant) for variant in variants}
    return [variant for variant, model in models.items() if model is not None and model.comparable]


def _not_measured(view: ClaimView, variants: Sequence[str] = COMPARED) -> str:
    absent = [variant for variant in variants if not view.has(variant)]
    return f"Not measured: {', '.join(absent)}." if absent else ""


def _differences(
    view: ClaimView,
    pairs: Iterable[tuple[str, str]],
    values: Callable[[str], Floats],
    label: str = "{} minus {}",
    unit: str = "points",
    **criterion: float,
) -> list[Evidence]:
    """Return the paired difference of each two variants, judged by the criterion."""
    return [
        Evidence.judged(
            label.format(view.name(first), view.name(second)),
            view.difference(values(first), values(second)),
            unit,
            **criterion,
        )
        for first, second in pairs
    ]


def _for_each(
    view: ClaimView,
    estimate: Callable[[str], Estimate],
    unit: str = "points",
    skip: Sequence[str] = (),
    **criterion: float,
) -> list[Evidence]:
    """Return the estimate of each compared variant, judged by the criterion."""
    variants = [variant for variant in _rivals(view) if variant not in skip]
    return [Evidence.judged(view.name(variant), estimate(variant), unit, **criterion) for variant in variants]


# ------------------------------------------------------------------ section 3: the released model


@_on_released
def above_chance(view: ClaimView, target: str, subject: str) -> Ruling:
    """Judge whether GLoRIA's AUROC is well over one half."""
    found = view.mean(view.value(subject, "auroc", target))
    remark = f"“Well over 50 %” means above {100 * WELL_ABOVE:.0f} %."
    return all_of([Evidence.judged(f"{view.name(subject)}, AUROC", found, "percent", above=WELL_ABOVE)], remark)


@_on_released
def harder_subsets(view: ClaimView, target: str, subject: str) -> Ruling:
    """Judge whether GLoRIA does worse on One Lung and MDRB than on the other phrases."""
    evidence = []
    for measure, subset in itertools.product(("auroc", "average_precision"), ("one-lung", "mdrb")):
        whole, inside = view.value(subject, measure, target), view.measured.subset(subset)
        found = view.estimator.contrast(np.where(inside, whole, np.nan), np.where(inside, np.nan, whole))
        label = f"{find_measure(measure).title}, {SUBSET_TITLES[subset]} minus the other phrases"
        evidence.append(Evidence.judged(label, found, below=0.0))
    return all_of(evidence)


@_on_released
def change_of_released(
    view: ClaimView, target: str, subject: str, perturbation: str, remark: str = "", **criterion: float
) -> Ruling:
    """Judge the change of GLoRIA's AUROC under a perturbation by a criterion (``below`` or ``within``)."""
    found = view.mean(view.change(subject, perturbation, target))
    return all_of([Evidence.judged(f"{view.name(subject)}, change of AUROC", found, "points", **criterion)], remark)


# ------------------------------------------------------------------ section 4: the variants


def beats(
    view: ClaimView, target: str, better: str, worse: Sequence[str], measures: Sequence[str] = ("auroc",)
) -> Ruling:
    """Judge whether a variant's measures over all instances exceed those of each other measured variant."""
    rivals = [variant for variant in _rivals(view, worse) if variant != better]
    if (absent := missing(view, better, *(() if rivals else worse[:1]))) is not None:
        return absent
    evidence = []
    for measure in measures:
        label = f"{find_measure(measure).title}, {{}} minus {{}}" if len(measures) > 1 else "{} minus {}"
        pairs = [(better, variant) for variant in rivals]
        values = partial(view.value, measure=measure, target=target)
        evidence += _differences(view, pairs, values, label, above=0.0)
    return all_of(evidence, _not_measured(view, worse))


@requires("retrained", "thirty-shot")
def similar_or_better(view: ClaimView, target: str, measures: Sequence[str]) -> Ruling:
    """Judge whether Retrained's measures are at most two points below those of +30-shot."""
    evidence = []
    for measure in measures:
        found = view.mean(view.value("retrained", measure, target) - view.value("thirty-shot", measure, target))
        label = f"{find_measure(measure).title}, {view.name('retrained')} minus {view.name('thirty-shot')}"
        evidence.append(Evidence.judged(label, found, above=-SMALL))
    remark = "Compared with +30-shot, the paper's best at 5 and 10 %. “Similar” means at most two points below."
    return all_of(evidence, remark)


def trimmed_drops(view: ClaimView, target: str) -> Ruling:
    """Judge whether the average precision of all variants drops with trimmed labels."""

    def drop(variant: str) -> Estimate:
        trimmed, whole = (view.value(variant, "average_precision", kind) for kind in ("trimmed", "regions"))
        return view.mean(trimmed - whole)

    return all_of(_for_each(view, drop, below=0.0), _not_measured(view))


def trimmed_trend(view: ClaimView, target: str) -> Ruling:
    """Judge whether the variants' AUROCs correlate with those against trimmed labels."""
    whole, trimmed = (partial(view.value, measure="auroc", target=kind) for kind in ("regions", "trimmed"))
    return _over_variants(view, whole, trimmed, "AUROC with all boxes and trimmed", expected=True)


def loses_in_order(
    view: ClaimView, target: str, perturbation: str, order: Sequence[str], others: Sequence[str] = OTHERS
) -> Ruling:
    """Judge whether each named variant loses more than the next, and the last more than all variants not named."""
    if absent := missing(view, *order):
        return absent
    rest = [variant for variant in _rivals(view, others) if variant not in order]
    pairs = [*itertools.pairwise(order), *((order[-1], variant) for variant in rest)]
    label = "change of {} minus change of {}"
    evidence = _differences(view, pairs, lambda one: view.change(one, perturbation, target), label, below=0.0)
    return all_of(evidence, _not_measured(view, others))


def considerably_changes(view: ClaimView, target: str, variant: str, perturbation: str) -> Ruling:
    """Judge whether a perturbation changes a variant's AUROC by more than two points, in either direction."""
    if absent := missing(view, variant):
        return absent
    found = view.mean(view.change(variant, perturbation, target))
    verdict = _OPPOSITE.get(within := small(found), within)
    evidence = Evidence(f"{view.name(variant)}, change of AUROC", found, verdict)
    return all_of([evidence], "“Considerably” means more than two points in either direction.")


@requires("word-masking")
def selects_best(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Word Masking selects the right sentence more often than each other variant."""
    pairs = [("word-masking", variant) for variant in _rivals(view) if variant != "word-masking"]
    evidence = _differences(view, pairs, lambda one: view.selection(one, "local"), above=0.0)
    return all_of(evidence, _not_measured(view))


@requires("no-attn", "retrained")
def selection_less(view: ClaimView, target: str) -> Ruling:
    """Judge whether +No Attn selects the right sentence less often than Retrained."""
    pairs = [("no-attn", "retrained")]
    return all_of(_differences(view, pairs, lambda one: view.selection(one, "global"), below=0.0))


def selection_and_localisation(view: ClaimView, target: str) -> Ruling:
    """Judge the claim that, over variants, selection accuracy does not correlate with AUROC."""
    return _over_variants(
        view, lambda one: view.selection(one, "global"), lambda one: view.value(one, "auroc", target),
        "selection (global) and AUROC", expected=False,
    )  # fmt: skip


def selection_and_sensitivity(view: ClaimView, target: str) -> Ruling:
    """Judge the claim that, over variants, selection accuracy does not correlate with sensitivity to swapped sides."""
    return _over_variants(
        view, lambda one: view.selection(one, "global"), lambda one: -view.change(one, "swap-sides", target),
        "selection (global) and loss of AUROC when sides are swapped", expected=False,
    )  # fmt: skip


def _over_variants(
    view: ClaimView, first: Callable[[str], Floats], second: Callable[[str], Floats], label: str, expected: bool
) -> Ruling:
    """Judge a correlation over variants that the paper expects, or that it says is absent."""
    means = [np.array([view.mean(values(one)).value for one in _rivals(view)], float) for values in (first, second)]
    defined = int((~np.isnan(means[0] + means[1])).sum())
    if defined < 4:
        return Ruling(UNKNOWN, remark=f"Too few variants for a correlation: {defined}.")
    interval = pearson(*means)
    found = Estimate(interval.estimate, interval.low, interval.high, defined)
    verdict = side(found, above=0.0)
    remark = f"Over {defined} variants, each counted once."
    if not expected:
        verdict = _OPPOSITE.get(verdict, verdict)
        if verdict == NOT_SHOWN:
            remark += " No correlation is shown. This agrees with the paper but is weak evidence with so few variants."
    return all_of([Evidence(f"correlation of {label}", found, verdict, "correlation")], remark)


@requires("no-attn")
def abstains_without_abnormality(view: ClaimView, target: str) -> Ruling:
    """Judge whether the No-Attn score correlates negatively with the presence of an abnormality."""
    abnormal = view.measured.subset("abnormal").astype(np.float64)
    return _abstains(view.of_one_seed(), "abnormal", abnormal)


@requires("no-attn")
def abstains_where_wrong(view: ClaimView, target: str) -> Ruling:
    """Judge whether the No-Attn score correlates negatively with IoU@10 %."""
    view = view.of_one_seed()
    return _abstains(view, "IoU@10 %", view.value("no-attn", "iou@10", target))


def _abstains(view: ClaimView, label: str, values: Floats) -> Ruling:
    found = _correlation(view, view.value("no-attn", "abstention"), values)
    return all_of([Evidence.judged(f"correlation with {label}", found, "correlation", below=0.0)])


def _correlation(view: ClaimView, first: Floats, second: Floats) -> Estimate:
    return view.estimator.correlations({"first": first, "second": second})["first", "second"]


# ------------------------------------------------------------------ appendix B


def _synthetic_minus_real(view: ClaimView, variant: str, target: str) -> Estimate:
    synthetic, real = (view.value(variant, "auroc", target, condition=name) for name in ("synthetic", "none"))
    return view.mean(synthetic - real)


def synthetic_like_real(view: ClaimView, target: str) -> Ruling:
    """Judge whether the variants' AUROC is about the same for synthetic sentences."""
    skip = ("rand-sents", "thirty-shot")
    evidence = _for_each(view, lambda one: _synthetic_minus_real(view, one, target), skip=skip, within=SMALL)
    return all_of(
        evidence, "AUROC with synthetic minus real sentences. “As well” means at most two points in either direction."
    )


@requires("thirty-shot")
def synthetic_jump(view: ClaimView, target: str) -> Ruling:
    """Judge whether the AUROC of +30-shot is higher for synthetic sentences."""
    found = _synthetic_minus_real(view, "thirty-shot", target)
    return all_of([Evidence.judged(f"{view.name('thirty-shot')}, synthetic minus real", found, above=0.0)])


def random_boxes_mdrb(view: ClaimView, target: str) -> Ruling:
    """Judge whether random boxes raise the average precision of all variants on MDRB."""

    def change(variant: str) -> Estimate:
        return view.mean(view.change(variant, "random-boxes", target, "mdrb", "average_precision"))

    return all_of(_for_each(view, change, above=0.0), _not_measured(view))


@requires("thirty-shot", "abnormal")
def divergence_order(view: ClaimView, target: str) -> Ruling:
    """Judge whose maps a random sentence changes most, and that it does not change those of +Rand Sents."""
    rest = [variant for variant in _rivals(view, OTHERS) if variant != "abnormal"]
    pairs = [("thirty-shot", "abnormal"), *(("abnormal", variant) for variant in rest)]
    evidence = _differences(view, pairs, lambda one: view.value(one, "kl_random"), unit="nats", above=0.0)
    if view.has("rand-sents"):
        found = view.mean(view.value("rand-sents", "kl_random"))
        evidence.append(Evidence.judged(view.name("rand-sents"), found, "nats", within=0.005))
    return all_of(evidence)


@requires("retrained")
def near_uniform(view: ClaimView, target: str) -> Ruling:
    """Judge whether the entropy of Retrained's maps is near ln(cells); report the variant with one softmax, too."""
    found = _entropy_share(view, "retrained")
    if found is None:
        return Ruling(UNKNOWN, remark=f"The number of cells of {view.name('retrained')}'s map is not known.")
    label = f"{view.name('retrained')}, share of the maximum entropy"
    remark = f"“Near” means above {100 * NEAR_UNIFORM:.0f} % of the maximum."
    other = "retrained-one-softmax"
    if view.has(other) and (one_softmax := _entropy_share(view, other)) is not None:
        remark += f" With one softmax: {Evidence(view.name(other), one_softmax, UNKNOWN, 'percent').text}."
    return all_of([Evidence.judged(label, found, "percent", above=NEAR_UNIFORM)], remark)


def _entropy_share(view: ClaimView, variant: str) -> Estimate | None:
    """Return the mean entropy as a share of ln(cells); ``None`` where ``about.json`` does not give the grid."""
    model = view.model(variant)
    rows, columns = (model.about.get("grid") if model is not None else None) or (0, 0)
    cells = int(rows) * int(columns)
    return None if cells < 2 else view.mean(view.value(variant, "grid_entropy") / math.log(cells))


@requires("retrained", "retrained-one-softmax")
def two_softmaxes(view: ClaimView, target: str) -> Ruling:
    """Judge whether a second softmax raises the entropy of the maps."""
    pairs, label = [("retrained", "retrained-one-softmax")], "entropy of {} minus {}"
    return all_of(_differences(view, pairs, lambda one: view.value(one, "grid_entropy"), label, "nats", above=0.0))


@requires("abnormal")
def entropy_localisation(view: ClaimView, target: str) -> Ruling:
    """Judge whether +Abnormal's entropy correlates negatively with its localisation scores."""
    view, evidence = view.of_one_seed(), []
    for measure in ("auroc", "average_precision", "iou@10"):
        found = _correlation(view, view.value("abnormal", "grid_entropy"), view.value("abnormal", measure, target))
        label = f"correlation with {find_measure(measure).title}"
        evidence.append(Evidence.judged(label, found, "correlation", below=0.0))
    return all_of(evidence)


def iou_nearer_auroc(view: ClaimView, target: str) -> Ruling:
    """Judge whether IoU@10 % correlates more with AUROC than with average precision, for most variants."""
    view = view.of_one_seed()

    def contrast(variant: str) -> Estimate:
        columns = (view.value(variant, name, target) for name in ("iou@10", "auroc", "average_precision"))
        return view.estimator.correlation_contrast(*columns)

    evidence = _for_each(view, contrast, "correlation", above=0.0)
    remark = (
        "Correlation of IoU@10 % with AUROC minus its correlation with average precision. “Generally” means for more "
        "than half of the variants."
    )
    return most_of(evidence, remark if evidence else _not_measured(view))


def entropy_similarity(view: ClaimView, target: str, kind: Literal["local", "global"], positive: bool) -> Ruling:
    """Judge whether, for most variants, entropy correlates with a similarity: positively, or negatively."""
    view = view.of_one_seed()

    def correlation(variant: str) -> Estimate:
        return _correlation(view, view.value(variant, "grid_entropy"), view.value(variant, f"similarity_{kind}"))

    criterion = {"above": 0.0} if positive else {"below": 0.0}
    evidence = _for_each(view, correlation, "correlation", (), **criterion)
    return most_of(evidence, "“Usually” means for more than half of the variants." if evidence else _not_measured(view))
