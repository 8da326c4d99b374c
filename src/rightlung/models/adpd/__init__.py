"""The weakly supervised detection baseline: findings of anatomical regions."""

from rightlung.models.adpd.model import Adpd, AdpdConfig

__all__ = ["Adpd", "AdpdConfig"]
