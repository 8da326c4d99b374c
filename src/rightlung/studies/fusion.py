"""Weighted box fusion: one set of boxes from several readers' (Solovyev, Wang and Gabruseva, IVC 2021, section 3).

Boxes of one label are processed by descending score. Each joins the fused box with the highest IoU, if that exceeds the
threshold, and updates it: a fused box is the average of its boxes, weighted by their scores. Otherwise it starts a new
one. Finally the average score of a fused box's ``T`` boxes is multiplied by ``min(T, N) / N`` with ``N`` readers: a box
by one of three readers counts a third.

Readers give no scores: theirs are all 1, a fused box is the plain average, and the order, which determines who starts a
fused box, is that of the readers and their boxes. Two overlapping boxes of one reader are fused as well, as in the
paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rightlung.core import Box, InputError
from rightlung.core.study import ScoredBox

READERS_IOU = 0.1
"""The IoU above which two readers mean the same finding, for VinDr-CXR (ChEX, supp. on VinDr-CXR)."""


@dataclass(frozen=True, slots=True)
class FusedBox:
    """A fused box, its score from 0 to 1, and the readers (by position) that contributed."""

    box: Box
    score: float
    label: str | None
    readers: tuple[int, ...]


def fuse(readers: Sequence[Sequence[ScoredBox]], iou: float = READERS_IOU) -> list[FusedBox]:
    """Fuse the boxes of several readers label by label; sorted by descending score.

    >>> one, two = Box(0.0, 0.0, 0.4, 0.4), Box(0.1, 0.1, 0.5, 0.5)
    >>> fused = fuse([[ScoredBox(one, 1.0)], [ScoredBox(two, 1.0)]])
    >>> [round(edge, 3) for edge in fused[0].box.as_tuple()], fused[0].score, fused[0].readers
    ([0.05, 0.05, 0.45, 0.45], 1.0, (0, 1))
    """
    if not 0.0 <= iou < 1.0:
        raise InputError(f"the IoU threshold for fusing boxes must be at least 0 and below 1; got {iou}")
    if not readers:
        raise InputError("fusing boxes needs at least one reader")
    drawn = [(reader, scored) for reader, boxes in enumerate(readers) for scored in boxes]
    for _, scored in drawn:
        if not 0.0 < scored.score <= 1.0:
            raise InputError(f"fusing boxes needs scores above 0 and at most 1; got {scored.score}")
    drawn.sort(key=lambda pair: -pair[1].score)  # stable: equal scores keep the readers' order
    fused: list[FusedBox] = []
    for label in dict.fromkeys(scored.label for _, scored in drawn):
        groups: list[list[tuple[int, ScoredBox]]] = []
        for reader, scored in drawn:
            if scored.label == label:
                overlaps = [_mean(group).iou(scored.box) for group in groups]
                best = max(overlaps, default=0.0)
                if groups and best > iou:
                    groups[overlaps.index(best)].append((reader, scored))
                else:
                    groups.append([(reader, scored)])
        fused.extend(_fused(group, len(readers)) for group in groups)
    return sorted(fused, key=lambda one: -one.score)


def _mean(group: Sequence[tuple[int, ScoredBox]]) -> Box:
    if len(group) == 1:
        return group[0][1].box
    scores = [scored.score for _, scored in group]
    edges = zip(*(scored.box.as_tuple() for _, scored in group), strict=True)
    return Box(*(sum(s * edge for s, edge in zip(scores, column, strict=True)) / sum(scores) for column in edges))


def _fused(group: Sequence[tuple[int, ScoredBox]], count: int) -> FusedBox:
    score = sum(scored.score for _, scored in group) / len(group) * min(len(group), count) / count
    return FusedBox(_mean(group), score, group[0][1].label, tuple(sorted({reader for reader, _ in group})))
