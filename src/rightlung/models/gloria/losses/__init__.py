"""GLoRIA's training losses by name. To add one, write a `Loss` and enter it in `LOSSES`."""

from torch import nn

from rightlung.models.gloria.losses.alignment import Coral
from rightlung.models.gloria.losses.base import GloriaLossInputs, Loss
from rightlung.models.gloria.losses.contrastive import GlobalContrastive, LocalContrastive, SentenceContrastive
from rightlung.models.gloria.losses.hard_negatives import (
    HardNegativeAbstention,
    HardNegativeOverlap,
    HardNegativeRanking,
)
from rightlung.models.gloria.losses.masks import AttentionInMask, MaskCrossEntropy
from rightlung.models.mixing import MIXING_LOSSES

LOSSES: dict[str, type[nn.Module]] = {
    "local": LocalContrastive,
    "global": GlobalContrastive,
    "sentence": SentenceContrastive,
    "hard_negative_ranking": HardNegativeRanking,
    "hard_negative_overlap": HardNegativeOverlap,
    "hard_negative_abstention": HardNegativeAbstention,
    "mask_cross_entropy": MaskCrossEntropy,
    "attention_in_mask": AttentionInMask,
    "coral": Coral,
    **MIXING_LOSSES,
}

__all__ = ["LOSSES", "GloriaLossInputs", "Loss"]
