"""The nouns: values that every other room of the house passes along. Imports nothing of ours."""

from rightlung.core.box import Box, Size, union_area, union_iou
from rightlung.core.errors import InputError, OutputError
from rightlung.core.frozen import FrozenMapping
from rightlung.core.heatmap import Extent, Heatmap
from rightlung.core.mask import Mask
from rightlung.core.study import (
    Grounding,
    Image,
    Phrase,
    Polarity,
    Query,
    Report,
    ScoredBox,
    Sentence,
    Study,
)

__all__ = [
    "Box", "Extent", "FrozenMapping", "Grounding", "Heatmap", "Image", "InputError", "Mask", "OutputError", "Phrase",
    "Polarity", "Query", "Report", "ScoredBox", "Sentence", "Size", "Study", "union_area", "union_iou",
]  # fmt: skip
