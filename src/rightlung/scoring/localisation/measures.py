"""The measures of one map against one mask. Undefined values are NaN, never a hit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.scoring.localisation.ranking import Floats, Ranking
from rightlung.scoring.localisation.sums import Sums

Normalisation = Literal["minmax", "max", "sum", "none"]
NORMALISATIONS: tuple[Normalisation, ...] = ("minmax", "max", "sum", "none")


def overlaps_at(ranking: Ranking, levels: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return IoU and Dice of the mask with the pixels that score at least each of ``levels``."""
    found, hits = ranking.at_least(levels)
    return hits / (found + ranking.positives - hits), 2 * hits / (found + ranking.positives)


def can_normalise(lowest: float, highest: float, normalisation: Normalisation) -> bool:
    """Whether a map with these extremes can be normalised."""
    return {"minmax": highest > lowest, "none": True}.get(normalisation, highest > 0)


def levels_of(
    lowest: float, highest: float, total: float, thresholds: Sequence[float], normalisation: Normalisation
) -> list[float]:
    """Return the raw scores at which a normalised map reaches each of ``thresholds``.

    ``minmax`` maps the range to 0–1, ``max`` divides by the maximum, ``sum`` by the total. Each level is the smallest
    double whose normalised value reaches the threshold, so that comparing raw scores equals comparing normalised ones.
    """
    normalised: Callable[[float], float]
    if normalisation == "minmax":
        span = highest - lowest
        normalised = lambda value: (value - lowest) / span  # noqa: E731
        guesses = [lowest + threshold * span for threshold in thresholds]
    else:
        divisor = {"max": highest, "sum": total, "none": 1.0}[normalisation]
        normalised = lambda value: value / divisor  # noqa: E731
        guesses = [threshold * divisor for threshold in thresholds]
    return [_smallest_reaching(normalised, *pair) for pair in zip(guesses, thresholds, strict=True)]


def _smallest_reaching(normalised: Callable[[float], float], guess: float, threshold: float) -> float:
    """Return the smallest double that reaches the threshold, starting from a guess off by rounding only."""
    level = guess
    while level > 0 and normalised(math.nextafter(level, -math.inf)) >= threshold:
        level = math.nextafter(level, -math.inf)
    while normalised(level) < threshold and level < math.inf:
        level = math.nextafter(level, math.inf)
    return level


def pointing(values: Floats, mask: NDArray[np.bool_], sums: Sums, peak: float, tolerance: float) -> float:
    """Return the share of the pixels tied at the peak that lie within ``tolerance`` pixels of the mask (Euclidean).

    ``values`` and ``mask`` are (height, width). With a single peak this is the pointing game (Zhang et al., ECCV 2016,
    allow 15 pixels); on a constant map it is the base rate.
    """
    if tolerance == 0 or sums.hits == sums.peaks:
        return sums.hits / sums.peaks
    from scipy.ndimage import distance_transform_edt

    return float((distance_transform_edt(~mask)[values == peak] <= tolerance).mean())
