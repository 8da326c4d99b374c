"""Pixels sorted by score: one sort for all threshold-free and top-share measures.

The bits of a non-negative float sort like an unsigned integer, and its sign bit is free. Shifted left by one, with the
label in the lowest bit, scores and labels sort together. Within a tie the negatives come first.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.scoring.localisation import compiled

Floats = NDArray[np.float32] | NDArray[np.float64]


class Curve(ctypes.Structure):
    """The sums behind AUROC and average precision."""

    wins: int
    """Twice the pairs of a positive and a negative in which the positive scores higher, ties counting one."""
    precision: float
    """The precision at each positive's score (all pixels scoring at least that), added up over the positives."""
    _fields_ = (("wins", ctypes.c_int64), ("precision", ctypes.c_double))


@dataclass(slots=True)
class Ranking:
    """The pixels of a map in the order of their scores."""

    pixels: int
    positives: int
    keys: NDArray[Any]  # (pixels,) unsigned, ascending: score bits << 1 | label
    where: NDArray[np.int64]  # (positives,) positions of the positives in `keys`
    _curve: Curve | None = None

    @classmethod
    def of(cls, values: Floats, mask: NDArray[np.bool_]) -> Ranking:
        """Sort ``values`` (pixels,), checked non-negative, with the labels in ``mask`` (pixels,)."""
        values, mask = cast(Floats, np.ascontiguousarray(values)), np.ascontiguousarray(mask)
        unsigned = np.uint32 if values.dtype == np.float32 else np.uint64
        library, count = compiled.compiled(), len(values)
        if library is None:
            keys = np.left_shift(values.view(unsigned), 1)  # drops the sign of a negative zero on the way
            np.bitwise_or(keys, mask, out=keys)
            keys.sort()
            where = np.flatnonzero(np.bitwise_and(keys, 1).astype(np.bool_))
            return cls(count, len(where), keys, where)
        keys = np.empty(count, dtype=unsigned)
        where = np.empty(np.count_nonzero(mask) + 1, dtype=np.int64)  # the compiled loop writes one place ahead
        curve = Curve()
        rank = library.rank32 if unsigned is np.uint32 else library.rank64
        found = rank(
            values.ctypes.data, mask.ctypes.data, count, keys.ctypes.data, where.ctypes.data, ctypes.addressof(curve)
        )
        if found < 0:
            raise MemoryError(f"no memory to sort {count} pixels")
        return cls(count, found, keys, where[:found], curve)

    def curve(self) -> Curve:
        """Return the sums over all ties."""
        if self._curve is None:
            scores = self.keys[self.where]
            starts = np.flatnonzero(np.concatenate(([True], scores[1:] != scores[:-1])))
            first, score = self.where[starts], scores[starts]
            negatives = np.zeros_like(first)
            # Negatives of a tie come right before its positives; only where there are any is their start searched for.
            tied = np.flatnonzero((first > 0) & (self.keys[first - 1] == score - 1))
            negatives[tied] = first[tied] - np.searchsorted(self.keys, score[tied] - 1)
            positives, negatives_below = np.diff(np.append(starts, self.positives)), first - starts - negatives
            wins = positives * (2 * negatives_below + negatives)
            precision = positives * ((self.positives - starts) / (self.pixels - starts - negatives_below))
            self._curve = Curve(int(wins.sum()), float(precision.sum()))
        return self._curve

    def positives_in_top(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Return how many of the highest pixels are positive, for numbers of pixels ``counts``, fractions included.

        Pixels tied at the cut share the rest equally: the number is an expectation over their order.
        """
        wanted = np.asarray(counts, dtype=np.float64)
        tied = self.keys[self.pixels - np.ceil(wanted).astype(np.int64)] & ~self.keys.dtype.type(1)
        low, high = np.searchsorted(self.keys, tied), np.searchsorted(self.keys, tied | 1, side="right")
        positives_below, positives_up_to = np.searchsorted(self.where, low), np.searchsorted(self.where, high)
        rest = (wanted - (self.pixels - high)) * (positives_up_to - positives_below) / (high - low)
        above: NDArray[np.float64] = self.positives - positives_up_to + rest
        return above

    def at_least(self, levels: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of pixels and of positives that score each of ``levels`` (float64) or more."""
        low = np.searchsorted(self.keys, self._keys(np.asarray(levels, dtype=np.float64)))
        return self.pixels - low, self.positives - np.searchsorted(self.where, low)

    def _keys(self, levels: NDArray[np.float64]) -> NDArray[Any]:
        """Return the keys of the smallest scores of this precision that are at least ``levels``."""
        unsigned = self.keys.dtype
        floating = np.float32 if unsigned == np.uint32 else np.float64
        rounded = levels.astype(floating)
        below = rounded.astype(np.float64) < levels
        rounded[below] = np.nextafter(rounded[below], floating(np.inf))
        keys: NDArray[Any] = np.left_shift(rounded.view(unsigned), 1)
        return keys
