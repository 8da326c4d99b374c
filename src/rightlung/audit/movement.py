"""How far an answer moves when the question is changed, whatever the truth: scores can stay while the map goes.

The two maps, as asked and changed, are brought onto a common grid over the image, each with its own mass as one.
``moved_mass`` is half the sum of their absolute differences (total variation): the share of the mass that would have
to be carried elsewhere, 0 for the same map, 1 for maps that nowhere overlap. ``moved_peak`` is how far apart the peaks
lie, in fractions of the image's width and height; of tied peaks, the middle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rightlung.audit.pixels import painted
from rightlung.core.resampling import resampling_matrix
from rightlung.predictions import Predictions

GRID = 64
_TIE = 1e-6  # the cells of one native cell differ in the last digits

FloatMap = NDArray[np.float32]
Question = tuple[str, str]
"""A study and a query."""


class PlainAnswers:
    """The answers to questions as they stand, on the common grid, in a temporary file; a context that removes it.

    They are needed when the same question comes again under a condition, wherever in the predictions that is.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="rightlung-maps-")  # noqa: SIM115  (closed in __exit__)
        self._places: dict[Question, int] = {}

    def __enter__(self) -> PlainAnswers:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def gather(
        self, predictions: Predictions, wanted: Collection[Question], progress: Callable[[int], None] | None = None
    ) -> None:
        """Keep the answers to those of the ``wanted`` questions that were also asked under a condition."""
        changed = {(key.study, key.query) for key in predictions.keys() if key.condition != "none"}  # noqa: SIM118
        changed &= set(wanted)
        read = 0
        for batch in predictions.batches() if changed else ():
            boxes, extents = batch.column("boxes"), batch.extents
            for index, key in enumerate(batch.keys):
                question = key.study, key.query
                if key.condition == "none" and question in changed:
                    shares = on_common_grid(batch.maps[index], extents[index].tolist(), boxes[index])
                    if shares is not None:
                        self._places[question] = len(self._places)
                        self._file.seek(self._places[question] * shares.nbytes)
                        self._file.write(shares.tobytes())
            read += len(batch)
            if progress is not None:
                progress(read)

    def movement(
        self,
        question: Question,
        values: NDArray[np.float32] | None,
        extent: Sequence[float],
        boxes: Sequence[Mapping[str, Any]] | None,
    ) -> dict[str, float]:
        """Return how far the changed answer lies from the plain one; nothing where one of them is not there."""
        if question not in self._places:
            return {}
        after = on_common_grid(values, extent, boxes)
        if after is None:
            return {}
        self._file.seek(self._places[question] * after.nbytes)
        before = np.frombuffer(self._file.read(after.nbytes), dtype=np.float32).reshape(GRID, GRID)
        return {"moved_mass": moved_mass(before, after), "moved_peak": moved_peak(before, after)}


def on_common_grid(
    values: NDArray[np.float32] | None, extent: Sequence[float], boxes: Sequence[Mapping[str, Any]] | None
) -> FloatMap | None:
    """Return an answer's mass by cells of the common grid, one in all; ``None`` where none lies in the image."""
    if values is not None:
        x0, y0, x1, y1 = extent
        scaled = values.astype(np.float64) / (float(values.max()) or 1.0)
        mass = _matrix(values.shape[0], y0, y1) @ scaled @ _matrix(values.shape[1], x0, x1).T
    else:
        mass = painted(boxes or (), (GRID, GRID)).astype(np.float64)
    total = float(mass.sum())
    return (mass / total).astype(np.float32) if total > 0 else None


@lru_cache(maxsize=512)
def _matrix(cells: int, low: float, high: float) -> NDArray[np.float64]:
    return resampling_matrix(GRID, cells, low, high, "area")


def moved_mass(before: FloatMap, after: FloatMap) -> float:
    """Return the total variation between two maps of mass one.

    >>> moved_mass(np.array([[1.0, 0.0]], np.float32), np.array([[0.75, 0.25]], np.float32))
    0.25
    """
    return min(1.0, float(np.abs(before.astype(np.float64) - after).sum()) / 2)


def moved_peak(before: FloatMap, after: FloatMap) -> float:
    """Return how far apart two maps' peaks lie, in fractions of the image's width and height."""
    (x, y), (other_x, other_y) = _peak(before), _peak(after)
    return float(np.hypot(other_x - x, other_y - y))


def _peak(values: FloatMap) -> tuple[float, float]:
    rows, columns = np.nonzero(values >= values.max() * (1 - _TIE))
    return float((columns.mean() + 0.5) / values.shape[1]), float((rows.mean() + 0.5) / values.shape[0])
