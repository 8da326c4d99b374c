"""What a GLoRIA is made of. The defaults are the paper's (Huang et al., ICCV 2021) and its released settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rightlung.core.errors import InputError
from rightlung.models.encoders import ImageEncoderConfig, TextEncoderConfig

LossName = Literal["local", "global", "sentence", "sides", "apart", "abstain", "supervised"]


@dataclass(frozen=True)
class AttentionConfig:
    """How words attend to regions.

    ``softmaxes`` is 1 for the paper's Eq. 1 (over regions) and 2 for the released code, which first takes a softmax
    over the words of each region: the most attended region then has at most e^temperature times the least. ``scores``
    are plain products of word and region (both papers) or cosines. ``no_attention`` adds one learned vector to the
    regions, on which a word can spend its attention when it is seen nowhere ("That's the Wrong Lung!", section 4.1).
    """

    softmaxes: Literal[1, 2] = 1
    scores: Literal["product", "cosine"] = "product"
    temperature: float = 4.0
    learn_temperature: bool = False
    no_attention: bool = False

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"temperature must be positive; got {self.temperature}")


@dataclass(frozen=True)
class GloriaConfig:
    """Encoders, attention, temperatures, and what is learned from.

    ``map_of`` says whose attention is a phrase's map: the mean over its ``words`` ("That's the Wrong Lung!"), or that
    of the ``sentence``, the mean of its words, as if it were one word. ``losses`` are those computed in training; their
    weights are the recipe's: ``local`` and ``global`` are GLoRIA's; ``sentence`` compares a sentence, as if it were one
    word, with the region that fits it best (a soft maximum), so that what is compared is what the map shows; ``sides``
    compares it, in its own image alone, with the same sentence whose side is exchanged ("left" for "right"), for
    sentences that name one side, ``apart`` wants their attentions apart, and ``abstain`` wants the exchanged one's on
    nothing, and its own anywhere else; ``supervised`` compares attention with masks. ``contrary`` makes of a text with
    its side exchanged a wrong text of its image in every loss that learns from pairs, among all the others. None of
    these looks at an exchanged text that the batch has among the image's own. ``duplicates`` says what a text is to an
    image that has the very same text beside it: a ``negative`` (both papers), or one to ``ignore``. ``supervision``
    compares attention with masks: ``spread`` wants it even over the target (cross-entropy), ``inside`` only wants it
    somewhere in it (minus the logarithm of the sum, as the few-shot variant of "That's the Wrong Lung!" is coded).
    ``compiled`` is for speed on a GPU and changes nothing else. ``storage`` is the precision in which matrices are
    saved; vectors stay as they are.
    """

    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    dimension: int = 768
    word_temperature: float = 5.0  # of the cosine of word and context, before words are summed up
    local_temperature: float = 10.0
    global_temperature: float = 10.0
    map_of: Literal["words", "sentence"] = "words"
    losses: tuple[LossName, ...] = ("local", "global")
    contrary: bool = False
    duplicates: Literal["negative", "ignore"] = "negative"
    supervision: Literal["spread", "inside"] = "spread"
    compiled: bool = False
    storage: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= 8192:
            raise InputError(f"dimension must be 1 to 8192; got {self.dimension}")
        for name in ("word_temperature", "local_temperature", "global_temperature"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)}")
        if self.map_of == "sentence" and self.attention.softmaxes == 2:
            raise InputError(
                "map_of 'sentence' needs attention.softmaxes 1: a softmax over a single word is 1 everywhere"
            )
        if not self.losses:
            raise InputError("losses must name at least one loss")
        if "abstain" in self.losses and not self.attention.no_attention:
            raise InputError(
                "the loss 'abstain' needs attention.no_attention: without it there is nothing to attend to"
            )
