"""Images on the wire: 8-bit PNG to look at, true pixels as 16-bit integers, and changed images."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image as PillowImage

from rightlung.core import Image, Mask
from rightlung.probes.images import Occlusion

LEVELS = 65_535
COVER_RADIUS = 0.1
"""Radius of the disc that covers a peak, in fractions of the image's shorter side."""


def as_png(image: Image, side: int | None = None) -> bytes:
    """Return an image as 8-bit PNG; its longer side has at most ``side`` pixels."""
    picture = PillowImage.fromarray(np.round(image * 255).astype(np.uint8))
    if side is not None and max(picture.size) > side:
        picture.thumbnail((side, side), PillowImage.Resampling.BILINEAR, reducing_gap=2.0)
    return _encoded(picture)


def as_deep_png(image: Image) -> bytes:
    """Return an image as 16-bit PNG, which keeps all grey levels."""
    return _encoded(PillowImage.fromarray(np.round(image.astype(np.float64) * LEVELS).astype(np.uint16)))


def as_words(image: Image) -> bytes:
    """Return the pixels as little-endian uint16, row by row."""
    return np.round(image.astype(np.float64) * LEVELS).astype("<u2").tobytes()


def mask_png(mask: Mask) -> bytes:
    """Return a mask as PNG, 255 where it is set."""
    return _encoded(PillowImage.fromarray(mask.pixels.astype(np.uint8) * 255))


def covered(image: Image, x: float, y: float) -> Image:
    """Return the image with a disc around ``(x, y)`` filled with the mean grey value of the ring around it."""
    height, width = image.shape
    radius = COVER_RADIUS * min(height, width)
    down, across = np.ogrid[:height, :width]
    disc = Mask((down + 0.5 - y * height) ** 2 + (across + 0.5 - x * width) ** 2 <= radius**2)
    return Occlusion(disc, disc)(image)


def _encoded(picture: PillowImage.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=3)
    return file.getvalue()
