"""Settings that change during a run: a number, or points ``[fraction of the run, value]`` joined by straight lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rightlung.core.checks import check_number
from rightlung.core.errors import InputError

Curve = float | Sequence[Sequence[float]]


def value_at(curve: Curve, fraction: float) -> float:
    """Return the value of a curve at a fraction of the run; before the first point and after the last it is constant.

    >>> value_at([[0.1, 0.0], [0.5, 1.0]], 0.3)
    0.5
    """
    if isinstance(curve, int | float):
        return float(curve)
    if fraction <= curve[0][0]:
        return float(curve[0][1])
    for (begin, low), (end, high) in pairwise(curve):
        if fraction < end:
            return low + (high - low) * (fraction - begin) / (end - begin)
    return float(curve[-1][1])


def check_curve(curve: Any, what: str, low: float = 0.0, high: float = float("inf")) -> None:
    """Refuse what is neither a number nor a list of points with increasing fractions from 0 to 1."""
    points = [(0.0, curve)]
    if isinstance(curve, list | tuple):
        if not curve or not all(isinstance(point, list | tuple) and len(point) == 2 for point in curve):
            raise InputError(f"{what} must be a number or a list of [fraction of the run, value]; got {curve!r}")
        points = [(check_number(fraction, f"{what}, fraction"), value) for fraction, value in curve]
        fractions = [fraction for fraction, _ in points]
        if not 0 <= fractions[0] <= fractions[-1] <= 1 or any(end <= begin for begin, end in pairwise(fractions)):
            raise InputError(f"{what}: the fractions of the run must increase from 0 to 1; got {fractions}")
    for _, value in points:
        if not low <= check_number(value, what) <= high:
            wanted = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            raise InputError(f"{what} must be {wanted}; got {value}")
