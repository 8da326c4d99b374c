"""GLoRIA's training losses by name. A new one is a `Loss`, a line here, and a name in `gloria.config.LossName`."""

from rightlung.models.gloria.config import LossName
from rightlung.models.gloria.losses.base import GloriaStep, Loss
from rightlung.models.gloria.losses.contrastive import GlobalContrastive, LocalContrastive, SentenceContrastive
from rightlung.models.gloria.losses.sided import SideAbstention, SideRanking, SideSeparation
from rightlung.models.gloria.losses.supervised import MaskSupervision

LOSSES: dict[LossName, type[Loss]] = {
    "local": LocalContrastive,
    "global": GlobalContrastive,
    "sentence": SentenceContrastive,
    "side_ranking": SideRanking,
    "side_separation": SideSeparation,
    "side_abstention": SideAbstention,
    "supervised": MaskSupervision,
}

__all__ = ["LOSSES", "GloriaStep", "Loss"]
