"""Bounding boxes of findings, for models that detect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rightlung.core import Box, Polarity, Study
from rightlung.lexicon import canonical_finding
from rightlung.phantom.loader import PhantomBatch
from rightlung.training.annotations import NO_FINDING, StudyAnnotations, implied_findings
from rightlung.training.targets.base import TARGETS, BatchPart, Column, RaggedTensor, StudyFrame, TargetBuilder
from rightlung.training.targets.regions import MIN_BOX_SIDE

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry


@TARGETS.register
@dataclass(frozen=True)
class BoxTargets(TargetBuilder):
    """All ``b`` bounding boxes of findings that are, or may be, present; none with ``phrase_masks: none``.

    - ``boxes`` (b, 4): x0, y0, x1, y1 in fractions of the square image
    - ``labels``: list of length b, the findings of each box and what they imply: a consolidation is an opacity
    - ``image_indices``: list of length b, the index of each box's image
    - ``has_boxes`` (n,) bool: whether the boxes of an image are known (it may have none)
    """

    name = "boxes"

    def needs_build(self, entry: DataEntry) -> bool:
        """Boxes are used unless the entry hides locations."""
        return entry.phrase_masks != "none"

    def available_in(self, study: Study) -> bool:
        """Whether a phrase has a box."""
        return any(phrase.target_boxes for phrase in (*study.located_findings, *study.phrases))

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``boxes`` and ``labels``; a box has all findings that are said of it, and what these imply."""
        labels: dict[Box, set[str]] = {}
        for phrase in study.located_findings or study.phrases:
            names = {canonical_finding(name) for name, kind in phrase.findings.items() if kind is not Polarity.NEGATIVE}
            if names - {NO_FINDING}:
                for box in phrase.target_boxes:
                    labels.setdefault(box, set()).update(implied_findings(names))
        boxes = torch.stack([torch.zeros(4), *map(frame.box, labels)])[1:]
        return {"boxes": boxes, "labels": [sorted(names) for names in labels.values()]}

    def can_build_from_rendering(self, entry: DataEntry) -> bool:
        """Lesions and devices are rendered."""
        return True

    def build_from_rendering(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return the boxes of rendered lesions and devices."""
        boxes, labels = [], []
        for truth in batch.truths:
            own: dict[Box, set[str]] = {}
            for finding, found in truth.boxes.items():
                for box in found:
                    own.setdefault(box, set()).update(implied_findings({canonical_finding(finding)}))
            boxes.append(torch.tensor([box.as_tuple() for box in own]).reshape(-1, 4))
            labels.append([sorted(names) for names in own.values()])
        values = torch.cat(boxes).to(batch.rendering.images.device)
        return {"boxes": RaggedTensor.of(values, [len(own) for own in boxes]), "labels": labels}

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return boxes, labels, image_indices and has_boxes; what the border has cut off is left out."""
        column, labels = part.columns.get("boxes"), part.columns.get("labels")
        if not isinstance(column, RaggedTensor) or not isinstance(labels, list):
            none = torch.zeros_like(part.mirrored)
            boxes = torch.zeros(0, 4, device=none.device)
            return {"boxes": boxes, "labels": [], "image_indices": [], "has_boxes": none}
        images = [image for image, count in enumerate(column.counts) for _ in range(count)]
        boxes = part.move_boxes(column.concatenated(), part.tensor(images, torch.long)).clamp(0.0, 1.0)
        inside = ((boxes[:, 2:] - boxes[:, :2]) > MIN_BOX_SIDE).all(-1)
        kept = inside.nonzero()[:, 0].tolist()
        of_box = [names for own in labels for names in own]
        return {
            "boxes": boxes[inside],
            "labels": [of_box[box] for box in kept],
            "image_indices": [images[box] for box in kept],
            "has_boxes": torch.ones_like(part.mirrored),
        }
