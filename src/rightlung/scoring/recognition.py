"""Scores of image-level labels: AUROC, average precision, accuracy and F1, with unknown labels left out.

A label is 1 (positive), 0 (negative) or NaN (unknown); decide what "uncertain" becomes beforehand. Definitions and ties
are scikit-learn's; a score at the threshold counts as positive. Undefined numbers are NaN with a reason, where
scikit-learn returns 0 or 1: AUROC and average precision need both classes, F1 a positive, accuracy a known pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, check_known
from rightlung.core.files import plain
from rightlung.scoring.statistics.bootstrap import bootstrap, bootstrap_by_counts
from rightlung.scoring.statistics.inputs import Clusters, FloatArray, as_numbers, cluster_index
from rightlung.scoring.statistics.intervals import Interval, Options

Metric = Literal["auroc", "average_precision", "accuracy", "f1"]
METRICS: tuple[Metric, ...] = ("auroc", "average_precision", "accuracy", "f1")


@dataclass(frozen=True)
class Averages:
    """One metric averaged over several labels."""

    micro: float
    """All known (image, label) pairs pooled."""
    macro: float
    """Mean over the labels for which the metric is defined."""
    weighted: float
    """Mean over those labels, weighted by their positives."""
    labels: int
    """Number of labels in ``macro`` and ``weighted``."""
    reason: str | None = None
    """Why an average is NaN, or which labels are left out."""


@dataclass(frozen=True)
class Recognition:
    """Scores of each label, (labels,) arrays in the order of ``names``, and their averages."""

    names: tuple[str, ...]
    thresholds: FloatArray
    auroc: FloatArray
    average_precision: FloatArray
    accuracy: FloatArray
    f1: FloatArray
    positives: NDArray[np.intp]
    negatives: NDArray[np.intp]
    unknown: NDArray[np.intp]
    averages: dict[Metric, Averages]
    groups: dict[str, dict[Metric, Averages]] = field(default_factory=dict)
    """The same averages over named sets of labels."""
    reasons: dict[str, dict[Metric, str]] = field(default_factory=dict)
    """Why metrics are NaN, by label."""

    def named(self, name: str) -> dict[str, float | int]:
        """Return all numbers of one label."""
        check_known("label", name, self.names)
        place = self.names.index(name)
        result: dict[str, float | int] = {metric: float(getattr(self, metric)[place]) for metric in METRICS}
        result["threshold"] = float(self.thresholds[place])
        return result | {part: int(getattr(self, part)[place]) for part in ("positives", "negatives", "unknown")}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None."""
        parts = {name: value for name, value in asdict(self).items() if name in ("averages", "groups", "reasons")}
        return cast(dict[str, Any], plain({"labels": {name: self.named(name) for name in self.names}} | parts))


def score(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    threshold: float | ArrayLike = 0.5,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> Recognition:
    """Score predictions against labels.

    ``scores`` and ``labels`` are (images, labels), or (images,) for one label; ``threshold`` is one number or one per
    label. ``groups`` names further sets of labels to average over.

    >>> unknown = float("nan")
    >>> scores, labels = [[0.9, 0.2], [0.4, 0.7], [0.6, 0.1]], [[1, 0], [0, 1], [0, unknown]]
    >>> result = score(scores, labels, names=["edema", "mass"])
    >>> result.auroc.tolist(), result.averages["f1"].macro.__round__(3)
    ([1.0, 1.0], 0.833)
    """
    values, truth, label_names = _checked(scores, labels, names)
    thresholds = _checked_thresholds(threshold, len(label_names))
    known = ~np.isnan(truth)
    called = values >= thresholds
    columns = [(values[known[:, k], k], truth[known[:, k], k], called[known[:, k], k]) for k in range(len(label_names))]
    measured = [_measure(*column) for column in columns]
    per_label = {metric: np.array([numbers[metric] for numbers, _ in measured]) for metric in METRICS}
    positives = np.array([int(column[1].sum()) for column in columns], dtype=np.intp)
    known_pairs = known.sum(axis=0)

    def averages(chosen: list[int]) -> dict[Metric, Averages]:
        pooled, why = _measure(*(np.concatenate([columns[k][part] for k in chosen]) for part in range(3)))
        names = [label_names[k] for k in chosen]
        return {
            metric: _average(per_label[metric][chosen], positives[chosen], names, pooled[metric], why.get(metric))
            for metric in METRICS
        }

    return Recognition(
        names=label_names,
        thresholds=thresholds,
        positives=positives,
        negatives=known_pairs - positives,
        unknown=len(truth) - known_pairs,
        averages=averages(list(range(len(label_names)))),
        groups={group: averages(_places(group, chosen, label_names)) for group, chosen in (groups or {}).items()},
        reasons={name: reasons for name, (_, reasons) in zip(label_names, measured, strict=True) if reasons},
        **per_label,
    )


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the AUROC of one label, (images,) each; NaN unless both classes are known.

    >>> auroc([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    0.875
    """
    values, truth, _ = _known(scores, labels)
    return float(SortedScores(values, truth).auroc(np.ones((1, len(values))))[0])


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the average precision of one label, (images,) each; NaN unless both classes are known.

    >>> average_precision([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1]).__round__(4)
    0.8333
    """
    values, truth, _ = _known(scores, labels)
    return float(SortedScores(values, truth).average_precision(np.ones((1, len(values))))[0])


def interval(
    scores: ArrayLike,
    labels: ArrayLike,
    metric: Metric = "auroc",
    *,
    threshold: float = 0.5,
    clusters: Clusters | None = None,
    **options: Unpack[Options],
) -> Interval:
    """Return the bootstrap interval of one metric of one label, (images,) each.

    Pass the patients as ``clusters``. Images with an unknown label are left out and counted as undefined.
    """
    check_known("metric", metric, METRICS)
    value, positive, known = _known(scores, labels)
    called = value >= _checked_thresholds(threshold, 1)[0]
    kept = None if clusters is None else cluster_index(clusters, len(known))[known]
    if metric == "accuracy":
        result = bootstrap((called == (positive > 0)).astype(np.float64), clusters=kept, **options)
    else:
        ordered = SortedScores(value, positive)
        of_counts = partial(_f1, positive=positive, called=called) if metric == "f1" else getattr(ordered, metric)
        result = bootstrap_by_counts(of_counts, len(value), clusters=kept, **options)
    numbers, reasons = _measure(value, positive, called)
    undefined = len(known) - len(value)
    # The metric's own reason says more than the bootstrap's.
    reason = reasons.get(metric, result.reason) if math.isnan(numbers[metric]) else result.reason
    return replace(result, undefined=undefined, reason=reason)


def one_of_classes(scores: FloatArray, truth: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return accuracy and macro-F1 (rows,) of the class with the highest score, for counts (rows, images).

    ``scores`` and ``truth`` are (images, classes); each image has one true class. Tied classes share the call. A class
    that is not drawn is left out of the macro average.

    >>> scores, truth = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([[1, 0], [0, 1], [0, 1]])
    >>> [float(one[0].round(4)) for one in one_of_classes(scores, truth, np.ones((1, 3)))]
    [0.6667, 0.6667]
    """
    best = scores == scores.max(axis=1, keepdims=True)
    called = best / best.sum(axis=1, keepdims=True)
    hits, true, calls = (counts @ part for part in (called * truth, truth, called))
    total = counts.sum(axis=1)
    f1 = _ratio(2 * hits, true + calls, true > 0)
    drawn = (true > 0).sum(axis=1)
    accuracy = _ratio(hits.sum(axis=1), total, total > 0)
    return accuracy, _ratio(np.nansum(f1, axis=1), drawn.astype(np.float64), drawn > 0)


class SortedScores:
    """Scores of one label, sorted once, for any counts of how often each image is drawn."""

    def __init__(self, scores: FloatArray, labels: FloatArray) -> None:
        self.order = np.argsort(-scores, kind="stable")
        ordered = scores[self.order]
        changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self.starts = np.concatenate([[0], changes]).astype(np.intp)
        self.positive = labels[self.order]

    def _tied(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the positives and negatives at each distinct score, highest first: (rows, distinct scores)."""
        ordered = counts[:, self.order]
        if len(self.starts) >= ordered.shape[1]:  # no ties
            positives = ordered * self.positive
            return positives, ordered - positives
        positives = np.add.reduceat(ordered * self.positive, self.starts, axis=1)
        return positives, np.add.reduceat(ordered, self.starts, axis=1) - positives

    def auroc(self, counts: FloatArray) -> FloatArray:
        """Return AUROC (rows,) for counts (rows, images)."""
        positives, negatives = self._tied(counts)
        above = np.cumsum(positives, axis=1) - positives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        return _ratio(np.einsum("rg,rg->r", above, negatives), pairs, pairs > 0)

    def average_precision(self, counts: FloatArray) -> FloatArray:
        """Return average precision (rows,) for counts (rows, images)."""
        positives, negatives = self._tied(counts)
        taken = np.cumsum(positives + negatives, axis=1)
        precision = np.cumsum(positives, axis=1) / np.maximum(taken, 1.0)
        total = positives.sum(axis=1)
        both = (total > 0) & (negatives.sum(axis=1) > 0)
        return _ratio(np.einsum("rg,rg->r", positives, precision), total, both)


def _f1(counts: FloatArray, positive: FloatArray, called: NDArray[np.bool_]) -> FloatArray:
    """Return F1 = 2 TP / (positives + calls) (rows,) for counts (rows, images); NaN without positives."""
    calls = called.astype(np.float64)
    hits, positives, called_count = (np.einsum("ri,i->r", counts, part) for part in (positive * calls, positive, calls))
    return _ratio(2 * hits, positives + called_count, positives > 0)


def _ratio(numerator: FloatArray, denominator: FloatArray, defined: NDArray[np.bool_]) -> FloatArray:
    return np.where(defined, numerator / np.where(defined, denominator, 1.0), np.nan)


def _measure(
    scores: FloatArray, labels: FloatArray, called: NDArray[np.bool_]
) -> tuple[dict[Metric, float], dict[Metric, str]]:
    """Return all metrics of one label without unknowns, and why some are undefined."""
    once = np.ones((1, len(scores)))
    ordered = SortedScores(scores, labels)
    numbers: dict[Metric, float] = {
        "auroc": float(ordered.auroc(once)[0]),
        "average_precision": float(ordered.average_precision(once)[0]),
        "accuracy": float((called == (labels > 0)).mean()) if len(labels) else math.nan,
        "f1": float(_f1(once, labels, called)[0]),
    }
    why = "no label is known"
    if len(labels):
        why = f"all {len(labels)} known labels are {'positive' if labels[0] else 'negative'}"
    return numbers, {metric: why for metric, number in numbers.items() if math.isnan(number)}


def _average(
    numbers: FloatArray, positives: NDArray[np.intp], names: list[str], pooled: float, pooled_reason: str | None
) -> Averages:
    defined = ~np.isnan(numbers)
    support = positives[defined]
    reasons = [f"pooled, {pooled_reason}"] if pooled_reason else []
    if not defined.any():
        reasons.insert(0, "it is undefined for every label")
    elif not support.any():
        reasons.insert(0, "no label has a positive to weigh it by")
    if defined.any() and not defined.all():
        missing = [name for name, there in zip(names, defined, strict=True) if not there]
        reasons.insert(0, f"without {', '.join(missing)}, where it is undefined")
    return Averages(
        micro=pooled,
        macro=float(numbers[defined].mean()) if defined.any() else math.nan,
        weighted=float(np.average(numbers[defined], weights=support)) if support.any() else math.nan,
        labels=int(defined.sum()),
        reason="; ".join(reasons) or None,
    )


def _checked(
    scores: ArrayLike, labels: ArrayLike, names: Sequence[str] | None
) -> tuple[FloatArray, FloatArray, tuple[str, ...]]:
    """Return scores and labels as (images, labels), and the label names; errors name the position."""
    values, truth = (as_numbers(*part) for part in (("scores", scores), ("labels", labels)))
    if values.shape != truth.shape:
        raise InputError(f"scores have the shape {values.shape} and labels {truth.shape}; they must be the same")
    if values.ndim == 1:
        values, truth = values[:, None], truth[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise InputError(f"scores must be (images, labels) or (images,), not the shape {values.shape}")
    if isinstance(names, str):
        raise InputError(f"names must be a list with one name for each label, not the single text {names!r}")
    label_names = tuple(f"label {k}" for k in range(values.shape[1])) if names is None else tuple(names)
    if len(label_names) != values.shape[1]:
        raise InputError(f"{len(label_names)} names were given for {values.shape[1]} labels")
    if repeated := next((name for name in label_names if label_names.count(name) > 1), None):
        raise InputError(f"the label name {repeated!r} is given more than once")
    for row, column in np.argwhere(~np.isfinite(values)):
        where = f"image {row}, label {label_names[column]!r}"
        raise InputError(f"the score of {where} is {values[row, column]}; a score must be a finite number")
    for row, column in np.argwhere(~(np.isnan(truth) | (truth == 0) | (truth == 1))):
        where = f"image {row}, label {label_names[column]!r}"
        raise InputError(f"the label of {where} is {truth[row, column]:g}; it must be 1, 0, or NaN for unknown")
    return values, truth, label_names


def _known(scores: ArrayLike, labels: ArrayLike) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return scores and labels of the images whose label is known, and which images these are."""
    for name, given in (("scores", scores), ("labels", labels)):
        if np.ndim(as_numbers(name, given)) != 1:
            raise InputError(f"{name} must be (images,) for one label, not the shape {np.shape(given)}")
    values, truth, _ = _checked(scores, labels, None)
    known = ~np.isnan(truth[:, 0])
    return values[known, 0], truth[known, 0], known


def _checked_thresholds(threshold: float | ArrayLike, labels: int) -> FloatArray:
    thresholds = as_numbers("threshold", threshold)
    if thresholds.shape not in ((), (labels,)):
        raise InputError(f"threshold must be one number or {labels}, one per label; got shape {thresholds.shape}")
    if np.isnan(thresholds).any():
        raise InputError("threshold is NaN; it must be a number")
    return np.broadcast_to(thresholds, (labels,)).copy()


def _places(group: str, chosen: Sequence[str], names: tuple[str, ...]) -> list[int]:
    if isinstance(chosen, str) or not len(chosen):
        raise InputError(f"the group {group!r} must list at least one label name, not {chosen!r}")
    for name in chosen:
        check_known(f"label in the group {group!r}", name, names)
    return sorted({names.index(name) for name in chosen})
