"""Criteria: functions from the measurements, a kind of target and the options of a claim to a ruling.

``of`` in the options says what is compared: arguments of `ClaimView.values`, with ``against`` in place of the claim's
target and ``minus`` for what is subtracted. A claim that compares variants uses those that were measured, and says
which were not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rightlung.measuring.measures import find_measure
from rightlung.reproduce.claims import (
    FAILS,
    HOLDS,
    NOT_SHOWN,
    UNKNOWN,
    ClaimView,
    Evidence,
    Ruling,
    all_of,
    missing,
    most_of,
    verdict_on,
)
from rightlung.reproduce.wrong_lung.variants import SUBSET_TITLES
from rightlung.results.estimate import Estimate
from rightlung.results.estimator import Floats
from rightlung.scoring.statistics import pearson

NEAR_UNIFORM = 0.95
"""Share of the maximum entropy, ln(cells), that counts as near the maximum."""

OTHERS = ("retrained", "word-masking", "clinical-masking", "no-attn", "abnormal", "rand-sents")
COMPARED = ("thirty-shot", *OTHERS)
_OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}

Of = Mapping[str, Any]


def _values(view: ClaimView, variant: str, target: str, of: Of) -> Floats:
    options = dict(of)
    minus, against = options.pop("minus", None), options.pop("against", target)
    found = view.values(variant, against, **options)
    return found if minus is None else found - _values(view, variant, target, minus)


def _subject(view: ClaimView) -> str:
    """Return the model for claims about GLoRIA's released weights: these if they were measured, else Retrained."""
    return "gloria" if view.has("gloria") else "retrained"


def _rivals(view: ClaimView, variants: Iterable[str] = COMPARED) -> list[str]:
    """Return those of the variants that were measured and are comparable."""
    models = {variant: view.model(variant) for variant in variants}
    return [variant for variant, model in models.items() if model is not None and model.comparable]


def _not_measured(view: ClaimView, variants: Iterable[str] = COMPARED) -> str:
    absent = missing(view, *variants)
    return absent.remark if absent is not None else ""


def estimates(
    view: ClaimView, target: str, of: Of, variants: Sequence[str] = COMPARED, label: str = "{}", unit: str = "points",
    remark: str = "", **criterion: float,
) -> Ruling:  # fmt: skip
    """Judge the mean of each variant; ``released`` stands for GLoRIA's released weights."""
    variants = [_subject(view) if variant == "released" else variant for variant in variants]
    evidence = [
        Evidence.judged(
            label.format(view.name(variant)), view.mean(_values(view, variant, target, of)), unit, **criterion
        )
        for variant in _rivals(view, variants)
    ]
    return all_of(evidence, remark if remark and evidence else _not_measured(view, variants))


def differences(
    view: ClaimView, target: str, order: Sequence[str], others: Sequence[str] = OTHERS, of: Of | None = None,
    measures: Sequence[str] = (), label: str = "{} minus {}", unit: str = "points", remark: str = "",
    **criterion: float,
) -> Ruling:  # fmt: skip
    """Judge the paired differences of each variant in ``order`` minus the next, and of the last minus all others.

    Differences that are compared with zero are tested, too.
    """
    if absent := missing(view, *order, *(others if len(others) == 1 else ())):
        return absent
    rest = [variant for variant in _rivals(view, others) if variant not in order]
    pairs = [*itertools.pairwise(order), *((order[-1], variant) for variant in rest)]
    tested = 0.0 in criterion.values()
    evidence = []
    for measure in measures or [""]:
        chosen = {"measure": measure} if measure else of or {}
        prefix = f"{find_measure(measure).title}, " if measure else ""
        for pair in pairs:
            first, second = (_values(view, variant, target, chosen) for variant in pair)
            found = view.difference(first, second) if tested else view.mean(first - second)
            named = prefix + label.format(*map(view.name, pair))
            evidence.append(Evidence.judged(named, found, unit, **criterion))
    return all_of(evidence, remark or _not_measured(view, others))


def correlations(
    view: ClaimView, target: str, measure: str, others: Sequence[str], variants: Sequence[str] = COMPARED,
    label: str = "{}", most: bool = False, **criterion: float,
) -> Ruling:  # fmt: skip
    """Judge the correlations of a measure with others over instances, for all (or most) variants."""
    view, evidence = view.of_one_seed(), []
    for variant, other in itertools.product(_rivals(view, variants), others):
        abnormal = other == "abnormal"
        second = view.measured.subset(other).astype(float) if abnormal else view.values(variant, target, other)
        columns = {"first": view.values(variant, target, measure), "second": second}
        found = view.estimator.correlations(columns)["first", "second"]
        title = other if abnormal else find_measure(other).title
        evidence.append(Evidence.judged(label.format(view.name(variant), title), found, "correlation", **criterion))
    if most and evidence:
        return most_of(evidence, "“Usually” means for more than half of the variants.")
    return all_of(evidence, _not_measured(view, variants))


def over_variants(
    view: ClaimView, target: str, first: Of, second: Of, label: str, expected: bool = False, sign: int = 1
) -> Ruling:
    """Judge a correlation over variants that the paper expects, or that it says is absent."""
    means = [
        np.array([view.mean(_values(view, variant, target, of)).value for variant in _rivals(view)], float)
        for of in (first, second)
    ]
    defined = int((~np.isnan(means[0] + means[1])).sum())
    if defined < 4:
        return Ruling(UNKNOWN, remark=f"Too few variants for a correlation: {defined}.")
    interval = pearson(means[0], sign * means[1])
    found = Estimate(interval.estimate, interval.low, interval.high, defined)
    verdict = verdict_on(found, above=0.0)
    remark = f"Over {defined} variants, each counted once."
    if not expected:
        verdict = _OPPOSITE.get(verdict, verdict)
        if verdict == NOT_SHOWN:
            remark += " No correlation is shown. This agrees with the paper but is weak evidence with so few variants."
    return all_of([Evidence(f"correlation of {label}", found, verdict, "correlation")], remark)


def harder_subsets(view: ClaimView, target: str) -> Ruling:
    """Judge whether GLoRIA does worse on One Lung and MDRB than on the other phrases."""
    evidence, subject = [], _subject(view)
    if absent := missing(view, subject):
        return absent
    for measure, subset in itertools.product(("auroc", "average_precision"), ("one-lung", "mdrb")):
        whole, inside = view.values(subject, target, measure), view.measured.subset(subset)
        found = view.estimator.contrast(np.where(inside, whole, np.nan), np.where(inside, np.nan, whole))
        label = f"{find_measure(measure).title}, {SUBSET_TITLES[subset]} minus the other phrases"
        evidence.append(Evidence.judged(label, found, below=0.0))
    return all_of(evidence)


def divergence_order(view: ClaimView, target: str) -> Ruling:
    """Judge whose maps a random sentence changes most, and that it does not change those of +Rand Sents."""
    of = {"measure": "kl_random"}
    found = differences(view, target, ("thirty-shot", "abnormal"), of=of, unit="nats", above=0.0)
    unmoved = estimates(view, target, of, ["rand-sents"], unit="nats", within=0.005)
    return all_of([*found.evidence, *unmoved.evidence], found.remark) if found.evidence else found


def near_uniform(view: ClaimView, target: str) -> Ruling:
    """Judge whether the entropy of Retrained's maps is near ln(cells); report the variant with one softmax, too."""
    if absent := missing(view, "retrained"):
        return absent
    found = _entropy_share(view, "retrained")
    if found is None:
        return Ruling(UNKNOWN, remark=f"The number of cells of {view.name('retrained')}'s map is not known.")
    label = f"{view.name('retrained')}, share of the maximum entropy"
    remark = f"“Near” means above {100 * NEAR_UNIFORM:.0f} % of the maximum."
    other = "retrained-one-softmax"
    if (one_softmax := _entropy_share(view, other)) is not None:
        remark += f" With one softmax: {Evidence(view.name(other), one_softmax, UNKNOWN, 'percent').text}."
    return all_of([Evidence.judged(label, found, "percent", above=NEAR_UNIFORM)], remark)


def _entropy_share(view: ClaimView, variant: str) -> Estimate | None:
    """Return the mean entropy as a share of ln(cells); ``None`` where ``about.json`` does not give the grid."""
    model = view.model(variant)
    rows, columns = (model.about.get("grid") if model is not None else None) or (0, 0)
    cells = int(rows) * int(columns)
    return None if cells < 2 else view.mean(view.values(variant, None, "grid_entropy") / math.log(cells))


def iou_nearer_auroc(view: ClaimView, target: str) -> Ruling:
    """Judge whether IoU@10 % correlates more with AUROC than with average precision, for most variants."""
    view, evidence = view.of_one_seed(), []
    for variant in _rivals(view):
        columns = (view.values(variant, target, name) for name in ("iou@10", "auroc", "average_precision"))
        found = view.estimator.correlation_contrast(*columns)
        evidence.append(Evidence.judged(view.name(variant), found, "correlation", above=0.0))
    remark = (
        "Correlation of IoU@10 % with AUROC minus its correlation with average precision. “Generally” means for more "
        "than half of the variants."
    )
    return most_of(evidence, remark if evidence else _not_measured(view))
