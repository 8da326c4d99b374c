"""FITA: report generation with fine-grained image-text alignment, on KiUT's U-Transformer."""

from rightlung.models.fita.config import FitaConfig
from rightlung.models.fita.model import Fita

__all__ = ["Fita", "FitaConfig"]
