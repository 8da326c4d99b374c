"""p-values adjusted for many tests.

``holm`` (1979) bounds the probability of **any** false positive, under any dependence. ``benjamini_hochberg`` (1995)
bounds the expected **share** of false positives, for independent or positively dependent tests.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError
from rightlung.scoring.statistics.inputs import FloatArray, as_floats


def holm(p: ArrayLike) -> FloatArray:
    """Return Holm's adjusted p-values in the given order. NaN stays NaN and does not count as a test.

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    return _adjusted(p, lambda tests: np.maximum.accumulate(tests * np.arange(len(tests), 0, -1)))


def benjamini_hochberg(p: ArrayLike) -> FloatArray:
    """Return Benjamini and Hochberg's adjusted p-values in the given order. NaN stays NaN and does not count.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.04, 0.04]
    """
    return _adjusted(
        p, lambda tests: np.minimum.accumulate((tests * len(tests) / np.arange(1, len(tests) + 1))[::-1])[::-1]
    )


def _adjusted(p: ArrayLike, adjust: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Adjust the p-values that are not NaN, given in ascending order."""
    values = as_floats("p", p)
    outside = (values < 0) | (values > 1)
    if outside.any():
        position = int(outside.argmax())
        raise InputError(f"p[{position}] is {values[position]}; a p-value lies between 0 and 1")
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]  # NaN sorts last
    result = np.full(len(values), np.nan)
    result[order] = np.minimum(adjust(values[order]), 1.0)
    return result
