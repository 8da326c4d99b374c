"""Boxes as tensors: by centre and size, by corners, and in fractions of the image that a square was cut from."""

from __future__ import annotations

import torch
from torch import Tensor

from rightlung.core import Box, Extent, ScoredBox


def to_corners(boxes: Tensor) -> Tensor:
    """Return boxes (..., 4), given by centre and size, as x0, y0, x1, y1."""
    centres, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centres - half, centres + half], dim=-1)


def to_centres(boxes: Tensor) -> Tensor:
    """Return boxes (..., 4), given by corners, as centre x, centre y, width and height."""
    low, high = boxes[..., :2], boxes[..., 2:]
    return torch.cat([(low + high) / 2, high - low], dim=-1)


def generalized_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the generalised IoU of boxes (..., 4) with others (..., 4), given by corners; shapes broadcast."""
    low, high = torch.maximum(boxes[..., :2], others[..., :2]), torch.minimum(boxes[..., 2:], others[..., 2:])
    shared = (high - low).clamp_min(0).prod(-1)
    areas = [(one[..., 2:] - one[..., :2]).clamp_min(0).prod(-1) for one in (boxes, others)]
    union = areas[0] + areas[1] - shared
    outer = torch.maximum(boxes[..., 2:], others[..., 2:]) - torch.minimum(boxes[..., :2], others[..., :2])
    hull = outer.prod(-1)
    return shared / union.clamp_min(1e-7) - (hull - union) / hull.clamp_min(1e-7)


def in_square(box: Box, extent: Extent) -> tuple[float, float, float, float]:
    """Return a box, given as fractions of an image, as fractions of its letterboxed square."""
    return Extent.crop(box).seen_from(extent).as_tuple()


def scored_boxes(boxes: Tensor, scores: Tensor, extent: Extent, label: str | None = None) -> list[ScoredBox]:
    """Return boxes (m, 4) of the square as boxes of the image, the best first; those outside of it are left out."""
    x0, y0, x1, y1 = extent.as_tuple()
    found = []
    for corners, score in zip(to_corners(boxes).tolist(), scores.tolist(), strict=True):
        width, height = x1 - x0, y1 - y0
        box = Box.clipped(
            x0 + corners[0] * width, y0 + corners[1] * height, x0 + corners[2] * width, y0 + corners[3] * height
        )
        found += [] if box is None else [ScoredBox(box, score, label)]
    return sorted(found, key=lambda one: -one.score)
