"""eCLIP (Kumar & Marttinen, ECCV 2024): a CLIP or GLoRIA that also learns from where experts looked."""

from rightlung.models.eclip.config import EclipConfig, EclipGloriaConfig, ExpertConfig
from rightlung.models.eclip.model import Eclip, EclipGloria
from rightlung.models.eclip.processor import build_processor

__all__ = ["Eclip", "EclipConfig", "EclipGloria", "EclipGloriaConfig", "ExpertConfig", "build_processor"]
