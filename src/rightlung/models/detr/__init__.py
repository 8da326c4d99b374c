"""The supervised detection baseline: Conditional DETR, trained on boxes of findings."""

from rightlung.models.detr.model import ConditionalDetr, DetrConfig

__all__ = ["ConditionalDetr", "DetrConfig"]
