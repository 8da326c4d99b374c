"""Where radiologists looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rightlung.core import Study
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.targets.base import TARGETS, BatchPart, RaggedTensor, StudyFrame, TargetBuilder


@TARGETS.register
@dataclass(frozen=True)
class Gaze(TargetBuilder):
    """The gaze map of each image.

    - ``maps`` (n, grid, grid): relative dwell time, 0 to 1, with a maximum of 1 before augmentation; zeros if unknown
    - ``has_gaze`` (n,) bool: which images have one
    """

    name = "gaze"

    def available_in(self, study: Study) -> bool:
        """Whether gaze was recorded."""
        return study.gaze is not None

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``maps`` (0 or 1, grid, grid)."""
        if study.gaze is None:
            return {"maps": torch.zeros(0, frame.grid, frame.grid)}
        height, width = study.image.shape
        cells = frame.cells(study.gaze.to_size((height, width)))
        return {"maps": (cells / cells.max().clamp_min(1e-12))[None]}

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return maps and has_gaze."""
        column = part.columns["maps"]
        assert isinstance(column, RaggedTensor)
        has_gaze = part.tensor(column.counts, torch.bool)
        maps = torch.zeros(len(has_gaze), part.grid, part.grid, device=has_gaze.device)
        maps[part.tensor([image for image, count in enumerate(column.counts) if count], torch.long)] = (
            column.concatenated()
        )
        return {"maps": part.move_masks(maps), "has_gaze": has_gaze}
