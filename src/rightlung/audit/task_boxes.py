"""How the boxes of a task are post-processed: settings for all patients, or tuned for each fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rightlung.audit.task_known import Known
from rightlung.audit.tasks import TaskPart
from rightlung.core import Box, InputError
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import BoxSettings, tune_boxes
from rightlung.measuring.box_settings import BoxExample
from rightlung.models.blind.prior import FOLDS, fold_of
from rightlung.predictions import Predictions

DEFAULT_BOXES = BoxSettings(nms=0.25)
"""The paper's for all data sets but NIH, whose boxes of a finding are merged (E.2)."""


@dataclass(frozen=True)
class Tuned:
    """The settings of boxes: those of every patient fold, or one for all, and what they were tuned on."""

    folds: Sequence[BoxSettings]
    on: str | None = None
    nms_tuned: bool = False

    def of(self, patient: str) -> BoxSettings:
        """Return the settings for a patient."""
        return self.folds[fold_of(patient, len(self.folds))]

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values; those of folds in a list."""
        if len(self.folds) == 1:
            return {"tuned_on": self.on, **self.folds[0].as_json()}
        return {"tuned_on": self.on, "folds": [one.as_json() for one in self.folds]}

    def sentence(self) -> str:
        """Say how boxes are post-processed, without what each class was tuned to."""
        first = self.folds[0]
        how = "boxes of a class merged" if first.merge else "no NMS" if first.nms is None else f"NMS at {first.nms:g}"
        if self.on is None:
            return f"{how}; not scaled"
        return f"NMS and scale tuned on {self.on}" if self.nms_tuned else f"{how}; scale tuned on {self.on}"


def cross_validated(part: TaskPart, known: Known, predictions: Predictions, given: BoxSettings | None) -> Tuned:
    """Return settings for each fold of patients, tuned on the others."""
    examples = box_examples(part, known, predictions)
    folds = np.array([fold_of(one.patient, FOLDS) for one in examples])
    used = folds[None] != np.arange(FOLDS)[:, None]
    on = f"other patients of the same source, cross-validated over {FOLDS} folds"
    return Tuned(tune_boxes(examples, used, given), on, given is None)


def tuned_on(part: TaskPart, other: Known, answers: Predictions, given: BoxSettings | None) -> Tuned:
    """Return settings tuned on another source."""
    examples = box_examples(part, other, answers)
    found = tune_boxes(examples, np.ones((1, len(examples)), bool), given)
    return Tuned(found, other.source.address, given is None)


def box_examples(part: TaskPart, known: Known, predictions: Predictions) -> list[BoxExample]:
    """Return predicted and target boxes of each finding of each image, or of each phrase."""
    found = []
    for one in (one for batch in predictions.batches() for one in batch.predictions()):
        labels = known.asked.queries.get((one.study, one.query))
        if labels is None or one.grounding is None or one.condition != "none":
            continue
        boxes = one.grounding.boxes
        if part.method == "ground":
            corners = known.targets.phrases[one.study, one.query].boxes
            found.append(BoxExample(labels.patient, "", boxes, [Box(*some) for some in corners]))
        for name in known.asked.classes:
            own = [box for box in boxes if box.label and canonical_finding(box.label) == name]
            targets = [Box(*some) for some in labels.boxes.get(name, ())]
            found.append(BoxExample(labels.patient, name, own, targets))
    if not found:
        raise InputError(f"{predictions.path}: there are no boxes to tune the task {part.task} on")
    return found
