"""The measures of one map against one mask. Undefined values are NaN, never a hit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.scoring.localisation.ranking import Floats, Ranking

Normalisation = Literal["minmax", "max", "sum", "none"]
Weights = NDArray[np.float64]
NORMALISATIONS: tuple[Normalisation, ...] = ("minmax", "max", "sum", "none")


def overlaps_at(ranking: Ranking, levels: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return IoU and Dice of the mask with the pixels that score at least each of ``levels``."""
    iou, dice = [], []
    for level in levels:
        found, hits = ranking.at_least(level)
        iou.append(hits / (found + ranking.positives - hits))
        dice.append(2 * hits / (found + ranking.positives))
    return np.array(iou), np.array(dice)


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


def pointing(values: Floats, mask: NDArray[np.bool_], peak: float, tolerance: float) -> float:
    """Return the share of the pixels tied at the peak that lie within ``tolerance`` pixels of the mask (Euclidean).

    ``values`` and ``mask`` are (height, width). With a single peak this is the pointing game (Zhang et al., ECCV 2016,
    allow 15 pixels); on a constant map it is the base rate.
    """
    peaks = np.argwhere(values == peak)
    hits = mask[peaks[:, 0], peaks[:, 1]]
    if tolerance > 0 and not hits.all():
        from scipy.ndimage import distance_transform_edt

        hits = distance_transform_edt(~mask)[peaks[:, 0], peaks[:, 1]] <= tolerance
    return float(hits.mean())


def weighted_sum(values: Weights, weights: Weights) -> float:
    """Return the sum of products, without BLAS, whose threads would compete with the workers."""
    return float(np.einsum("i,i->", values, weights))


def contrast_to_noise(values: Weights, mask: NDArray[np.bool_]) -> float:
    """Return (mean inside − mean outside) / √(variance inside + variance outside), signed.

    BioViL (Boecking et al., ECCV 2022) takes the absolute value, which scores an inverted map like a good one. NaN if
    both variances are zero.
    """
    means, variances = zip(*(_moments(values[side]) for side in (mask, ~mask)), strict=True)
    variance = sum(variances)
    return (means[0] - means[1]) / math.sqrt(variance) if variance > 0 else math.nan


def _moments(values: Weights) -> tuple[float, float]:
    if values.min() == values.max():  # exactly zero variance, without rounding errors
        return float(values[0]), 0.0
    ones = np.ones(len(values))
    mean = weighted_sum(values, ones) / len(values)
    return mean, weighted_sum(np.square(values - mean), ones) / len(values)


def entropy(values: Weights, total: float) -> float:
    """Return the entropy in nats of the map as a distribution: 0 for a single point, ln(pixels) for a flat map."""
    shares = values / total
    shares = shares[shares > 0]  # zero times its logarithm is zero
    return max(0.0, -weighted_sum(shares * np.log(shares), np.ones(len(shares))))
