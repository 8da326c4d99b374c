"""Numbers that may change over a run: a constant, or points ``[fraction of the run, value]`` joined by lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rightlung.core.checks import check_limits
from rightlung.core.errors import InputError, shortened

Curve = float | Sequence[Sequence[float]]


def value_at(curve: Curve, fraction: float) -> float:
    """Return the value at a fraction of the run. Before the first point and after the last, the value is constant.

    >>> value_at([[0, 1.0], [0.5, 0.2]], 0.25), value_at(3, 0.25)
    (0.6, 3.0)
    """
    if isinstance(curve, int | float):
        return float(curve)
    fractions, values = zip(*curve, strict=True)
    return float(np.interp(fraction, fractions, values))


def check_curve(curve: object, what: str, low: float = 0, high: float = math.inf) -> None:
    """Refuse anything but a number, or a list of points whose fractions rise, with values from ``low`` to ``high``."""
    points = [(0.0, curve)] if isinstance(curve, int | float) else curve
    try:
        pairs = [(float(fraction), float(value)) for fraction, value in points]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        pairs = []
    if isinstance(curve, bool) or not pairs:
        raise InputError(
            f"{what} must be a number or a list of [fraction of the run, value] points; got {shortened(curve)}"
        )
    for fraction, value in pairs:
        check_limits(value, what, low, high)
        if not 0 <= fraction <= 1:
            raise InputError(f"{what}: a point's fraction of the run must be from 0 to 1; got {fraction:g}")
    if any(one >= other for (one, _), (other, _) in pairwise(pairs)):
        raise InputError(f"{what}: the fractions of the run must rise from point to point; got {shortened(curve)}")
