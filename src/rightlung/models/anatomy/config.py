"""The configuration of the anatomy model, and the names of its losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.models.encoders.configured import check_losses

LOSSES = ("mask", "box", "confidence", "position")
POSITIONS = ("upright", "on its side", "upside down", "inverted", "other")
"""What an image shows: an upright frontal radiograph, one that was turned or inverted, or something else."""
STRIDE = 16
"""Pixels of an image to a cell of the coarsest level."""


@dataclass(frozen=True)
class AnatomyConfig:
    """A small U-Net.

    - ``size``: pixels per side of the images, a multiple of 16.
    - ``channels``: of the four levels, from half of the image's resolution to a sixteenth.
    - ``losses``: ``mask`` (Dice and binary cross-entropy of the outlines), ``box`` (L1 and generalised IoU),
      ``confidence`` (the predicted IoU of each box) and ``position`` (see `POSITIONS`). In training, they are those of
      the recipe.
    """

    size: int = 128
    channels: tuple[int, int, int, int] = (16, 32, 64, 128)
    losses: tuple[str, ...] = LOSSES
    save_dtype: Literal["float32", "float16"] = "float16"

    def __post_init__(self) -> None:
        check_limits(self.size, "size", 2 * STRIDE, 1024)
        if self.size % STRIDE:
            raise InputError(f"size must be a multiple of {STRIDE}; got {self.size}")
        for count in self.channels:
            check_limits(count, "channels", 8, 1024)
            if count % 8:
                raise InputError(f"channels must be multiples of 8; got {count}")
        check_losses(self.losses, LOSSES)
