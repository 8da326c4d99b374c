"""Find the same image in other bytes: re-encoded or resized, under another id.

A thumbnail of 16 x 16 averages (256 bytes) is kept of each image. Re-encoding changes such an average by less than two
grey values of 255; two exposures of one patient differ by tens. The averages of the four quarters select the few
candidates to compare, so that the time per image does not grow with their number.
"""

from __future__ import annotations

from itertools import product
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image
from rightlung.studies.checks.orientation import shrunk

_SIDE = 16
_CELL = 4.0
"""Grey values of 255 by which the averages of quarters are grouped."""
_QUARTER_OFF = 0.75
_MOST_OFF, _MEAN_OFF = 4, 1.25
"""How far thumbnails of the same image may differ, at one place and on average, in grey values of 255."""
_LEAST_CONTRAST = 10.0
"""Below this, all images look alike."""

Known = TypeVar("Known")


class Thumbnails(Generic[Known]):
    """The images seen so far, each with what is known of it."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, ...], list[tuple[NDArray[np.uint8], Known]]] = {}

    def same(self, image: Image, known: Known) -> Known | None:
        """Return what is known of an earlier image that looks the same; if there is none, keep this one."""
        if min(image.shape) < _SIDE:
            return None
        means = 255.0 * shrunk(image, _SIDE)
        if float(means.std()) < _LEAST_CONTRAST:
            return None
        quarters = means.reshape(2, _SIDE // 2, 2, _SIDE // 2).mean(axis=(1, 3)).ravel()
        offsets = (-_QUARTER_OFF, _QUARTER_OFF)
        for cell in product(*(sorted({int((quarter + off) // _CELL) for off in offsets}) for quarter in quarters)):
            for other, first in self._cells.get(cell, ()):
                off = np.abs(means - other)
                if float(off.max()) <= _MOST_OFF and float(off.mean()) <= _MEAN_OFF:
                    return first
        cell = tuple(int(quarter // _CELL) for quarter in quarters)
        self._cells.setdefault(cell, []).append((np.rint(means).astype(np.uint8), known))
        return None
