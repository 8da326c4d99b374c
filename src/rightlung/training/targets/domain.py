"""Whether an image is synthetic or real, for losses that align the two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rightlung.training.targets.base import TARGETS, BatchPart, TargetBuilder

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

REAL = {"real": 1.0, "synthetic": 0.0, None: math.nan}


@TARGETS.register
@dataclass(frozen=True)
class Domain(TargetBuilder):
    """The domain of each image, by ``data.train[...].domain``.

    - ``real`` (n,): 1 for a real film, 0 for a synthetic image, NaN if the entry does not say
    """

    name = "domain"

    def needs_build(self, entry: DataEntry) -> bool:
        """Return False: the recipe says it."""
        return False

    def collate(self, part: BatchPart) -> dict[str, Any]:
        """Return real."""
        return {"real": part.tensor([REAL[part.entry.domain]] * len(part.studies), torch.float32)}
