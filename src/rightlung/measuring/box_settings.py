"""Post-processing of predicted boxes, and its settings by validation data (ChEX, supp. E.2).

Data sets draw boxes differently: some around the finding alone, some generously, some one box for all of a finding. So
boxes are scaled by a factor for each class, and then either suppressed where they overlap one with a higher score (NMS)
or merged into the box that covers all boxes of the class. What is tuned is never tuned on the images that are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, InputError, ScoredBox
from rightlung.core.checks import check_limits
from rightlung.explain import suppressed
from rightlung.lexicon.findings import canonical_finding
from rightlung.predictions import Batch
from rightlung.scoring.detection import Detections, match, precision_by_class, score

SCALES = tuple(sorted((round(0.1 * step, 1) for step in range(8, 21)), key=lambda scale: abs(scale - 1)))
"""Factors to choose from, 0.8 to 2.0; of equally good ones the first is taken, which changes least."""
NMS = (0.25, 0.05, 0.15, 0.35, 0.5)
"""IoU thresholds of NMS to choose from."""
FORMS = "merge, none, or nms=IOU with an IoU between 0 and 1, such as nms=0.25"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BoxSettings:
    """How predicted boxes become the boxes that are scored."""

    nms: float | None = None
    """Boxes whose IoU with a better box of their class is higher are left out; None keeps all."""
    merge: bool = False
    """Whether the boxes of a class become the one that covers all, with the highest score."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """Factor of width and height by finding, ``""`` for boxes without a label. Default: 1."""

    def __post_init__(self) -> None:
        if self.nms is not None:
            check_limits(self.nms, "the IoU of nms", 0, 1)

    @classmethod
    def parse(cls, text: str) -> BoxSettings:
        """Return the settings that ``merge``, ``none`` or ``nms=0.25`` stands for."""
        name, _, value = text.partition("=")
        if text in ("merge", "none"):
            return cls(merge=text == "merge")
        try:
            return cls(nms=float(value)) if name == "nms" else cls(nms=float("nan"))
        except (ValueError, InputError):
            raise InputError(f"the setting of boxes must be {FORMS}; got {text!r}") from None

    def apply(self, boxes: Sequence[ScoredBox]) -> list[ScoredBox]:
        """Return the boxes to score, the highest score first within each label."""
        found: list[ScoredBox] = []
        labels = dict.fromkeys(box.label for box in boxes)
        for label in labels:
            factor = self.scale.get(canonical_finding(label) if label else "", 1.0)
            own = [one for one in boxes if one.label == label]
            if factor != 1:
                own = [replace(one, box=one.box.scaled(factor)) for one in own]
            own.sort(key=lambda one: -one.score)
            if self.merge:
                found.append(replace(own[0], box=reduce(Box.enclosing, (one.box for one in own))))
            else:
                found += own if self.nms is None else suppressed(own, self.nms)
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return {"nms": self.nms, "merge": self.merge, "scale": dict(self.scale)}


def processed(batches: Iterable[Batch], settings_of: Callable[[str], BoxSettings]) -> Iterator[Batch]:
    """Yield predictions with post-processed boxes; ``settings_of`` returns the settings for a study."""
    for batch in batches:
        rows = []
        for one in batch.predictions():
            if one.grounding is not None and one.grounding.boxes:
                boxes = settings_of(one.study).apply(one.grounding.boxes)
                one = replace(one, grounding=Grounding(one.grounding.heatmap, boxes))
            rows.append(one)
        yield Batch.of(rows)


@dataclass(frozen=True)
class BoxExample:
    """Predicted and target boxes to tune on: of one finding in one image or, without a label, of one phrase."""

    patient: str
    label: str
    boxes: Sequence[ScoredBox]
    targets: Sequence[Box]


def tune_boxes(
    examples: Sequence[BoxExample], used: NDArray[np.bool_], given: BoxSettings | None = None
) -> list[BoxSettings]:
    """Return the settings with the highest mAP of the ``used`` (settings, examples), one for each row.

    Every finding gets its own scale; phrases have one for all, and each phrase is a class of its own. NMS is tuned
    unless ``given`` holds it or merges the boxes.
    """
    labels = [one.label for one in examples]
    names = sorted(set(labels))
    counts = used.astype(np.float64)
    candidates = [given] if given is not None else [BoxSettings(nms=threshold) for threshold in NMS]
    values = np.array(
        [[_by_label(examples, labels, names, counts, one, scale) for scale in SCALES] for one in candidates]
    )  # fmt: skip  (candidates, scales, labels, rows)
    found = []
    for row in range(len(used)):
        own = values[..., row]
        best = own.argmax(axis=1)  # (candidates, labels)
        chosen = int(own.max(axis=1).mean(axis=-1).argmax())
        scale = {name: SCALES[place] for name, place in zip(names, best[chosen].tolist(), strict=True)}
        found.append(replace(candidates[chosen], scale=scale))
    return found


def _by_label(
    examples: Sequence[BoxExample],
    labels: Sequence[str],
    names: Sequence[str],
    counts: Floats,
    settings: BoxSettings,
    scale: float,
) -> Floats:
    """Return the average precision over IoU thresholds of each label (labels, rows), 0 where it is undefined."""
    scaled = replace(settings, scale=dict.fromkeys(names, scale))
    detections = []
    for one in examples:
        boxes = scaled.apply(one.boxes)
        detections.append(Detections([box.box for box in boxes], [box.score for box in boxes], one.targets))
    if names == [""]:
        values = score(detections, range(len(detections))).average_precision.mean(axis=1)
        there = ~np.isnan(values)
        totals = np.maximum(counts[:, there].sum(axis=1), 1.0)
        return np.array([counts[:, there] @ values[there] / totals])
    targets = np.array([len(one.targets) for one in detections], np.float64)
    found = precision_by_class(labels, [one.scores for one in detections], match(detections), targets, counts)
    return np.array([np.nan_to_num(found[name].mean(axis=1)) for name in names])
