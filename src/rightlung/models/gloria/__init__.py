"""GLoRIA, with one softmax or two, with and without the No-Attn vector."""

from rightlung.models.gloria.config import AttentionConfig, GloriaConfig
from rightlung.models.gloria.model import Gloria

__all__ = ["AttentionConfig", "Gloria", "GloriaConfig"]
