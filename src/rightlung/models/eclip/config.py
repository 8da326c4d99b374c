"""The configuration of an eCLIP: that of its host, CLIP or GLoRIA, and ``expert``. Defaults are those of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import nn

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.models.clip.config import ClipConfig
from rightlung.models.clip.losses import LOSSES as CLIP_LOSSES
from rightlung.models.eclip.losses import EXPERT_LOSSES
from rightlung.models.gloria.config import GloriaConfig
from rightlung.models.gloria.losses import LOSSES as GLORIA_LOSSES


@dataclass(frozen=True)
class ExpertConfig:
    """How a model learns from an expert's maps.

    - ``processor``: how image and map become the expert image: ``attention`` (the paper), ``residual`` (ours, an
      identity at the start), ``mask`` (image times map) or ``cnn``.
    - ``patch``, ``width``, ``heads``: patches in pixels, embeddings and attention heads of the first two; ``cnn_width``
      the channels of the last.
    - ``mixup_alpha``: plain and expert image are mixed by λ ~ Beta(α, α), one λ for each batch; 0: λ = 0, no mixing.
    - ``same_images``: annotated images are in the batch without their map, too (listing 2.1; not so in A.1).
    """

    processor: Literal["attention", "residual", "mask", "cnn"] = "attention"
    patch: int = 16
    width: int = 256
    heads: int = 8
    cnn_width: int = 32
    mixup_alpha: float = 0.3
    same_images: bool = False

    def __post_init__(self) -> None:
        check_limits(self.patch, "expert.patch", 1, 1024)
        check_limits(self.cnn_width, "expert.cnn_width", 1, 4096)
        check_limits(self.width, "expert.width", 1, 8192)
        check_limits(self.heads, "expert.heads", 1, 1024)
        check_limits(self.mixup_alpha, "expert.mixup_alpha", 0, 1000)
        if self.width % self.heads:
            raise InputError(f"expert.heads must divide expert.width, {self.width}; got {self.heads}")


@dataclass(frozen=True)
class EclipConfig(ClipConfig):
    """A CLIP (`ClipConfig`) with expert maps. Identical texts are not negatives by default."""

    loss_types: ClassVar[Mapping[str, type[nn.Module]]] = {**CLIP_LOSSES, **EXPERT_LOSSES}

    duplicate_texts: Literal["negative", "ignore"] = "ignore"
    expert: ExpertConfig = field(default_factory=ExpertConfig)


@dataclass(frozen=True)
class EclipGloriaConfig(GloriaConfig):
    """A GLoRIA (`GloriaConfig`) with expert maps. Identical texts are not negatives by default."""

    loss_types: ClassVar[Mapping[str, Any]] = {**GLORIA_LOSSES, **EXPERT_LOSSES}

    duplicate_texts: Literal["negative", "ignore"] = "ignore"
    expert: ExpertConfig = field(default_factory=ExpertConfig)
