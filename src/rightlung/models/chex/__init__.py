"""ChEX: boxes for texts, and sentences for texts and boxes (Müller et al., ECCV 2024)."""

from rightlung.models.chex.config import ChexConfig
from rightlung.models.chex.model import Chex
from rightlung.models.chex.reports import ReportSettings

__all__ = ["Chex", "ChexConfig", "ReportSettings"]
