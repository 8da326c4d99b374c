"""Measures of predicted boxes: rows, statistics of each row, and how they become one number.

Detection is about whole images: an answer has boxes labelled with findings, and each finding of each image is a row.
Sentence grounding is about phrases: an answer has boxes for the phrase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box
from rightlung.lexicon.findings import canonical_finding
from rightlung.scoring.detection import (
    IOU_THRESHOLDS,
    SCORE_THRESHOLDS,
    Detections,
    match,
    mean_iou,
    mean_over_classes,
    pooled_iou,
    score,
    union_overlaps,
)

if TYPE_CHECKING:
    from rightlung.measuring.targets import StudyLabels

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

DETECTIONS = "detections"
"""Key of a row's predicted and target boxes, which do not go to the table."""
FINDING_BOXES = "finding boxes on the image"
"""Kind of target of detection."""
INTERSECTIONS, UNIONS = (
    tuple(f"box_{what}@{100 * threshold:g}" for threshold in SCORE_THRESHOLDS) for what in ("intersection", "union")
)


def detections_of(boxes: Sequence[Mapping[str, Any]], targets: Sequence[Sequence[float]]) -> Detections:
    """Return the boxes of an answer, as in a predictions file, with the corners of the targets."""
    predicted = [Box(*(one[corner] for corner in ("x0", "y0", "x1", "y1"))) for one in boxes]
    return Detections(predicted, [float(one["score"]) for one in boxes], [Box(*corners) for corners in targets])


def detection_rows(answer: Mapping[str, Any], labels: StudyLabels) -> Iterator[dict[str, Any]]:
    """Yield a row for each finding of an image that has a target or a predicted box.

    Boxes without a label are no detections; boxes of a finding that is not outlined are false positives.
    """
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in labels.boxes}
    for box in answer["boxes"] or ():
        if box["label"]:
            found.setdefault(canonical_finding(box["label"]), []).append(box)
    error = answer["error"]
    for name, boxes in found.items() if answer["boxes"] is not None or error is not None else ():
        row = {"target": name, "target_kind": FINDING_BOXES, "reason": "" if error is None else f"no answer: {error}"}
        targets = labels.boxes.get(name, ())
        yield row if error is not None else row | {DETECTIONS: detections_of(boxes, targets)}


def match_columns(detections: Sequence[Detections]) -> dict[str, list[Any]]:
    """Return the boxes' scores, the IoU thresholds at which each matches (one bit each), and the number of targets."""
    bits = 1 << np.arange(len(IOU_THRESHOLDS))
    return {
        "box_scores": [list(one.scores) for one in detections],
        "box_matches": [(matched @ bits).tolist() for matched in match(detections)],
        "box_targets": [float(len(one.targets)) for one in detections],
    }


def mean_average_precision(columns: Columns, counts: Floats, place: int | None = None) -> Floats:
    """Return mAP over findings and IoU thresholds, or at the threshold of that place, ``(resamples,)``."""
    targets = np.asarray(columns["box_targets"], np.float64)
    there = np.flatnonzero(~np.isnan(targets))
    if not len(there):
        return np.full(len(counts), np.nan)
    thresholds = np.arange(len(IOU_THRESHOLDS)) if place is None else np.array([place])
    bits = [np.asarray(columns["box_matches"][row], np.int64) for row in there]
    matched = [((one[:, None] >> thresholds) & 1).astype(bool) for one in bits]
    scores = [columns["box_scores"][row] for row in there]
    found = mean_over_classes(
        np.asarray(columns["target"])[there].tolist(), scores, matched, targets[there], counts[:, there]
    )
    return np.asarray(found.mean(axis=1))


def overlap_columns(detections: Sequence[Detections]) -> dict[str, list[float]]:
    """Return the areas of intersection and union at each box-score threshold."""
    areas = union_overlaps(detections)
    return {
        name: values.tolist()
        for names, area in zip((INTERSECTIONS, UNIONS), areas, strict=True)
        for name, values in zip(names, area.T, strict=True)
    }


def mean_overlap(columns: Columns, counts: Floats) -> Floats:
    """Return mIoU of phrases, ``(resamples,)`` (`mean_iou`)."""
    return mean_iou(*_overlaps(columns), counts)


def pooled_overlap(columns: Columns, counts: Floats) -> Floats:
    """Return mIoU of pooled areas, ``(resamples,)`` (`pooled_iou`)."""
    return pooled_iou(*_overlaps(columns), counts)


def _overlaps(columns: Columns) -> tuple[Floats, Floats]:
    """Return intersections and unions, (instances, thresholds); rows without boxes have empty unions."""
    intersections, unions = (np.stack([columns[name] for name in names], axis=1) for names in (INTERSECTIONS, UNIONS))
    return np.nan_to_num(intersections), np.nan_to_num(unions)


def sentence_columns(detections: Sequence[Detections]) -> dict[str, list[float]]:
    """Return the average precision of each phrase as a class of its own, averaged over IoU thresholds."""
    return {"sentence_map": score(detections, range(len(detections))).average_precision.mean(axis=1).tolist()}
