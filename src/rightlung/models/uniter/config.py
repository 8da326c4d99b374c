"""The configuration of a UNITER: regions as in "That's the Wrong Lung!" (A.2), encoder as in UNITER-base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping
from rightlung.models.encoders.configured import check_losses
from rightlung.models.uniter.losses import LOSSES


@dataclass(frozen=True)
class UniterConfig:
    """Images, regions, the joint encoder, and losses.

    - ``image_size``: images are letterboxed to this size; ``region_size``: regions are cropped and resized to this.
    - ``feature_size``: a region's pixels are padded with zeros to this many numbers.
    - ``options``: fields of the `transformers` BERT configuration (layers, heads, width).
    - ``vocab_size``: the largest WordPiece vocabulary to train; ``max_length``: tokens read of a text.
    - ``pretrained``: a folder or hub id with configuration, weights and tokenizer; a saved model does not need it.
    - ``losses``: names in `rightlung.models.uniter.losses.LOSSES`. In training, they are those of the recipe.
    - ``mask_probability``: the share of tokens (MLM) and of regions (MRM) that are masked.
    - ``map_size``: rows and columns of the heatmap that boxes are painted on.
    - ``save_dtype``: the number format of saved matrices.
    """

    image_size: int = 224
    region_size: int = 45
    feature_size: int = 2048
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    vocab_size: int = 4000
    max_length: int = 96
    pretrained: str | None = None
    losses: tuple[str, ...] = ("mlm", "mrm", "itm")
    mask_probability: float = 0.15
    map_size: int = 64
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        for name, low, high in (
            ("image_size", 16, 4096), ("region_size", 1, 512), ("feature_size", 1, 1 << 18),
            ("vocab_size", 50, 200_000), ("max_length", 2, 4096), ("map_size", 1, 1024),
        ):  # fmt: skip
            check_limits(getattr(self, name), name, low, high)
        if self.region_size**2 > self.feature_size:
            raise InputError(
                f"feature_size must be at least region_size squared, {self.region_size**2}; got {self.feature_size}"
            )
        if not 0 < self.mask_probability < 1:
            raise InputError(f"mask_probability must be above 0 and below 1; got {self.mask_probability}")
        check_losses(self.losses, LOSSES)
