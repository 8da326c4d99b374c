"""Input checks that several types share."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, shortened

Size = tuple[int, int]
"""``(height, width)`` in pixels, as in ``array.shape``."""


def as_array(values: ArrayLike, what: str) -> NDArray[Any]:
    """Return a new array of ``values``; rows of different lengths are an error."""
    try:
        return np.array(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{what} must be a rectangular array of numbers: {error}") from None


def as_booleans(array: NDArray[Any], what: str) -> NDArray[np.bool_]:
    """Return an array of booleans, or of zeros and ones, as booleans."""
    if array.dtype == np.bool_:
        return array
    numbers_given = array.dtype.kind in "fiu"
    foreign = array[(array != 0) & (array != 1)] if numbers_given else array
    if foreign.size or not numbers_given:
        found = foreign[0] if numbers_given else array.dtype
        raise InputError(f"{what} must hold booleans, or zeros and ones only; got {found}")
    return array.astype(np.bool_)


def check_size(size: Sequence[int], what: str = "size") -> Size:
    """Return ``size`` as ``(height, width)``; anything but two positive integers is an error."""
    good = isinstance(size, Sequence) and len(size) == 2
    if not good or not all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and side > 0 for side in size
    ):
        raise InputError(f"{what} must be (height, width), two positive integers; got {size!r}")
    return int(size[0]), int(size[1])


def check_number(value: object, what: str) -> float:
    """Return ``value`` as a finite float; booleans and text are errors."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise InputError(f"{what} must be a number; got {shortened(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise InputError(f"{what} is too large for a floating-point number") from None
    if not math.isfinite(number):
        raise InputError(f"{what} must be finite; got {number}")
    return number


def check_limits(value: float, what: str, low: float, high: float = math.inf) -> None:
    """Refuse a value below ``low`` or above ``high``."""
    if not low <= value <= high:
        wanted = f"at least {low}" if high == math.inf else f"from {low} to {high}"
        raise InputError(f"{what} must be {wanted}; got {value:g}")


def check_text(value: object, what: str) -> str:
    """Return ``value`` if it is a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{what} must be a text with at least one character; got {shortened(value)}")
    return value
