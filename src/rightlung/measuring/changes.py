"""How much an answer changes under a condition, whatever the target: a score can stay while the map moves.

The maps without and with the condition are resampled to a common grid and scaled to a mass of one. ``moved_mass`` (map
change) is their total variation: 0 for equal maps, 1 for maps that do not overlap. ``moved_peak`` (peak displacement)
is the distance of their peaks in fractions of the image. ``kl_random`` is the divergence from the answer to a random
sentence on the same cells. Under a condition that turns the image (`rightlung.probes.turns`), ``turned_mass`` and
``turned_peak`` compare the map after turning it back: a map that follows the image is then equal.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rightlung.core.resampling import resampling_matrix
from rightlung.explain.peak import peaks
from rightlung.measuring.maps import AnswerMap, painted, symmetric_divergence
from rightlung.predictions import Key
from rightlung.probes.turns import TURNED, TURNS

GRID = 64
PLAIN, RANDOM = "none", "random-sentence"

FloatMap = NDArray[np.float32]


class Changes(AbstractContextManager["Changes"]):
    """Compares answers under a condition with those to the unchanged question, in any order.

    Answers that are needed again are kept in a temporary file until the context ends. ``values`` holds the changes by
    name and row of the table.
    """

    def __init__(self, regions: Collection[str] = ()) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="rightlung-maps-")  # noqa: SIM115  (closed in __exit__)
        self._places: dict[Key, int] = {}
        self._rows: dict[Key, Sequence[int]] = {}
        self._waiting: dict[Key, list[Key]] = {}
        self.regions = regions
        names = ("moved_mass", "moved_peak", "turned_mass", "turned_peak", "kl_random")
        self.values: dict[str, dict[int, float]] = {name: {} for name in names}

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: Key, answer: AnswerMap, rows: Sequence[int]) -> None:
        """Add an answer and the rows of the table that hold it."""
        plain = Key(key.study, key.query, PLAIN)
        if key == plain:
            self._keep(key, answer, rows)
            for other in self._waiting.pop(plain, ()):
                self._compare(plain, answer, other, self._kept(other))
        elif plain in self._places:
            self._rows[key] = rows
            self._compare(plain, self._kept(plain), key, answer)
        else:
            self._keep(key, answer, rows)
            self._waiting.setdefault(plain, []).append(key)

    def _keep(self, key: Key, answer: AnswerMap, rows: Sequence[int]) -> None:
        self._rows[key], self._places[key] = rows, self._file.seek(0, 2)
        pickle.dump((answer.values, answer.extent, answer.boxes), self._file)

    def _kept(self, key: Key) -> AnswerMap:
        self._file.seek(self._places[key])
        return AnswerMap(*pickle.load(self._file))

    def _compare(self, plain: Key, answer: AnswerMap, key: Key, changed: AnswerMap) -> None:
        before, after = on_common_grid(answer), on_common_grid(changed)
        if before is not None and after is not None:
            self._note("moved_mass", key, moved_mass(before, after))
            self._note("moved_peak", key, moved_peak(before, after))
            if key.condition in TURNED:
                back = TURNS[TURNED[key.condition]][1](after)
                self._note("turned_mass", key, moved_mass(before, back))
                self._note("turned_peak", key, moved_peak(before, back))
        if key.condition == RANDOM:
            (cells, shares), (others, other_shares) = (one.distribution(self.regions) for one in (answer, changed))
            if cells == others and shares is not None and other_shares is not None:
                self._note("kl_random", plain, symmetric_divergence(shares, other_shares))

    def _note(self, name: str, key: Key, value: float) -> None:
        self.values[name] |= dict.fromkeys(self._rows[key], value)


def on_common_grid(answer: AnswerMap) -> FloatMap | None:
    """Return an answer on the common grid with a total mass of one; None if it has no mass in the image."""
    if answer.values is not None:
        x0, y0, x1, y1 = answer.extent
        scaled = answer.values.astype(np.float64) / (float(answer.values.max()) or 1.0)
        mass = _matrix(scaled.shape[0], y0, y1) @ scaled @ _matrix(scaled.shape[1], x0, x1).T
    else:
        mass = painted(answer.boxes or (), (GRID, GRID)).astype(np.float64)
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
    """Return the distance of two maps' peaks, in fractions of the image's width and height."""
    x, y, _ = peaks(np.stack([before, after]))
    return float(np.hypot(x[1] - x[0], y[1] - y[0]))
