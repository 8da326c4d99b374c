"""Rescore boxes: overlap with the targets of phrases, and average precision by findings or phrases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rightlung.core import ScoredBox
from rightlung.diagnosis.conventions import Choices
from rightlung.diagnosis.means import Floats, Groups, Statistic, pooled
from rightlung.measuring import BoxSettings
from rightlung.measuring.answered import Answered
from rightlung.measuring.boxes import DETECTIONS, detection_rows, detections_of
from rightlung.measuring.targets import StudyLabels
from rightlung.scoring.detection import SCORE_THRESHOLDS, Detections, SortedDetections, match, union_overlaps

SETTINGS = {"nms": BoxSettings(nms=0.25), "all": BoxSettings(), "merged": BoxSettings(merge=True)}
IOUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
RANGES = {"0.1 to 0.7": (*IOUS[:5], 0.6, 0.7), "0.5 to 0.95": IOUS[4:]}


def _set(one: Detections, boxes: str, ranked: bool = True) -> Detections:
    """Return detections with post-processed boxes; not ``ranked``, they keep the order of the answer as their rank."""
    scored = [ScoredBox(box, float(score)) for box, score in zip(one.boxes, one.scores, strict=True)]
    kept = SETTINGS[boxes].apply(scored) if scored else []
    if not ranked:
        order = {one.box: -place for place, one in enumerate(scored)}
        kept = [replace(one, score=float(order.get(one.box, 0))) for one in kept]
    return Detections([one.box for one in kept], [one.score for one in kept], one.targets)


def of_phrases(answers: Iterable[Answered]) -> list[tuple[Any, Detections]]:
    """Return the boxes of answers to phrases, with those of the targets."""
    return [
        (one.phrase, detections_of(one.answer.boxes, one.phrase.boxes))
        for one in answers
        if one.answer.boxes is not None and one.phrase.boxes
    ]


class BoxOverlap:
    """The overlap of the boxes of phrases by any convention of its family."""

    def __init__(self, rows: Sequence[tuple[Any, Detections]]) -> None:
        self.groups, self.patients = Groups([phrase for phrase, _ in rows]), [phrase.patient for phrase, _ in rows]
        self._given = [one for _, one in rows]
        self._areas = cache(self._areas_by)

    def statistic(self, choice: Choices) -> Statistic:
        """Return the number by a convention, as a function of counts."""
        inter, union, pairs, silent = self._areas(choice["boxes"], choice["chosen"], choice["ties"])
        above, below = {"dice": (2 * inter, inter + union)}.get(choice["overlap"], (inter, union))
        if choice["no box"] == "left out":
            below = np.where(silent, np.nan, below)
        if choice["averaging"] == "pooled" and choice["overlap"] in ("iou", "dice"):
            return pooled(above, below)
        ratios = above / below
        if choice["overlap"] == "pairs":
            ratios = np.where(np.isnan(below), np.nan, pairs)
        if choice["overlap"] == "hits":
            ratios = np.where(np.isnan(ratios), np.nan, ratios >= 0.5)
        there = ~np.isnan(ratios)
        values = np.where(
            there.any(axis=1), np.nan_to_num(ratios).sum(axis=1) / np.maximum(there.sum(axis=1), 1), np.nan
        )
        return self.groups.mean(values, {"pooled": "phrases"}.get(choice["averaging"], choice["averaging"]))

    def _areas_by(self, boxes: str, chosen: str, ties: str) -> tuple[Floats, Floats, Floats, Any]:
        """Return intersections, unions, mean IoU of pairs, and whether no box is chosen: (instances, thresholds)."""
        some = [_set(one, boxes) for one in self._given]
        levels = {"0.1 to 0.5": SCORE_THRESHOLDS, "all": (-np.inf,), "best": (-np.inf,)}.get(chosen)
        levels = levels or (float(chosen),)
        if ties == "strict":
            levels = tuple(float(np.nextafter(level, np.inf)) for level in levels)
        if chosen == "best":
            best = [max(range(len(one.boxes)), key=lambda n: one.scores[n], default=-1) for one in some]
            some = [
                Detections([one.boxes[n]], [one.scores[n]], one.targets) if n >= 0 else one
                for one, n in zip(some, best, strict=True)
            ]
        inter, union = union_overlaps(some, levels)
        pairs, silent = np.zeros(inter.shape), np.zeros(inter.shape, bool)
        for row, one in enumerate(some):
            ious = np.array([[box.iou(target) for target in one.targets] for box in one.boxes]).reshape(
                -1, len(one.targets)
            )
            for place, level in enumerate(levels):
                kept = np.array([value >= level for value in one.scores], bool)
                silent[row, place] = not kept.any()
                pairs[row, place] = ious[kept].mean() if kept.any() else 0.0
        return inter, union, pairs, silent


def of_images(rows: Iterable[tuple[Mapping[str, Any], StudyLabels]]) -> list[tuple[str, str, Detections]]:
    """Return patient, finding and boxes for each finding of each image that has a target or a predicted box."""
    return [
        (labels.patient, row["target"], row[DETECTIONS])
        for answer, labels in rows
        for row in detection_rows(answer, labels)
        if DETECTIONS in row
    ]


class Precision:
    """Average precision of boxes by any convention of its family; each instance has a patient and a finding."""

    def __init__(self, rows: Sequence[tuple[str, str, Detections]], asked: Collection[str] | None = None) -> None:
        self._asked = asked
        self.patients, self._findings = [one[0] for one in rows], [one[1] for one in rows]
        self._given = [one[2] for one in rows]
        self._targets = np.array([len(one.targets) for one in self._given], np.float64)
        self._matched = cache(self._matched_by)
        self._known = cache(lambda *how: self._by_class(np.ones((1, len(rows))), *how))

    def statistic(self, choice: Choices) -> Statistic:
        """Return the number by a convention, as a function of counts."""
        how = tuple(choice[axis] for axis in ("boxes", "confidences", "classes", "curve", "known"))
        places = [IOUS.index(one) for one in RANGES.get(choice["iou"], ()) or (float(choice["iou"]),)]

        def statistic(counts: Floats) -> Floats:
            found = self._known(*how) if (counts == 1).all() and len(counts) == 1 else self._by_class(counts, *how)
            values = found[..., places].mean(axis=2)  # (classes, rows)
            values = np.nan_to_num(values) if choice["absent"] == "zero" else values
            often = counts.T[self._rows(choice["known"])] if choice["classes"] == "images" else np.ones(values.shape)
            total = (often * ~np.isnan(values)).sum(axis=0)
            return np.where(total > 0, (np.nan_to_num(values) * often).sum(axis=0) / np.maximum(total, 1e-9), np.nan)

        return statistic

    def _matched_by(self, boxes: str, confidences: str) -> tuple[list[Detections], list[Any]]:
        some = [_set(one, boxes, confidences == "scores") for one in self._given]
        return some, match(some, IOUS)

    def _by_class(self, counts: Floats, boxes: str, confidences: str, classes: str, curve: str, known: str) -> Floats:
        """Return the average precision of each class, (classes, rows, IoU thresholds)."""
        some, matched = self._matched(boxes, confidences)
        own: list[Any] = {"findings": self._findings, "pooled": [""] * len(some)}.get(classes, [*range(len(some))])
        members: dict[Any, list[int]] = {}
        for place in self._rows(known):
            members.setdefault(own[place], []).append(place)
        found = []
        for places in members.values():
            targets = self._targets[places]
            one = SortedDetections([some[p].scores for p in places], [matched[p] for p in places], targets)
            drawn = counts[:, places]
            found.append(one.average_precision(drawn) if curve == "101 points" else _precision(one, drawn, curve))
        return np.stack(found) if found else np.full((1, len(counts), len(IOUS)), np.nan)

    def _rows(self, known: str) -> list[int]:
        """Return the instances that count: all, or those of findings that the model was asked for."""
        every = range(len(self._findings))
        return [n for n in every if known == "all" or self._asked is None or self._findings[n] in self._asked]


def _precision(one: SortedDetections, counts: Floats, curve: str) -> Floats:
    """Return average precision by another curve than COCO's, (rows, IoU thresholds)."""
    found = np.full((len(counts), one.matched.shape[1]), np.nan)
    for row, drawn in enumerate(counts):
        positives = drawn @ one.targets
        for place in range(one.matched.shape[1]) if positives else ():
            often = drawn[one.owners]
            hits, taken = np.cumsum(often * one.matched[:, place]), np.cumsum(often)
            precision, recall = hits / np.maximum(taken, 1.0), hits / positives
            best = np.maximum.accumulate(precision[::-1])[::-1]
            if curve == "11 points":
                reached = np.searchsorted(recall, np.linspace(0, 1, 11) - 1e-12)
                found[row, place] = sum(best[at] for at in reached if at < len(best)) / 11
            else:
                gains = np.diff(recall, prepend=0.0)
                found[row, place] = float(gains @ (best if curve == "every point" else precision))
    return found
