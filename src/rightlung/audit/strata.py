"""Strata and thresholds of the heatmaps of an audit: on which targets it works, and what a threshold is worth.

Strata use every phrase. Curves use a sample of the answers, whose maps are looked at once more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rightlung.core import Phrase, Polarity
from rightlung.core.files import plain_fields
from rightlung.lexicon.findings import find
from rightlung.measuring import PhraseTargets
from rightlung.measuring.answered import Answered
from rightlung.measuring.curves import RECALLS, THRESHOLDS, TOLERANCES, curves
from rightlung.measuring.maps import AnswerMap
from rightlung.measuring.readers import agreement
from rightlung.models.blind.prior import LocationPrior, fold_of
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.results.groups import HEADLINE
from rightlung.results.measured import Measured

MOST = 300
"""Answers to the unchanged question whose curves are drawn: the first."""
RESAMPLES = 1000
"""At most so many bootstrap resamples."""
FIXED = 0.5
"""The threshold that the best one is compared with."""
FOLDS, BINS, LEAST_BOXES = 5, 5, 20
MEASURES = HEADLINE[:2]
AT = {"iou": THRESHOLDS, "precision": RECALLS, "pointing": TOLERANCES}
_EACH = (*AT, "matched", "contours")
Series = Mapping[str, Sequence[Estimate]]
"""Estimates of the model and, where there is one, of the image-blind prior."""


@dataclass(frozen=True)
class Strata:
    """Everything in the appendix of the page, by model and prior."""

    groups: Mapping[str, Series]
    """By measure: the estimates for each of ``names``."""
    names: Sequence[str]
    curves: Mapping[str, Series] = field(default_factory=dict)
    """``iou``, ``precision`` and ``pointing``, at each place of `AT`."""
    thresholds: Series = field(default_factory=dict)
    """IoU at a fixed threshold, at the best one, at the best one of each phrase, and at the target's area."""
    gain: Comparison | None = None
    """IoU at the best threshold, chosen on other patients, minus that at the fixed one."""
    best: float = math.nan
    contours: Series = field(default_factory=dict)
    readers: Mapping[str, Estimate] = field(default_factory=dict)
    calibration: Sequence[tuple[float, Estimate]] = ()
    """Mean score and share of hits of boxes, in fifths by score."""
    sample: int = 0
    level: float = 0.95

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self, places=AT, fixed=FIXED)


def sampled(answers: Sequence[Answered], prior: LocationPrior | None) -> dict[str, list[Answered]]:
    """Return answers of the model, and the prior's to the same words."""
    found = {"model": [*answers]}
    if prior is not None:
        own = [one.phrase for one in found["model"]]
        words = [Phrase(one.text, findings=dict.fromkeys(one.findings, Polarity.POSITIVE)) for one in own]
        found["prior"] = []
        for one, asked in zip(found["model"], words, strict=True):
            heatmap = prior.map_of(asked, patient=one.phrase.patient)
            found["prior"].append(replace(one, answer=AnswerMap(heatmap.values, heatmap.extent.as_tuple())))
    return found


def strata(measured: Measured, answers: Mapping[str, Sequence[Answered]], settings: BootstrapSettings) -> Strata:
    """Return strata and curves; ``answers`` are the sampled ones of ``model`` and ``prior``."""
    settings = replace(settings, resamples=min(settings.resamples, RESAMPLES))
    names, flags = _flags(measured)
    estimator = measured.estimator(settings)
    slugs = [slug for slug in ("model", "prior") if measured.model(slug) is not None and flags]
    groups: dict[str, Series] = {}
    for name in MEASURES:
        values = {slug: measured.value(slug, name, measured.targets[0]) for slug in slugs}
        groups[name] = {slug: estimator.means([np.where(one, values[slug], np.nan) for one in flags]) for slug in slugs}
    phrases = [one.phrase for one in answers["model"]]
    if not phrases:
        return Strata(groups, names)
    found = {slug: [*curves(some).values()] for slug, some in answers.items()}
    over = Estimator([one.patient for one in phrases], settings)
    columns = {slug: {name: np.stack([one[name] for one in some]) for name in _EACH} for slug, some in found.items()}
    drawn = {name: {slug: over.means([*one[name].T]) for slug, one in columns.items()} for name in (*AT, "contours")}
    picked = {slug: _at_thresholds(one["iou"], one["matched"], phrases) for slug, one in columns.items()}
    readers = np.array([agreement(one.readers) for one in phrases])
    ceiling = {}
    if np.isfinite(readers).any():
        matched = {slug: np.where(np.isnan(readers), np.nan, one["matched"][:, 0]) for slug, one in columns.items()}
        ceiling = {"readers with each other": over.mean(readers)} | {
            slug: over.mean(one) for slug, one in matched.items()
        }
    best = int(np.nan_to_num(np.array([one.value for one in drawn["iou"]["model"]])).argmax())
    return Strata(
        groups, names, {name: drawn[name] for name in AT},
        {slug: over.means(some) for slug, some in picked.items()},
        over.difference(picked["model"][1], picked["model"][0]), THRESHOLDS[best], drawn["contours"], ceiling,
        _calibration(found["model"], [one.patient for one in phrases], settings), len(phrases), settings.level,
    )  # fmt: skip


def _flags(measured: Measured) -> tuple[list[str], list[Flags]]:
    """Return the names of the strata and which phrases are in them; empty ones are left out."""
    target = measured.targets[0]
    there = measured.has(target) & measured.asked("model")
    found: dict[str, Flags] = {}
    for what in ("area", "extent"):
        values = measured.fact(f"target_{what}", target)
        known = values[there & ~np.isnan(values)]
        ends = [-np.inf, *np.quantile(known, [1 / 3, 2 / 3]), np.inf] if len(known) else []
        for third, (low, high) in zip(("smallest", "middle", "largest"), pairwise(ends), strict=False):
            found[f"{what}: {third} third"] = there & (values > low) & (values <= high)
    parts = measured.fact("target_boxes")
    found |= {"one box": there & (parts == 1), "several boxes": there & (parts > 1)}
    told = [[] if names is None else names for names in measured.fact("findings")]
    spreads = [{known.spread for name in names if (known := find(name)) is not None} for names in told]
    for spread in ("focal", "diffuse"):
        found[f"{spread} findings"] = there & np.array([one == {spread} for one in spreads], bool)
    kept = {name: flags for name, flags in found.items() if flags.any()}
    return [f"{name} ({int(flags.sum()):,})" for name, flags in kept.items()], [*kept.values()]


def _at_thresholds(iou: Floats, matched: Floats, phrases: Sequence[PhraseTargets]) -> list[Floats]:
    """Return IoU at the fixed threshold, at one chosen on other patients, at that of each phrase, and at equal area."""
    fold = np.array([fold_of(one.patient, FOLDS) for one in phrases])
    chosen = np.full(len(iou), np.nan)
    for number in np.unique(fold):
        others = iou[fold != number] if (fold != number).any() else iou
        best = int(np.nan_to_num(np.nanmean(others, axis=0)).argmax()) if not np.isnan(others).all() else 0
        chosen[fold == number] = iou[fold == number, best]
    oracle = np.where(np.isnan(iou).all(axis=1), np.nan, np.nan_to_num(iou, nan=-1).max(axis=1))
    return [iou[:, THRESHOLDS.index(FIXED)], chosen, oracle, matched[:, 0]]


def _calibration(
    found: Sequence[Mapping[str, Floats]], patients: Sequence[str], settings: BootstrapSettings
) -> list[tuple[float, Estimate]]:
    """Return mean score and share of hits of boxes in fifths by score; none if scores are not between 0 and 1."""
    scores, hits = (np.concatenate([np.zeros(0), *(one[name] for one in found)]) for name in ("scores", "hits"))
    owners = [patient for patient, one in zip(patients, found, strict=True) for _ in one["scores"]]
    if len(scores) < LEAST_BOXES or scores.min() < 0 or scores.max() > 1:
        return []
    bins = np.array_split(np.argsort(scores, kind="stable"), BINS)
    columns = []
    for places in bins:
        columns.append(np.full(len(scores), np.nan))
        columns[-1][places] = hits[places]
    return [(float(scores[p].mean()), e) for p, e in zip(bins, Estimator(owners, settings).means(columns), strict=True)]
