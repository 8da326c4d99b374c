"""The configuration of a GLoRIA. Defaults are those of the paper (Huang et al., ICCV 2021) and its released code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import nn

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.models.encoders import ImageEncoderConfig, TextEncoderConfig
from rightlung.models.encoders.configured import check_losses
from rightlung.models.gloria.losses import LOSSES
from rightlung.models.mixing import MixingConfig


@dataclass(frozen=True)
class AttentionConfig:
    """How words attend to patches.

    - ``similarity``: the score of a word and a patch is the dot product of their embeddings (both papers), or the
      cosine.
    - ``temperature``: multiplies the scores in the softmax over patches (an inverse temperature, as CLIP's logit
      scale); ``learn_temperature`` makes it a parameter.
    - ``softmax_over_words``: before the softmax over patches (the paper's Eq. 1), take one over the words for each
      patch, as the released code does. The largest attention is then at most exp(temperature) times the smallest.
    - ``no_attention_token``: add a learned vector to the patches that words can attend to if the image does not show
      them ("That's the Wrong Lung!", section 4.1).
    """

    similarity: Literal["dot_product", "cosine"] = "dot_product"
    temperature: float = 4.0
    learn_temperature: bool = False
    softmax_over_words: bool = False
    no_attention_token: bool = False

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive; got {self.temperature}")


@dataclass(frozen=True)
class GloriaConfig:
    """Encoders, attention, temperatures and losses.

    - ``dimension``: the size of all embeddings.
    - ``word_temperature``: multiplies the cosine of word and context in the local similarity.
    - ``local_temperature``, ``global_temperature``: multiply the similarities in the contrastive losses. All
      temperatures multiply: they are inverse temperatures, as CLIP's logit scale.
    - ``heatmap_from``: a phrase's heatmap is the mean attention of its ``words`` ("That's the Wrong Lung!"), or the
      attention of the ``sentence``, i.e. of its mean word embedding. This also chooses the attention that the mask
      and hard-negative losses train, and what ``similarity`` (the local one) and ``classify`` (with a no-attention
      token) return.
    - ``regions``: a box is embedded as the mean of the patches in it (``pooled``), or by cropping the image to it
      (``cropped``); the paper of ChEX compares both (supp. E.4).
    - ``losses``: names in `rightlung.models.gloria.losses.LOSSES`. In training, they are those of the recipe.
    - ``contrastive_hard_negatives``: add the texts with "left" and "right" exchanged as negatives to the contrastive
      losses.
    - ``duplicate_texts``: a text with the same words as the image's own is a ``negative`` (both papers), or is ignored.
    - ``mixing``: settings of the losses that mix images or embeddings (`rightlung.models.mixing`).
    - ``compile``: use `torch.compile` for the local loss; faster on a GPU, same results.
    - ``save_dtype``: the number format of saved matrices; vectors are saved in float32.
    """

    loss_types: ClassVar[Mapping[str, type[nn.Module]]] = LOSSES

    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    dimension: int = 768
    word_temperature: float = 5.0
    local_temperature: float = 10.0
    global_temperature: float = 10.0
    heatmap_from: Literal["words", "sentence"] = "words"
    regions: Literal["pooled", "cropped"] = "pooled"
    losses: tuple[str, ...] = ("local", "global")
    contrastive_hard_negatives: bool = False
    duplicate_texts: Literal["negative", "ignore"] = "negative"
    compile: bool = False
    mixing: MixingConfig = field(default_factory=MixingConfig)
    save_dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        check_limits(self.dimension, "dimension", 1, 8192)
        for name in ("word_temperature", "local_temperature", "global_temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)}")
        if self.heatmap_from == "sentence" and self.attention.softmax_over_words:
            raise InputError(
                "heatmap_from 'sentence' needs attention.softmax_over_words: false, because a softmax over one "
                "sentence is 1 everywhere"
            )
        check_losses(self.losses, self.loss_types)
        if "hard_negative_abstention" in self.losses and not self.attention.no_attention_token:
            raise InputError("the loss 'hard_negative_abstention' needs attention.no_attention_token: true")
