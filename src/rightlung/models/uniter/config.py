"""What a UNITER is made of. Regions are those of "That's the Wrong Lung!" (A.2), the stream is UNITER-base's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rightlung.core.errors import InputError
from rightlung.core.frozen import FrozenMapping

LossName = Literal["language", "regions", "matching"]


@dataclass(frozen=True)
class UniterConfig:
    """Pictures, regions, the stream, and what is learned from.

    A region is cut out of a picture of ``size`` pixels a side, brought to ``side`` pixels a side, flattened, and filled
    up with zeros to ``feature`` numbers. ``options`` go to the configuration of a BERT of `transformers` (layers,
    heads, width); ``vocabulary`` is how large a WordPiece vocabulary is trained at most; ``pretrained`` names a folder
    or a hub id to take configuration, weights and tokenizer from, and a saved model no longer needs it. ``losses`` are
    those computed in training, their weights are the recipe's; ``masked`` is the share of words and of regions that
    they hide. Boxes are painted on a map of ``map_size`` cells a side. ``storage`` is the precision in which matrices
    are saved.
    """

    size: int = 224
    side: int = 45
    feature: int = 2048
    options: Mapping[str, Any] = field(default_factory=FrozenMapping)
    vocabulary: int = 4000
    max_length: int = 96
    pretrained: str | None = None
    losses: tuple[LossName, ...] = ("language", "regions", "matching")
    masked: float = 0.15
    map_size: int = 64
    storage: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", FrozenMapping(self.options))
        for name, low, high in (
            ("size", 16, 4096), ("side", 1, 512), ("feature", 1, 1 << 18), ("vocabulary", 50, 200_000),
            ("max_length", 2, 4096), ("map_size", 1, 1024),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} must be {low} to {high}; got {getattr(self, name)}")
        if self.side**2 > self.feature:
            raise InputError(f"feature {self.feature} has no room for the {self.side**2} pixels of side {self.side}")
        if not 0 < self.masked < 1:
            raise InputError(f"masked must be a share above 0 and below 1; got {self.masked}")
        if not self.losses:
            raise InputError("losses must name at least one loss")
