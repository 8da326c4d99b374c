"""What every target builder offers, and what it is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rightlung.core import Box, Extent, Study
from rightlung.core.keyed import RandomStream
from rightlung.core.registry import Registry
from rightlung.lexicon import canonical_finding
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.loader import PhantomBatch
from rightlung.training.annotations import Location, StudyAnnotations
from rightlung.training.augmentation import AugmentationParams, move_boxes, move_masks, to_device

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry


@dataclass(frozen=True, slots=True, eq=False)
class RaggedTensor:
    """The rows of ``n`` studies in one tensor ``values`` (m, ...). Studies may share it and need not use all of it."""

    values: Tensor
    first: Sequence[int]  # (n,) the first row of each study
    counts: Sequence[int]  # (n,) how many rows it has

    @classmethod
    def of(cls, values: Tensor, counts: Sequence[int]) -> RaggedTensor:
        """Return the rows of studies that follow each other."""
        return cls(values, list(accumulate(counts, initial=0))[:-1], list(counts))

    def select(self, studies: Sequence[int]) -> RaggedTensor:
        """Return the rows of some of the studies, without copying them."""
        return RaggedTensor(self.values, [self.first[one] for one in studies], [self.counts[one] for one in studies])

    def at(self, rows: Sequence[int]) -> Tensor:
        """Return rows by their number in ``values``."""
        return self.values[to_device(torch.tensor(rows, dtype=torch.long), self.values.device)]

    def concatenated(self) -> Tensor:
        """Return the rows of all studies in their order, (sum of counts, ...)."""
        pairs = zip(self.first, self.counts, strict=True)
        return self.at([row for first, count in pairs for row in range(first, first + count)])


Column = RaggedTensor | list[Any]
"""One entry per study: a tensor (rows, ...) or a JSON-serialisable value."""


def select_studies(column: Column, studies: Sequence[int]) -> Column:
    """Return some of the studies of a column."""
    return column.select(studies) if isinstance(column, RaggedTensor) else [column[one] for one in studies]


@dataclass(frozen=True, slots=True)
class StudyFrame:
    """The square that the model sees of a study's image, and the locations of what its phrases describe."""

    size: int  # pixels per side
    grid: int  # cells per side
    extent: Extent  # of the square, in fractions of the image
    locations: Sequence[Location] = ()

    def cells(self, pixels: NDArray[np.float32]) -> Tensor:
        """Return the mean of an array (height, width) in each cell of the square, (grid, grid)."""
        return adaptive_avg_pool2d(letterbox(pixels, self.size)[0][None, None], self.grid)[0, 0]

    def box(self, box: Box) -> Tensor:
        """Return a box in fractions of the square, (4,)."""
        x0, y0, x1, y1 = self.extent.as_tuple()
        corners = torch.tensor(box.as_tuple()) - torch.tensor([x0, y0, x0, y0])
        return corners / torch.tensor([x1 - x0, y1 - y0, x1 - x0, y1 - y0])


@dataclass(frozen=True, slots=True)
class DrawContext:
    """Inputs for sampling an image's texts; all randomness comes from ``stream``."""

    entry: DataEntry
    stream: RandomStream
    other: Callable[[], StudyAnnotations]  # draws another study of the same source
    findings: frozenset[str] = frozenset()  # all that the labels of the source name
    texts: Sequence[str] = ()  # that the image is paired with, before mirroring


@dataclass(frozen=True, slots=True, eq=False)
class BatchPart:
    """The images that one entry gives to a batch, as far as one target is concerned."""

    entry: DataEntry
    studies: Sequence[StudyAnnotations]  # n
    columns: Mapping[str, Column]  # what `TargetBuilder.build` returned for each study; empty if it was not called
    drawn: Sequence[Any]  # n: what `TargetBuilder.draw` returned, with sides exchanged where they are
    mirrored: Tensor  # (n,) bool: whether the pixels are
    sides_exchanged: Tensor  # (n,) bool: whether "left" means what was the right before; False with mirror: pixels
    params: AugmentationParams | None
    grid: int
    source_findings: frozenset[str] = frozenset()  # all that the labels of the source name

    def tensor(self, values: Sequence[Any], dtype: torch.dtype) -> Tensor:
        """Return values as a tensor on the batch's device."""
        return to_device(torch.tensor(values, dtype=dtype), self.mirrored.device)

    def move_masks(self, masks: Tensor, images: Tensor | None = None) -> Tensor:
        """Mirror and move masks (p, rows, cols) with their images; ``images`` (p,) are the indices of these."""
        if not len(masks):
            return masks
        if self.params is not None:
            return move_masks(masks[:, None], self.params, images)[:, 0].clamp(0.0, 1.0)
        mirrored = self.mirrored if images is None else self.mirrored[images]
        return torch.where(mirrored[:, None, None], masks.flip(-1), masks)

    def move_boxes(self, boxes: Tensor, images: Tensor) -> Tensor:
        """Mirror and move boxes (p, 4) with their images: a turned box becomes the upright box around it."""
        x0, y0, x1, y1 = boxes.unbind(-1)
        boxes = torch.where(self.mirrored[images, None], torch.stack([1 - x1, y0, 1 - x0, y1], dim=-1), boxes)
        return boxes if self.params is None else move_boxes(boxes, self.params, images)


class TargetBuilder:
    """One kind of target. A subclass is a frozen dataclass whose fields are its settings in the recipe.

    For each study, `build` returns small tensors (rows, ...) and plain values. They are cached and handed to `collate`
    as columns. `collate` returns the batch's target: tensors, and lists; a list ``image_indices`` holds indices of
    images, which are shifted when parts of a batch are joined. Where words depend on chance or on the mirror, `draw`
    chooses them for each image and `mirror` exchanges their sides.
    """

    name: ClassVar[str]

    def for_entry(self, entry: DataEntry) -> TargetBuilder:
        """Return the builder of an entry's studies, where that depends on the entry's settings."""
        return self

    def needs_build(self, entry: DataEntry) -> bool:
        """Return whether studies of this entry have to be built (`draw` and `collate` are called in any case)."""
        return True

    def available_in(self, study: Study) -> bool:
        """Return whether the study has this annotation."""
        return True

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> Mapping[str, Any]:
        """Return what is to be cached of a study, by name: tensors (rows, ...) or JSON-serialisable values."""
        return {}

    def can_build_from_rendering(self, entry: DataEntry) -> bool:
        """Return whether `build_from_rendering` equals `build`. If not, phantoms are made one by one on the CPU."""
        return type(self).build is TargetBuilder.build

    def build_from_rendering(self, batch: PhantomBatch, grid: int) -> Mapping[str, Column]:
        """Return the columns of phantom studies that were rendered on the device."""
        return {}

    def draw(self, annotations: StudyAnnotations, context: DrawContext) -> Any:
        """Return the words about one image."""
        return ()

    def mirror(self, words: Any) -> Any:
        """Return the mirrored image's words, or None if they cannot be mirrored; the image is then not mirrored."""
        return words

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return the target of a batch."""
        raise NotImplementedError


TARGETS: Registry[Any] = Registry("target")
"""The classes of target builders by name."""


def label_values(findings: Sequence[str], present: Container[str], absent: Container[str]) -> list[float]:
    """Return 1 for findings that are present, 0 for those that are absent, and NaN for the others."""
    names = [canonical_finding(name) for name in findings]
    return [1.0 if name in present else 0.0 if name in absent else math.nan for name in names]
