"""The sums over a map's pixels behind the measures that need no order, and these measures."""

from __future__ import annotations

import ctypes
import math

import numpy as np
from numpy.typing import NDArray

from rightlung.scoring.localisation import compiled
from rightlung.scoring.localisation.ranking import Floats


class Sums(ctypes.Structure):
    """Sums over the pixels of a map; x is the score divided by the highest score, so that nothing overflows."""

    mass: float
    """Sum of the scores."""
    inside: float
    """Sum of x inside the mask."""
    outside: float
    """Sum of x outside the mask."""
    logarithms: float
    """Sum of x ln x."""
    variance_inside: float
    """Variance of x inside the mask; exactly zero if all are equal."""
    variance_outside: float
    """Variance of x outside the mask; exactly zero if all are equal."""
    peaks: int
    """Number of pixels with the highest score."""
    hits: int
    """Number of these inside the mask."""
    _fields_ = (
        *((name, ctypes.c_double) for name in ("mass", "inside", "outside", "logarithms")),
        *((name, ctypes.c_double) for name in ("variance_inside", "variance_outside")),
        *((name, ctypes.c_int64) for name in ("peaks", "hits")),
    )

    @classmethod
    def of(cls, values: Floats, mask: NDArray[np.bool_], highest: float) -> Sums:
        """Sum up ``values`` (pixels,), non-negative with the maximum ``highest``, inside and outside of ``mask``."""
        library = compiled.compiled()
        if library is None:
            return _with_numpy(values.astype(np.float64), mask, highest)
        dense, inside, sums = np.ascontiguousarray(values), np.ascontiguousarray(mask), cls()
        function = library.sums32 if dense.dtype == np.float32 else library.sums64
        function(dense.ctypes.data, inside.ctypes.data, len(dense), highest, ctypes.addressof(sums))
        return sums

    @property
    def total(self) -> float:
        """Sum of x."""
        return self.inside + self.outside

    def entropy(self) -> float:
        """Return the entropy in nats of the map as a distribution: 0 for a single point, ln(pixels) for a flat map."""
        return max(0.0, math.log(self.total) - self.logarithms / self.total)

    def contrast_to_noise(self, positives: int, negatives: int) -> float:
        """Return (mean inside − mean outside) / √(variance inside + variance outside), signed.

        BioViL (Boecking et al., ECCV 2022) takes the absolute value, which scores an inverted map like a good one. NaN
        if both variances are zero.
        """
        variance = self.variance_inside + self.variance_outside
        difference = self.inside / positives - self.outside / negatives
        return difference / math.sqrt(variance) if variance > 0 else math.nan


def _with_numpy(values: NDArray[np.float64], mask: NDArray[np.bool_], highest: float) -> Sums:
    shares, peaks = values / (highest or 1.0), values == highest
    some = shares[shares > 0]  # zero times its logarithm is zero
    sides = shares[mask], shares[~mask]
    variances = [side.var() if side.size and side.min() < side.max() else 0.0 for side in sides]
    hits = np.count_nonzero(peaks & mask)
    logarithms = (some * np.log(some)).sum()
    return Sums(values.sum(), *(side.sum() for side in sides), logarithms, *variances, np.count_nonzero(peaks), hits)
