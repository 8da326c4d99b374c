"""The configuration of a CLIP. Defaults are a ViT-B/16, a BERT-base and CLIP's temperature (Radford et al., 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import nn

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.explain.similarity import Shift
from rightlung.models.clip.losses import LOSSES
from rightlung.models.encoders import ImageEncoderConfig, TextEncoderConfig
from rightlung.models.encoders.configured import check_losses
from rightlung.models.encoders.image import ImageKind, ImagePooling
from rightlung.models.encoders.text import TextPooling
from rightlung.models.mixing import MixingConfig


@dataclass(frozen=True)
class ClipImageConfig(ImageEncoderConfig):
    """An image encoder whose last level and pooled output have one projection."""

    kind: ImageKind = "vit"
    pyramid_levels: tuple[int, ...] = (-1,)
    pooling: ImagePooling = "shared"
    projection_bias: bool = False


@dataclass(frozen=True)
class ClipTextConfig(TextEncoderConfig):
    """A text encoder whose global embedding is that of the start token; CLIP's own has ``pooling: eos``."""

    summed_layers: int = 1
    pooling: TextPooling = "cls"
    projection_bias: bool = False


@dataclass(frozen=True)
class ClipConfig:
    """Encoders, the scale of the logits, and losses.

    - ``dimension``: the size of all embeddings.
    - ``logit_scale``: the factor on cosines in the loss at the start of training (1 / temperature), which is learned;
      ``max_logit_scale`` is the largest value that it can reach.
    - ``heatmap_shift``: how cosines become a heatmap, one of `rightlung.explain.similarity.SHIFTS`.
    - ``regions``: a box is embedded as the mean of the patches in it (``pooled``), or by cropping the image to it
      (``cropped``); the paper of ChEX compares both (supp. E.4).
    - ``losses``: names in ``loss_types``. In training, they are those of the recipe.
    - ``duplicate_texts``: a text with the same words as the image's own is a ``negative`` (CLIP), or is ignored.
    - ``mixing``: settings of the losses that mix images or embeddings (`rightlung.models.mixing`).
    - ``save_dtype``: the number format of saved matrices; vectors are saved in float32.
    """

    loss_types: ClassVar[Mapping[str, type[nn.Module]]] = LOSSES

    image: ClipImageConfig = field(default_factory=ClipImageConfig)
    text: ClipTextConfig = field(default_factory=ClipTextConfig)
    dimension: int = 512
    logit_scale: float = 1 / 0.07
    max_logit_scale: float = 100.0
    heatmap_shift: Shift = "minimum"
    regions: Literal["pooled", "cropped"] = "pooled"
    losses: tuple[str, ...] = ("contrastive",)
    duplicate_texts: Literal["negative", "ignore"] = "negative"
    mixing: MixingConfig = field(default_factory=MixingConfig)
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        check_limits(self.dimension, "dimension", 1, 8192)
        if not 0 < self.logit_scale <= self.max_logit_scale:
            raise InputError(
                f"logit_scale must be positive and at most max_logit_scale, {self.max_logit_scale}; "
                f"got {self.logit_scale}"
            )
        if self.image.pooling == "separate":
            raise InputError(
                "image.pooling must be 'shared' or 'mean': with 'separate', nothing trains the patches' projection"
            )
        check_losses(self.losses, self.loss_types)
