"""p-values adjusted for many tests.

``holm`` (1979) bounds the probability of **any** false positive, under any dependence. ``benjamini_hochberg`` (1995)
bounds the expected **share** of false positives, for independent or positively dependent tests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError
from rightlung.scoring.statistics.inputs import FloatArray, IndexArray, as_floats


def holm(p: ArrayLike) -> FloatArray:
    """Return Holm's adjusted p-values in the given order. NaN stays NaN and does not count as a test.

    >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    values, order = _checked(p)
    tests = len(order)
    adjusted = np.maximum.accumulate(values[order] * np.arange(tests, 0, -1))
    return _put_back(values, order, adjusted)


def benjamini_hochberg(p: ArrayLike) -> FloatArray:
    """Return Benjamini and Hochberg's adjusted p-values in the given order. NaN stays NaN and does not count.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.04, 0.04]
    """
    values, order = _checked(p)
    tests = len(order)
    raised = values[order] * tests / np.arange(1, tests + 1)
    adjusted = np.minimum.accumulate(raised[::-1])[::-1]
    return _put_back(values, order, adjusted)


def _checked(p: ArrayLike) -> tuple[FloatArray, IndexArray]:
    """Return the p-values, and the positions of those that are not NaN, smallest first."""
    values = as_floats("p", p)
    outside = (values < 0) | (values > 1)
    if outside.any():
        position = int(outside.argmax())
        raise InputError(f"p[{position}] is {values[position]}; a p-value lies between 0 and 1")
    order = np.argsort(values, kind="stable")  # NaN sorts last
    return values, order[: int((~np.isnan(values)).sum())]


def _put_back(values: FloatArray, order: IndexArray, adjusted: FloatArray) -> FloatArray:
    result = np.full(len(values), np.nan)
    result[order] = np.minimum(adjusted, 1.0)
    return result
