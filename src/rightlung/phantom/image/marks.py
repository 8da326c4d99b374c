"""Marks on the finished image: side marker, burned-in text, collimator borders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.randomness import seeds_of, uniforms
from rightlung.phantom.scene import Scene

MARKER_STREAM = 61
_GLYPHS = {
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "B": "11110 10001 10001 11110 10001 10001 11110",
    "C": "01111 10000 10000 10000 10000 10000 01111",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "I": "01110 00100 00100 00100 00100 00100 01110",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "N": "10001 11001 10101 10101 10011 10001 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "P": "11110 10001 10001 11110 10000 10000 10000",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    " ": "00000 00000 00000 00000 00000 00000 00000",
}  # fmt: skip


@lru_cache(maxsize=256)
def lettering(text: str, height: int) -> NDArray[np.float32]:
    """Return text as a map of the given height, 1 on the letters."""
    rows = [[[float(dot) for dot in row] + [0.0] for row in _GLYPHS[letter].split()] for letter in text]
    small = np.concatenate([np.array(letter, dtype=np.float32) for letter in rows], axis=1)[:, :-1]
    width = max(1, round(height * small.shape[1] / 7))
    take_y = np.minimum((np.arange(height) + 0.5) * 7 / height, 6.99).astype(int)
    take_x = np.minimum((np.arange(width) + 0.5) * small.shape[1] / width, small.shape[1] - 0.01).astype(int)
    return np.ascontiguousarray(small[take_y][:, take_x])


def marker_place(scene: Scene, size: int) -> tuple[int, int, int]:
    """Return the marker's left column, top row and height in pixels, on the side of its letter."""
    chance = uniforms(seeds_of([scene.exposure.seed], MARKER_STREAM), 6)[0]
    height = max(7, round(size * (0.03 + 0.02 * chance[0])))
    inset = 0.03 + 0.07 * chance[1]
    left = scene.exposure.collimated[0] + inset
    right = 1 - scene.exposure.collimated[2] - inset
    x = round(left * size) if scene.exposure.marker == "R" else round(right * size) - height
    y = round((scene.exposure.collimated[1] + 0.03 + 0.12 * chance[2]) * size)
    return x, y, height


def exposed_field(scenes: Sequence[Scene], size: int) -> NDArray[np.int64]:
    """Return the exposed field of each image, ``(n, 4)``: first column and row, and the ends (exclusive)."""
    borders = [[round(border * size) for border in scene.exposure.collimated] for scene in scenes]
    found = np.array(borders, dtype=np.int64).reshape(-1, 4)
    found[:, 2:] = size - found[:, 2:]
    return found


def ink(scenes: Sequence[Scene], size: int) -> NDArray[np.int32]:
    """Return the pixels of markers and text, as flat indices into all images ``(n, size, size)``."""
    found: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    for index, scene in enumerate(scenes):
        found += [_stamped(letters, x, y, size) + index * size * size for letters, x, y in _texts(scene, size)]
    return np.concatenate(found).astype(np.int32)


def mark_boxes(scene: Scene, size: int) -> list[list[float]]:
    """Return the corners of the boxes around the side marker and the burned-in text, in fractions of the image."""
    return [
        [x / size, y / size, min(1.0, (x + letters.shape[1]) / size), min(1.0, (y + letters.shape[0]) / size)]
        for letters, x, y in _texts(scene, size)
        if 0 <= x < size and 0 <= y < size
    ]


def _texts(scene: Scene, size: int) -> Iterator[tuple[NDArray[np.float32], int, int]]:
    """Yield the letters of marker and text, each with its left column and top row."""
    exposure = scene.exposure
    if exposure.marker != "none":
        x, y, height = marker_place(scene, size)
        yield lettering(exposure.marker, height), x, y
    if exposure.text_box:
        word = "PORTABLE" if exposure.portable else ("AP" if exposure.view == "AP" else "PA ERECT")
        letters = lettering(word, max(7, round(size * 0.027)))
        x = round(0.03 * size) if exposure.marker != "R" else size - letters.shape[1] - round(0.03 * size)
        yield letters, x, round(0.02 * size)


def _stamped(letters: NDArray[np.float32], x: int, y: int, size: int) -> NDArray[np.int64]:
    """Return the pixels of one image that letters cover, as far as they fit."""
    x, y = min(max(x, 0), size - 1), min(max(y, 0), size - 1)
    rows, columns = np.nonzero(letters[: size - y, : size - x])
    return (rows + y) * size + columns + x


def add_overlays(images: Tensor, inked: Tensor, exposed: Tensor) -> Tensor:
    """Draw white letters at the pixels ``inked`` and black borders outside ``exposed``, in place."""
    flat = images.view(-1)
    inked = inked.long()
    flat[inked] = flat[inked].clamp_min_(0.97)
    return images.mul_(exposed)
