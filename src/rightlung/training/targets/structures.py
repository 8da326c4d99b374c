"""The masks of anatomical structures, which phantom studies have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rightlung.core import Study
from rightlung.lexicon import STRUCTURES, mirror_region
from rightlung.phantom.loader import PhantomBatch, cell_shares
from rightlung.phantom.scene import Scene
from rightlung.phantom.structures import structure_masks
from rightlung.phantom.twins import PhantomTwins
from rightlung.training.annotations import StudyAnnotations
from rightlung.training.targets.base import TARGETS, BatchPart, Column, RaggedTensor, StudyFrame, TargetBuilder
from rightlung.training.targets.phrases import to_uint8

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

_OTHER_SIDE = [STRUCTURES.index(mirror_region(name)) for name in STRUCTURES]


@TARGETS.register
@dataclass(frozen=True)
class StructureTargets(TargetBuilder):
    """The share of each grid cell that each of the ``k`` = 12 `STRUCTURES` covers.

    - ``shares`` (n, k, grid, grid): 0 to 1; zeros where unknown
    - ``known`` (n,) bool: whether the study has them
    """

    name = "structures"

    def available_in(self, study: Study) -> bool:
        """Whether the study is a phantom, made here."""
        return isinstance(study.twins, PhantomTwins)

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return ``shares`` (1 or 0, k, grid, grid)."""
        scenes = [study.twins.scene] if isinstance(study.twins, PhantomTwins) else []
        return {"shares": _shares(scenes, frame.size, frame.grid)}

    def can_build_from_rendering(self, entry: DataEntry) -> bool:
        """The scene says where the structures are."""
        return True

    def build_from_rendering(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return the shares of the rendered studies."""
        images = batch.rendering.images
        shares = _shares(batch.scenes, images.shape[-1], grid).to(images.device)
        return {"shares": RaggedTensor.of(shares, [1] * len(batch))}

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return shares and known."""
        column, device = part.columns["shares"], part.mirrored.device
        assert isinstance(column, RaggedTensor)
        known = torch.tensor([count > 0 for count in column.counts], device=device)
        shares = torch.zeros(len(known), len(STRUCTURES), part.grid, part.grid, device=device)
        own = column.concatenated().float() / 255
        flipped = part.sides_exchanged[known, None, None, None]
        own = torch.where(flipped, own[:, _OTHER_SIDE], own)  # what was the left lung is the right one
        images = known.nonzero()[:, 0].repeat_interleave(len(STRUCTURES))
        shares[known] = part.move_masks(own.flatten(0, 1), images).view_as(own)
        return {"shares": shares, "known": known}


def _shares(scenes: Sequence[Scene], size: int, grid: int) -> Tensor:
    """Return shares (n, k, grid, grid) uint8."""
    if not scenes:
        return torch.zeros(0, len(STRUCTURES), grid, grid, dtype=torch.uint8)
    masks = structure_masks(scenes, size)
    return to_uint8(cell_shares(masks.flatten(0, 1), grid).view(*masks.shape[:2], grid, grid))
