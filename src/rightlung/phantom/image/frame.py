"""The position of the chest in the image: conversion between centimetres, fractions and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.anatomy import AXIS, FIELD
from rightlung.phantom.image.columns import ColumnTensors
from rightlung.phantom.image.randomness import Floats
from rightlung.phantom.image.strokes import Chain, Strokes
from rightlung.phantom.scene import Exposure


@dataclass(frozen=True, slots=True)
class Frame:
    """The scale, tilt and origin of ``n`` images."""

    scale: Floats  # (n,) fractions per centimetre
    cosine: Floats
    sine: Floats
    origin: Floats  # (n, 2) fractions

    @staticmethod
    def of(exposures: Sequence[Exposure]) -> Frame:
        """Return the frames of exposures."""
        tilt = np.radians([exposure.tilt for exposure in exposures])
        return Frame(
            scale=np.array([exposure.zoom for exposure in exposures]) / FIELD,
            cosine=np.cos(tilt),
            sine=np.sin(tilt),
            origin=0.5 + np.array([exposure.shift for exposure in exposures], dtype=np.float64),
        )

    def take(self, index: NDArray[np.int64]) -> Frame:
        """Return the frames of some images, possibly repeated."""
        return Frame(self.scale[index], self.cosine[index], self.sine[index], self.origin[index])

    def to_fractions(self, points: Floats) -> Floats:
        """Convert points ``(n, ..., 2)`` from centimetres to fractions of the image."""
        shape = (-1, *[1] * (points.ndim - 2))
        cosine, sine, scale = (v.reshape(shape) for v in (self.cosine, self.sine, self.scale))
        x, y = points[..., 0], points[..., 1]
        turned = np.stack([(cosine * x - sine * y) * scale, (sine * x + cosine * y) * scale], axis=-1)
        return turned + self.origin.reshape(-1, *[1] * (points.ndim - 2), 2)

    def columns(self, size: int) -> dict[str, Floats]:
        """Return the columns for drawing at a size; ``pixel`` is the size of a pixel in centimetres."""
        return {
            "scale": self.scale,
            "cosine": self.cosine,
            "sine": self.sine,
            "origin_x": self.origin[:, 0],
            "origin_y": self.origin[:, 1],
            "pixel": 1.0 / (self.scale * size),
        }

    def strokes(self, chain: Chain, layers: int, size: int) -> Strokes:
        """Return the strokes between successive points of a chain, on one of the ``layers`` of each image."""
        points, radius, layer = chain
        pixels = self.to_fractions(points) * size
        thick = np.broadcast_to(radius * (self.scale * size)[:, None, None], points.shape[:-1])
        count, chains, length = thick.shape
        return Strokes(
            pixels[:, :, :-1].reshape(-1, 2),
            pixels[:, :, 1:].reshape(-1, 2),
            np.stack([thick[:, :, :-1].ravel(), thick[:, :, 1:].ravel()], axis=1),
            np.repeat(np.arange(count, dtype=np.int64) * layers + layer, chains * (length - 1)),
        )


def grid(frames: ColumnTensors, size: int) -> tuple[Tensor, Tensor]:
    """Return the coordinates of all pixel centres in centimetres, each ``(n, size, size)``."""
    scale, cosine, sine = frames["scale"], frames["cosine"], frames["sine"]
    steps = (torch.arange(size, device=scale.device, dtype=torch.float32) + 0.5) / size
    across = (steps[None, None, :] - frames["origin_x"]) / scale
    down = (steps[None, :, None] - frames["origin_y"]) / scale
    return across * cosine + down * sine, down * cosine - across * sine


def look_up(tables: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
    """Interpolate ``tables (n, k, len(AXIS))`` at ``positions (n, h, w)`` in centimetres and return ``k`` maps."""
    place = ((positions - AXIS[0]) * (1.0 / (AXIS[1] - AXIS[0]))).clamp_(0, len(AXIS) - 1.01)
    low = place.long()
    share = (place - low).flatten(1)
    index = low.flatten(1)[:, None].expand(-1, tables.shape[1], -1)
    first, second = tables.gather(2, index), tables.gather(2, index + 1)
    return first.lerp_(second, share[:, None]).view(len(positions), -1, *positions.shape[1:]).unbind(1)
