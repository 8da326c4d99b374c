"""GLoRIA, as in its paper or its released code, with or without a no-attention token."""

from rightlung.models.gloria.config import AttentionConfig, GloriaConfig
from rightlung.models.gloria.model import Gloria

__all__ = ["AttentionConfig", "Gloria", "GloriaConfig"]
