"""Core types, which all other packages use. Imports nothing else of rightlung.

Names are imported on first use, so that ``rightlung.core.errors`` alone does not import NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightlung.core.box import Box, union_area, union_iou
    from rightlung.core.checks import Size
    from rightlung.core.errors import InputError, OutputError
    from rightlung.core.frozen import FrozenMapping
    from rightlung.core.heatmap import Extent, Heatmap
    from rightlung.core.mask import Mask
    from rightlung.core.problem import Problem, ProblemError
    from rightlung.core.study import Grounding, Image, Phrase, Polarity, Query, Report, ScoredBox, Sentence, Study

_HOMES = {
    "box": ("Box", "union_area", "union_iou"),
    "checks": ("Size",),
    "errors": ("InputError", "OutputError"),
    "frozen": ("FrozenMapping",),
    "heatmap": ("Extent", "Heatmap"),
    "mask": ("Mask",),
    "problem": ("Problem", "ProblemError"),
    "study": ("Grounding", "Image", "Phrase", "Polarity", "Query", "Report", "ScoredBox", "Sentence", "Study"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Box", "Extent", "FrozenMapping", "Grounding", "Heatmap", "Image", "InputError", "Mask", "OutputError", "Phrase",
    "Polarity", "Problem", "ProblemError", "Query", "Report", "ScoredBox", "Sentence", "Size", "Study", "union_area",
    "union_iou",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rightlung.core' has no attribute {name!r}")
    value = getattr(import_module(f"rightlung.core.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
