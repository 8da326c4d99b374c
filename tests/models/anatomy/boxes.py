"""Overlaps, written out."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def iou(one: Tensor, other: Tensor) -> float:
    """Return the share of the union of two masks that both cover."""
    return float((one & other).sum()) / max(1.0, float((one | other).sum()))


def box_iou(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the same of two boxes by their corners."""
    width = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)
