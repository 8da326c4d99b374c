"""The supervised grounding baseline: TransVG, trained on phrases with boxes."""

from rightlung.models.transvg.model import TransVg, TransVgConfig

__all__ = ["TransVg", "TransVgConfig"]
