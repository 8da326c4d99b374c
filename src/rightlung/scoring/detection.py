"""Scores of predicted boxes: average precision, and IoU of unions of boxes (ChEX, supp. D.4, "Metrics and Evaluation").

All scores come from statistics of single instances, computed once: which boxes match a target, and the overlap of the
boxes' union with the targets' union. A bootstrap passes how often each instance was drawn and computes neither again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box, union_overlap
from rightlung.core.errors import InputError
from rightlung.scoring.statistics.inputs import FloatArray

IOU_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""IoU from which a box matches a target; mAP averages over them."""
SCORE_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Box scores from which a box belongs to the answer; mIoU averages over them."""
_RECALLS = np.linspace(0.0, 1.0, 101)  # COCO's points of the precision-recall curve
_ROWS_AT_ONCE = 256

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Detections:
    """Predicted boxes with their scores, and target boxes: of one class in one image, or of one sentence."""

    boxes: Sequence[Box]
    scores: Sequence[float]
    targets: Sequence[Box]

    def __post_init__(self) -> None:
        if len(self.boxes) != len(self.scores):
            raise InputError(f"{len(self.boxes)} boxes have {len(self.scores)} scores; each box needs one")
        if not np.isfinite(np.asarray(self.scores, np.float64)).all():
            raise InputError(f"a box score must be a finite number; got {list(self.scores)}")


@dataclass(frozen=True)
class DetectionScores:
    """Average precision of each class and IoU threshold, and its means over classes that have a target."""

    classes: tuple[Hashable, ...]
    thresholds: tuple[float, ...]
    average_precision: FloatArray
    """(classes, thresholds); NaN for a class without a target."""

    @property
    def by_threshold(self) -> FloatArray:
        """The mean over classes at each IoU threshold, (thresholds,)."""
        return _defined_mean(self.average_precision.T)

    @property
    def map(self) -> float:
        """The mean over classes and thresholds."""
        return float(_defined_mean(self.by_threshold[None])[0])


def match(detections: Sequence[Detections], thresholds: Sequence[float] = IOU_THRESHOLDS) -> list[BoolArray]:
    """Return which boxes match a target at each IoU threshold, (boxes, thresholds) for each instance.

    Matching is COCO's, by faster-coco-eval: from the highest score down, each box takes the free target with the
    highest IoU. There is no limit on the number of boxes.
    """
    found = [np.zeros((len(one.boxes), len(thresholds)), bool) for one in detections]
    compared = [place for place, one in enumerate(detections) if len(one.boxes) and len(one.targets)]
    some, ends = [detections[place] for place in compared], np.cumsum([len(found[place]) for place in compared])
    for column, threshold in enumerate(thresholds if compared else ()):
        matched = np.zeros(ends[-1], bool)
        matched[_matched(some, threshold)] = True
        for place, own in zip(compared, np.split(matched, ends[:-1]), strict=True):
            found[place][:, column] = own
    return found


def _matched(detections: Sequence[Detections], threshold: float) -> list[int]:
    """Return the positions of the matched boxes among all boxes.

    Boxes match within one class of one image only, so that each instance can be an "image" of a single class.
    """
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError:
        raise InputError("average precision of boxes needs faster-coco-eval: pip install faster-coco-eval") from None
    kept = list(enumerate(detections, start=1))
    targets = [{**_entry(number, box), "area": box.area, "iscrowd": 0} for number, one in kept for box in one.targets]
    boxes = [
        {**_entry(number, box), "score": float(score)}
        for number, one in kept
        for box, score in zip(one.boxes, one.scores, strict=True)
    ]
    images = [{"id": number, "width": 1, "height": 1} for number, _ in kept]
    annotations = [one | {"id": place} for place, one in enumerate(targets, start=1)]
    truth = COCO({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "box"}]})
    evaluation = COCOeval_faster(truth, truth.loadRes(boxes), "bbox", print_function=lambda *_: None)
    evaluation.params.iouThrs, evaluation.params.maxDets = (
        np.array([threshold]),
        [max(len(one.boxes) for one in detections)],
    )
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 1e10]], ["all"]
    evaluation.evaluate()
    evaluation.accumulate()
    # Keys are "<box>_<target>"; boxes are numbered from 1 in the order given.
    return [int(pair.split("_")[0]) - 1 for pair in evaluation.eval["matched"]]


def _entry(image: int, box: Box) -> dict[str, Any]:
    return {"image_id": image, "category_id": 1, "bbox": [box.x0, box.y0, box.width, box.height]}


class SortedDetections:
    """The boxes of one class, sorted by score once, for any counts of how often each instance is drawn.

    ``scores`` and ``matched`` hold the boxes of each instance, (boxes,) and (boxes, thresholds); ``targets`` is the
    number of targets of each instance.
    """

    def __init__(self, scores: Sequence[Any], matched: Sequence[BoolArray], targets: FloatArray) -> None:
        values = np.concatenate([np.asarray(one, np.float64) for one in scores])
        order = np.argsort(-values, kind="stable")
        self.owners = np.repeat(np.arange(len(scores)), [len(one) for one in scores])[order]
        self.matched = np.concatenate(matched)[order].astype(np.float64)
        self.targets = np.asarray(targets, np.float64)

    def average_precision(self, counts: FloatArray) -> FloatArray:
        """Return COCO's 101-point average precision, (rows, thresholds), for counts (rows, instances).

        An instance that is drawn twice counts as two equal images. NaN without a target, 0 without a box.
        """
        parts = [self._of_rows(counts[at : at + _ROWS_AT_ONCE]) for at in range(0, len(counts), _ROWS_AT_ONCE)]
        return np.concatenate(parts)

    def _of_rows(self, counts: FloatArray) -> FloatArray:
        positives = np.einsum("ri,i->r", counts, self.targets)
        found = np.full((len(counts), self.matched.shape[1]), np.nan)
        found[positives > 0] = 0.0
        if not len(self.owners):
            return found
        drawn = counts[:, self.owners]
        taken = np.maximum(np.cumsum(drawn, axis=1), 1.0)
        for threshold, matched in enumerate(self.matched.T):
            hits = np.cumsum(drawn * matched, axis=1)
            best = np.maximum.accumulate((hits / taken)[:, ::-1], axis=1)[:, ::-1]
            for row in np.flatnonzero(positives > 0):
                places = np.searchsorted(hits[row] / positives[row], _RECALLS)
                reached = places[places < len(self.owners)]
                found[row, threshold] = best[row, reached].sum() / len(_RECALLS)
        return found


def score(
    detections: Sequence[Detections], classes: Sequence[Hashable], thresholds: Sequence[float] = IOU_THRESHOLDS
) -> DetectionScores:
    """Return the average precision of each class; ``classes`` has the class of each instance.

    Pass the position of each sentence as its class to score sentence grounding.

    >>> left, right = Box(0.5, 0, 1, 1), Box(0, 0, 0.5, 1)
    >>> one = Detections([right, left], [0.9, 0.6], [left])
    >>> score([one, Detections([], [], [])], ["effusion", "edema"]).average_precision[:, 0].tolist()
    [0.5, nan]
    """
    if len(classes) != len(detections):
        raise InputError(f"{len(detections)} instances have {len(classes)} classes; each needs one")
    found = precision_by_class(
        classes, [one.scores for one in detections], match(detections, thresholds),
        np.array([len(one.targets) for one in detections], np.float64), np.ones((1, len(detections))),
    )  # fmt: skip
    values = np.concatenate([np.zeros((0, len(thresholds))), *found.values()])
    return DetectionScores(tuple(found), tuple(thresholds), values)


def precision_by_class(
    classes: Sequence[Hashable], scores: Sequence[Any], matched: Sequence[BoolArray], targets: FloatArray,
    counts: FloatArray,
) -> dict[Hashable, FloatArray]:  # fmt: skip
    """Return the average precision of each class, (rows, thresholds), for counts (rows, instances)."""
    members: dict[Hashable, list[int]] = {}
    for place, name in enumerate(classes):
        members.setdefault(name, []).append(place)
    found = {}
    for name, places in members.items():
        some = SortedDetections([scores[p] for p in places], [matched[p] for p in places], targets[places])
        found[name] = some.average_precision(counts[:, places])
    return found


def mean_over_classes(
    classes: Sequence[str], scores: Sequence[Any], matched: Sequence[BoolArray], targets: FloatArray, counts: FloatArray
) -> FloatArray:
    """Return average precision averaged over classes, (rows, thresholds), for counts (rows, instances)."""
    found = precision_by_class(classes, scores, matched, targets, counts)
    return _defined_mean(np.stack([found[name] for name in sorted(set(classes))], axis=-1))


def union_overlaps(
    detections: Sequence[Detections], thresholds: Sequence[float] = SCORE_THRESHOLDS
) -> tuple[FloatArray, FloatArray]:
    """Return the areas of intersections and unions, (instances, thresholds) each, in fractions of the image.

    At each threshold, the union of the boxes that score at least so much is compared with the union of the targets.
    Areas are exact: the plane is cut along the edges of the boxes, nothing is painted on pixels.
    """
    areas = np.zeros((2, len(detections), len(thresholds)))
    for number, one in enumerate(detections):
        known: dict[int, tuple[float, float]] = {}  # by number of boxes: most thresholds select the same ones
        ranked = sorted(zip(one.scores, one.boxes, strict=True), key=lambda pair: -pair[0])
        for place, threshold in enumerate(thresholds):
            selected = [box for value, box in ranked if value >= threshold]
            if len(selected) not in known:
                known[len(selected)] = union_overlap(selected, one.targets)
            areas[:, number, place] = known[len(selected)]
    return areas[0], areas[1]


def mean_iou(intersections: FloatArray, unions: FloatArray, counts: FloatArray) -> FloatArray:
    """Return mIoU as the ChEX paper defines it, (rows,): IoU of each sentence, averaged over sentences and thresholds.

    A sentence without target and answer at a threshold (an empty union) is left out there.
    """
    there = (unions > 0).astype(np.float64)
    values = np.where(there > 0, intersections / np.where(there > 0, unions, 1.0), 0.0)
    return _mean_ratio(values, there, counts)


def pooled_iou(intersections: FloatArray, unions: FloatArray, counts: FloatArray) -> FloatArray:
    """Return mIoU as the ChEX code computes it, (rows,): intersections and unions are summed over all sentences first.

    Sentences with large targets count more than in `mean_iou`.
    """
    return _mean_ratio(intersections, unions, counts)


def _mean_ratio(numerators: FloatArray, denominators: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the ratio of sums at each threshold, averaged over thresholds."""
    above, below = (np.einsum("ri,it->rt", counts, part) for part in (numerators, denominators))
    return _defined_mean(np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan))


def _defined_mean(values: FloatArray) -> FloatArray:
    """Return the mean of the defined values along the last axis; NaN if there is none."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=-1)
    return np.where(count > 0, np.where(defined, values, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)
