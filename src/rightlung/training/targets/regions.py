"""The anatomical regions of an image: their boxes, their findings and their sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rightlung.core import Polarity, Study
from rightlung.lexicon import IMAGENOME_REGIONS, canonical_finding, mirror_region
from rightlung.lexicon.side_changes import mirrored
from rightlung.phantom.graph import region_labels
from rightlung.phantom.loader import PhantomBatch
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.targets.base import (
    TARGETS,
    BatchPart,
    Column,
    DrawContext,
    RaggedTensor,
    StudyFrame,
    TargetBuilder,
    label_values,
)

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

MIN_BOX_SIDE = 0.01
"""Of a box, either way; a narrower one has been cut off by the border of the image."""
_OTHER_SIDE = [IMAGENOME_REGIONS.index(mirror_region(name)) for name in IMAGENOME_REGIONS]


@TARGETS.register
@dataclass(frozen=True)
class RegionTargets(TargetBuilder):
    """The ``k`` = 29 regions `IMAGENOME_REGIONS` of each image, with ``f`` = len(``findings``) findings.

    - ``boxes`` (n, k, 4): x0, y0, x1, y1 in fractions of the square image; zeros where a region is not present
    - ``present`` (n, k) bool: whether the box is known and inside the image
    - ``findings`` (n, k, f): 1 (present), 0 (absent) or NaN (unknown)
    - ``sentences``: list of length n; for each region the list of its sentences
    """

    findings: tuple[str, ...] = ()

    name = "regions"

    def available_in(self, study: Study) -> bool:
        """Whether the box of a region is known."""
        return bool(study.regions)

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``boxes`` (1, k, 4) and ``findings`` (1, k, f), NaN where unknown."""
        boxes = torch.full((1, len(IMAGENOME_REGIONS), 4), torch.nan)
        findings = torch.full((1, len(IMAGENOME_REGIONS), len(self.findings)), torch.nan)
        for number, name in enumerate(IMAGENOME_REGIONS):
            if name in study.regions:
                boxes[0, number] = frame.box(study.regions[name])
            known = {canonical_finding(one): kind for one, kind in study.region_findings.get(name, {}).items()}
            present, absent = ({one for one in known if known[one] is kind} for kind in list(Polarity)[:2])
            findings[0, number] = torch.tensor(label_values(self.findings, present, absent))
        return {"boxes": boxes, "findings": findings}

    def can_build_from_rendering(self, entry: DataEntry) -> bool:
        """Boxes and lesions are rendered."""
        return True

    def build_from_rendering(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return boxes and findings of the rendered regions."""
        boxes = batch.rendering.regions.float()
        ones = [1] * len(boxes)
        findings = boxes.new_empty(*boxes.shape[:2], 0)
        if self.findings:
            names = [canonical_finding(name) for name in self.findings]
            pairs = zip(batch.scenes, batch.truths, strict=True)
            labels = [region_labels(scene, truth.lesion_regions, names) for scene, truth in pairs]
            findings = torch.from_numpy(np.stack(labels)).to(boxes.device)
        return {"boxes": RaggedTensor.of(boxes, ones), "findings": RaggedTensor.of(findings, ones)}

    def draw(self, annotations: StudyAnnotations, context: DrawContext) -> list[list[str]]:
        """Return the sentences of each region."""
        return [[one.text for one in annotations.sentences if name in one.regions] for name in IMAGENOME_REGIONS]

    def mirror(self, words: list[list[str]]) -> list[list[str]]:
        """Exchange the sides of regions and sentences; sentences without a mirror image are left out."""
        return [[text for one in words[number] if (text := mirrored(one)) is not None] for number in _OTHER_SIDE]

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return boxes, present, findings and sentences."""
        boxes, findings = (part.columns[name].concatenated() for name in ("boxes", "findings"))  # type: ignore[union-attr]
        flipped = part.sides_exchanged[:, None, None]
        boxes = torch.where(flipped, boxes[:, _OTHER_SIDE], boxes)  # what was the left lung is the right one
        images = torch.arange(len(boxes), device=boxes.device).repeat_interleave(boxes.shape[1])
        within = part.move_boxes(boxes.flatten(0, 1), images).view_as(boxes).clamp(0.0, 1.0)
        present = (within[..., 2:] - within[..., :2] > MIN_BOX_SIDE).all(-1)  # unknown boxes are NaN: False
        return {
            "boxes": torch.where(present[..., None], within, 0.0),
            "present": present,
            "findings": torch.where(flipped, findings[:, _OTHER_SIDE], findings),
            "sentences": list(part.drawn),
        }
