"""The configuration of a GLoRIA. Defaults are those of the paper (Huang et al., ICCV 2021) and its released code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError
from rightlung.models.encoders import ImageEncoderConfig, TextEncoderConfig

LossName = Literal[
    "local", "global", "sentence", "side_ranking", "side_separation", "side_abstention", "supervised"
]  # fmt: skip
MaskLoss = Literal["cross_entropy", "attention_inside"]


@dataclass(frozen=True)
class AttentionConfig:
    """How words attend to patches.

    - ``softmaxes``: 1 is the paper's Eq. 1 (over patches). 2 is the released code, which first takes a softmax over the
      words for each patch; the largest attention is then at most exp(temperature) times the smallest.
    - ``scores``: dot products of word and patch embeddings (both papers) or their cosines.
    - ``no_attention_token``: add a learned vector to the patches that words can attend to if the image does not show
      them ("That's the Wrong Lung!", section 4.1).
    """

    softmaxes: Literal[1, 2] = 1
    scores: Literal["dot_product", "cosine"] = "dot_product"
    temperature: float = 4.0
    learn_temperature: bool = False
    no_attention_token: bool = False

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive; got {self.temperature}")


@dataclass(frozen=True)
class GloriaConfig:
    """Encoders, attention, temperatures and losses.

    - ``heatmap_from``: a phrase's heatmap is the mean attention of its ``words`` ("That's the Wrong Lung!"), or the
      attention of the ``sentence``, i.e. of its mean word embedding.
    - ``losses``: the terms to compute in training (`rightlung.models.gloria.losses`); the recipe gives their weights.
    - ``hard_negatives``: add the texts with "left" and "right" exchanged as negatives to the contrastive losses.
    - ``duplicate_texts``: a text with the same words as the image's own is a ``negative`` (both papers), or is ignored.
    - ``mask_loss``: the supervised loss is the ``cross_entropy`` of attention and mask, which spreads the attention
      evenly over the mask, or the negative logarithm of the ``attention_inside`` the mask, as in the code of the
      few-shot variant of "That's the Wrong Lung!".
    - ``compile``: use `torch.compile` for the local loss; faster on a GPU, same results.
    - ``storage``: the precision in which matrices are saved; vectors are saved in float32.
    """

    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    dimension: int = 768
    word_temperature: float = 5.0  # multiplies the cosine of word and context in the log-sum-exp over words
    local_temperature: float = 10.0
    global_temperature: float = 10.0
    heatmap_from: Literal["words", "sentence"] = "words"
    losses: tuple[LossName, ...] = ("local", "global")
    hard_negatives: bool = False
    duplicate_texts: Literal["negative", "ignore"] = "negative"
    mask_loss: MaskLoss = "cross_entropy"
    compile: bool = False
    storage: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        check_limits(self.dimension, "dimension", 1, 8192)
        for name in ("word_temperature", "local_temperature", "global_temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)}")
        if self.heatmap_from == "sentence" and self.attention.softmaxes == 2:
            raise InputError(
                "heatmap_from 'sentence' needs attention.softmaxes 1: a softmax over a single word is 1 everywhere"
            )
        if not self.losses:
            raise InputError("losses must name at least one loss")
        if "side_abstention" in self.losses and not self.attention.no_attention_token:
            raise InputError("the loss 'side_abstention' needs attention.no_attention_token: true")
