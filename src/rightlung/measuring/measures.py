"""Measures by name: statistics of single instances, and how they become one number.

``statistics`` are computed once and kept in the instances table. ``aggregate`` makes a number of them from how often
each instance counts, so that a bootstrap resamples instances without computing anything again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import InputError, unknown_name
from rightlung.scoring.localisation import METRICS, score
from rightlung.scoring.recognition import SortedScores

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
"""Columns of the instances table, ``(instances,)`` each."""

Aggregate = Callable[[Columns, Floats], Floats]
"""From columns and counts ``(resamples, instances)`` to a number a resample ``(resamples,)``; NaN where undefined."""


@dataclass(frozen=True)
class MapsAndMasks:
    """Answers and targets of one size, ``(n, height, width)`` each: arrays, or tensors on a device."""

    maps: Any
    masks: Any
    workers: int | None = None


Statistics = Callable[[MapsAndMasks, Sequence[str]], Mapping[str, Any]]
"""From maps, masks and the names of measures to columns ``(n,)``, ``reason`` among them where one is undefined."""


@dataclass(frozen=True)
class Measure:
    """A measure. ``columns`` are those of the instances table that its aggregate needs."""

    name: str
    title: str
    meaning: str
    better: Literal["higher", "lower"] | None
    range: tuple[float, float]
    published: tuple[str, ...] = ()
    """Names that papers use."""
    needs: tuple[str, ...] = ("map", "mask")
    """What an answer and its target must have."""
    columns: tuple[str, ...] = ()
    statistics: Statistics | None = None
    """Computes the columns from maps and masks, for all measures that share it at once; None: any table has them."""
    aggregate: Aggregate | None = None
    """None: the mean of the first column over the instances where it is defined."""

    def of_counts(self, columns: Columns, counts: Floats) -> Floats:
        """Return the number for each row of counts ``(resamples, instances)``."""
        if self.aggregate is not None:
            return self.aggregate(columns, counts)
        values = np.asarray(columns[(self.columns or (self.name,))[0]], np.float64)
        there = ~np.isnan(values)
        total = counts[:, there].sum(axis=1)
        return _ratio(counts[:, there] @ values[there], total)

    def value(self, columns: Columns) -> float:
        """Return the number of all instances."""
        count = len(columns[(self.columns or (self.name,))[0]])
        return float(self.of_counts(columns, np.ones((1, count)))[0])


MEASURES: dict[str, Measure] = {}


def register_measure(measure: Measure) -> Measure:
    """Make a measure known by its name, once."""
    if measure.name in MEASURES:
        raise InputError(f"measure {measure.name!r} is already registered")
    MEASURES[measure.name] = measure
    return measure


def find_measure(name: str) -> Measure:
    """Return the measure of a name."""
    if name not in MEASURES:
        raise unknown_name("measure", name, MEASURES)
    return MEASURES[name]


def list_measures() -> list[Measure]:
    """Return all measures, in the order they were registered."""
    return list(MEASURES.values())


def localisation(pairs: MapsAndMasks, names: Sequence[str]) -> Mapping[str, Any]:
    """Score maps against masks by all of these measures at once."""
    return score(pairs.maps, pairs.masks, metrics=names, workers=pairs.workers)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)


def _abstention_auroc(columns: Columns, counts: Floats) -> Floats:
    """AUROC of abstention for telling negated phrases from asserted ones; phrases without a finding do not count."""
    abstention, polarity = np.asarray(columns["abstention"], np.float64), np.asarray(columns["polarity"])
    there = np.isin(polarity, ("positive", "uncertain", "negative")) & ~np.isnan(abstention)
    negated = (polarity[there] == "negative").astype(np.float64)
    return SortedScores(abstention[there], negated).auroc(counts[:, there])


def _over_findings(of_finding: Callable[[Floats, Floats, Floats], Floats]) -> Aggregate:
    """Return the mean over findings of what is computed from scores, labels and counts of one finding."""

    def aggregate(columns: Columns, counts: Floats) -> Floats:
        findings, labels = np.asarray(columns["target"]), np.asarray(columns["finding_label"], np.float64)
        scores = np.asarray(columns["finding_score"], np.float64)
        known = ~(np.isnan(labels) | np.isnan(scores))
        rows = [known & (findings == name) for name in sorted(set(findings[known].tolist()))]
        if not rows:
            return np.full(len(counts), np.nan)
        values = np.stack([of_finding(scores[row], labels[row], counts[:, row]) for row in rows])
        defined = ~np.isnan(values)
        return _ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0).astype(np.float64))

    return aggregate


def matthews(scores: Floats, labels: Floats, counts: Floats, threshold: float = 0.5) -> Floats:
    """Matthews correlation coefficient of scores from ``threshold`` on, ``(resamples,)``; NaN with one class only."""
    called = (scores >= threshold).astype(np.float64)
    hits, positives, calls = counts @ (called * labels), counts @ labels, counts @ called
    total = counts.sum(axis=1)
    spread = positives * (total - positives) * calls * (total - calls)
    return _ratio(total * hits - positives * calls, np.sqrt(spread))


_SHARES = (
    ("iou", "IoU", "Intersection over union of the target with the top {} % of the pixels.", ("IOU", "IoU")),
    ("precision", "precision", "Share of the top {} % of the pixels that lies in the target.", ("Precision", "Avg. P")),
    ("dice", "Dice", "Dice coefficient of the target with the top {} % of the pixels.", ("Dice", "F1")),
)
_LOCALISATION: dict[str, tuple[Any, ...]] = {
    "auroc": ("AUROC", "Chance that a pixel inside the target outscores one outside.", (0, 1), ("AUROC", "AUC")),
    "average_precision": ("average precision", "Area under the pixels' precision-recall curve.", (0, 1), ("AP", "AUPRC")),
    "pointing": ("pointing", "Share of the map's peak that lies in the target.", (0, 1), ("pointing game", "hit rate")),
    "cnr": (
        "contrast to noise", "Signed contrast-to-noise ratio between inside and outside.", (-math.inf, math.inf), ("CNR",)
    ),
    "mass_inside": ("mass inside", "Share of the map's mass that lies in the target.", (0, 1), ("attention mass",)),
    "miou": ("mIoU", "Mean IoU over the thresholds 0.1 to 0.5 of the map scaled to 0–1.", (0, 1), ("mIoU",)),
    "mdice": ("mDice", "Mean Dice over the thresholds 0.1 to 0.5 of the map scaled to 0–1.", (0, 1), ("mDice",)),
    **{
        f"{name}@{share}": (f"{title}@{share} %", meaning.format(share), (0, 1), tuple(f"{p}@{share}%" for p in names))
        for share in (5, 10, 30)
        for name, title, meaning, names in _SHARES
    },
}  # fmt: skip
_IN_THE_TABLE: dict[str, tuple[Any, ...]] = {
    "peak_on_side": ("peak on the finding's side", "Share of the peak on the target's side.", "higher", (0, 1), ()),
    "grid_entropy": ("entropy of the map on its own grid (nats)", "Entropy of the map as given.", None, (0, math.inf), ("Attn. entropy",)),
    "abstention": ("abstention", "How much the model declines to point.", None, (0, 1), ("No-Attn score",)),
    "similarity_global": ("similarity, whole image", "Similarity of image and text.", None, (-math.inf, math.inf), ()),
    "similarity_local": ("similarity, local", "Similarity of image regions and words.", None, (-math.inf, math.inf), ()),
    "moved_mass": ("map change", "Total variation from the map of the unchanged question.", None, (0, 1), ()),
    "moved_peak": ("peak displacement", "Distance from the peak of the unchanged question, in fractions of the image.", None, (0, math.sqrt(2)), ()),
    "kl_random": ("divergence from a random sentence (nats)", "Symmetric Kullback–Leibler divergence from the map of a random sentence.", None, (0, math.inf), ("KL",)),
}  # fmt: skip
_FINDINGS: dict[str, tuple[Any, ...]] = {
    "finding_auroc": ("AUROC", "AUROC of finding scores, mean over findings.", (0, 1), ("AUROC", "AUC"), lambda s, y, c: SortedScores(s, y).auroc(c)),
    "finding_average_precision": ("average precision", "Average precision of finding scores, mean over findings.", (0, 1), ("AUPRC", "AP", "mAP"), lambda s, y, c: SortedScores(s, y).average_precision(c)),
    "finding_mcc": ("MCC", "Matthews correlation of finding scores from 0.5 on, mean over findings.", (-1, 1), ("MCC",), matthews),
}  # fmt: skip

for _name in METRICS:
    if _name in _LOCALISATION:
        _title, _meaning, _range, _published = _LOCALISATION[_name]
        register_measure(Measure(_name, _title, _meaning, "higher", _range, _published, columns=(_name,), statistics=localisation))
    else:
        register_measure(Measure("entropy", "entropy (nats)", "Entropy of the map over the target's pixels.", None, (0, math.inf), columns=(_name,), statistics=localisation))
for _name, (_title, _meaning, _better, _range, _published) in _IN_THE_TABLE.items():
    register_measure(Measure(_name, _title, _meaning, _better, _range, _published, ("map",), (_name,)))
register_measure(
    Measure(
        "abstention_auroc", "AUROC of abstention", "AUROC of abstention for negated against asserted phrases.",
        "higher", (0, 1), needs=("abstention", "polarity"), columns=("abstention", "polarity"),
        aggregate=_abstention_auroc,
    )
)  # fmt: skip
for _name, (_title, _meaning, _range, _published, _of_finding) in _FINDINGS.items():
    register_measure(
        Measure(
            _name, _title, _meaning, "higher", _range, _published, ("finding scores", "image labels"),
            ("finding_score", "finding_label", "target"), aggregate=_over_findings(_of_finding),
        )
    )  # fmt: skip
