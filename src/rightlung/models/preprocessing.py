"""From a radiograph of any shape to the square that the network sees, and back.

Training and inference share these functions, so that they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from rightlung.core import Extent, InputError


def letterbox(image: NDArray[np.float32], size: int) -> tuple[torch.Tensor, Extent]:
    """Bring an image (height, width) in 0–1 to (size, size), padded with black, and say where the square lies in it.

    The extent is that of the pixels actually painted: a side is a whole number of them, so the aspect may change by a
    fraction of a pixel, and the extent knows.
    """
    if image.ndim != 2 or image.size == 0:
        raise InputError(f"an image must be (height, width); got the shape {image.shape}")
    height, width = image.shape
    longest = max(height, width)
    rows, columns = (max(1, round(side * size / longest)) for side in (height, width))
    pixels = torch.from_numpy(np.array(image, dtype=np.float32))[None, None]
    if (rows, columns) != (height, width):
        pixels = interpolate(pixels, (rows, columns), mode="bilinear", align_corners=False, antialias=True)
    top, left = (size - rows) // 2, (size - columns) // 2
    square = torch.zeros(size, size)
    square[top : top + rows, left : left + columns] = pixels[0, 0]
    extent = Extent(-left / columns, -top / rows, (size - left) / columns, (size - top) / rows)
    return square, extent


def letterbox_all(images: Sequence[NDArray[np.float32]], size: int) -> tuple[torch.Tensor, list[Extent]]:
    """Bring every image to a square: (n, size, size) in 0–1, and each one's extent."""
    squares = [letterbox(image, size) for image in images]
    if not squares:
        return torch.zeros(0, size, size), []
    return torch.stack([square for square, _ in squares]), [extent for _, extent in squares]


def letterbox_batches(
    images: Sequence[NDArray[np.float32]], size: int, device: torch.device, count: int = 16
) -> Iterator[tuple[torch.Tensor, list[Extent]]]:
    """Yield the squares (n, 1, size, size) of at most ``count`` images at a time, and their extents."""
    for begin in range(0, len(images), count):
        squares, extents = letterbox_all(images[begin : begin + count], size)
        yield squares[:, None].to(device), extents


def standardise(images: torch.Tensor) -> torch.Tensor:
    """Give each image (n, 1, h, w) a mean of 0 and a standard deviation of 1; a blank one becomes zeros.

    Brightness and contrast of a radiograph are the display's, not the patient's.
    """
    deviation, mean = torch.std_mean(images, dim=(1, 2, 3), keepdim=True, correction=0)
    return (images - mean) / deviation.clamp_min(1e-3)
