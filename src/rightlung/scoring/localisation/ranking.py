"""Pixels sorted by score: one sort for all threshold-free and top-share measures.

The bits of a non-negative float sort like an unsigned integer, and its sign bit is free. Shifted left by one, with the
label in the lowest bit, scores and labels sort together. Within a tie the negatives come first.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32] | NDArray[np.float64]


class Curve(ctypes.Structure):
    """The sums behind AUROC and average precision."""

    wins: int
    """Twice the pairs of a positive and a negative in which the positive scores higher, ties counting one."""
    precision: float
    """The precision at each positive's score (all pixels scoring at least that), added up over the positives."""
    _fields_ = (("wins", ctypes.c_int64), ("precision", ctypes.c_double))


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """Return the compiled sort (``_radix.c``), None if it was not built."""
    path = Path(__file__).with_name("_radix.so")
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    for function in (library.rank32, library.rank64):
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    return library


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
        library, count = compiled(), len(values)
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

    def positives_in_top(self, count: float) -> float:
        """Return how many of the ``count`` highest pixels are positive, fractions included.

        Pixels tied at the cut share the rest equally: the number is an expectation over their order.
        """
        key = self.keys[self.pixels - math.ceil(count)] & ~self.keys.dtype.type(1)
        low = int(np.searchsorted(self.keys, key))
        high = int(np.searchsorted(self.keys, key + self.keys.dtype.type(1), side="right"))
        positives_below, positives_up_to = (int(i) for i in np.searchsorted(self.where, (low, high)))
        tied = (count - (self.pixels - high)) * (positives_up_to - positives_below) / (high - low)
        return self.positives - positives_up_to + tied

    def at_least(self, value: float) -> tuple[int, int]:
        """Return the numbers of pixels and of positives that score ``value`` or more."""
        low = int(np.searchsorted(self.keys, self._key(value)))
        return self.pixels - low, self.positives - int(np.searchsorted(self.where, low))

    def _key(self, value: float) -> Any:
        """Return the key of the smallest score of this precision that is at least ``value``."""
        unsigned = self.keys.dtype.type
        floating = np.float32 if unsigned is np.uint32 else np.float64
        rounded = floating(value)
        if float(rounded) < value:
            rounded = np.nextafter(rounded, floating(np.inf))
        return np.left_shift(np.array(rounded).view(unsigned), unsigned(1))[()]
