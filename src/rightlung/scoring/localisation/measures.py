"""The measures of one map against one mask, each from its textbook definition.

``nan`` marks what is not defined. Nothing here is ever a hit by default.
"""

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


def auroc(ranking: Ranking) -> float:
    """Area under the ROC curve: the chance that a pixel inside outscores one outside, ties counting one half."""
    return ranking.curve().wins / (2 * ranking.positives * (ranking.pixels - ranking.positives))


def average_precision(ranking: Ranking) -> float:
    """Average precision: precision at every distinct score, weighted by the recall gained there (scikit-learn's)."""
    return ranking.curve().precision / ranking.positives


def expected_overlap(ranking: Ranking, share: float) -> tuple[float, float]:
    """Return the pixels in the top ``share`` (of 1), a fraction of a pixel included, and how many are positive.

    Pixels tied at the cut share what is left of it equally, so the overlap is an expectation over the order of the
    tied pixels; on a constant map it is the base rate.
    """
    count = share * ranking.pixels
    cut = ranking.cut(count)
    return count, cut.positives_above + (count - cut.above) * cut.positives_tied / cut.tied


def overlaps_at(ranking: Ranking, levels: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return IoU and Dice of the mask with the pixels that score at least each of ``levels``."""
    iou, dice = [], []
    for level in levels:
        found, hits = ranking.at_least(level)
        iou.append(hits / (found + ranking.positives - hits))
        dice.append(2 * hits / (found + ranking.positives))
    return np.array(iou), np.array(dice)


def can_normalise(lowest: float, highest: float, normalisation: Normalisation) -> bool:
    """Whether a map with these extremes can be normalised in this way."""
    return {"minmax": highest > lowest, "none": True}.get(normalisation, highest > 0)


def levels_of(
    lowest: float, highest: float, total: float, thresholds: Sequence[float], normalisation: Normalisation
) -> list[float]:
    """Return the raw scores from which on a map, normalised in a named way, reaches each of ``thresholds``.

    ``minmax`` takes the map's own range to 0–1, ``max`` divides by the maximum, ``sum`` by the total, ``none`` leaves
    the map as it is. The level is the smallest double whose normalised value (in doubles) reaches the threshold, so
    that comparing raw scores gives exactly what comparing normalised ones would.
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
    """Walk from a guess that is off by rounding only to the smallest double that reaches the threshold."""
    level = guess
    while level > 0 and normalised(math.nextafter(level, -math.inf)) >= threshold:
        level = math.nextafter(level, -math.inf)
    while normalised(level) < threshold and level < math.inf:
        level = math.nextafter(level, math.inf)
    return level


def pointing(values: Floats, mask: NDArray[np.bool_], peak: float, tolerance: float) -> float:
    """Share of the pixels tied at the peak that lie within ``tolerance`` pixels of the mask (Euclidean).

    ``values`` and ``mask`` are (height, width). With one peak this is the pointing game's hit or miss (Zhang et al.,
    ECCV 2016, allow 15 pixels); on a constant map it is the base rate rather than the luck of the first pixel.
    """
    peaks = np.argwhere(values == peak)
    hits = mask[peaks[:, 0], peaks[:, 1]]
    if tolerance > 0 and not hits.all():
        if len(peaks) <= 32:
            hits = np.array([_near(mask, int(row), int(column), tolerance) for row, column in peaks])
        else:
            from scipy.ndimage import distance_transform_edt

            hits = distance_transform_edt(~mask)[peaks[:, 0], peaks[:, 1]] <= tolerance
    return float(hits.mean())


def _near(mask: NDArray[np.bool_], row: int, column: int, tolerance: float) -> bool:
    reach = int(tolerance)
    top, left = max(row - reach, 0), max(column - reach, 0)
    rows, columns = np.nonzero(mask[top : row + reach + 1, left : column + reach + 1])
    return bool((np.hypot(rows + top - row, columns + left - column) <= tolerance).any())


def weighted_sum(values: Weights, weights: Weights) -> float:
    """Return the sum of products; not by BLAS, whose threads would get in the way of the workers' own."""
    return float(np.einsum("i,i->", values, weights))


def contrast_to_noise(values: Weights, inside: Weights, outside: Weights) -> float:
    """Signed contrast-to-noise ratio: (mean inside − mean outside) / √(variance inside + variance outside).

    ``inside`` and ``outside`` say how many pixels of each kind have each of ``values``. The sign is kept: an inverted
    map must not score like a good one (BioViL's form, Boecking et al., ECCV 2022, takes the absolute value). NaN where
    neither side has any spread.
    """
    means, variances = zip(*(_moments(values, side) for side in (inside, outside)), strict=True)
    spread = sum(variances)
    return (means[0] - means[1]) / math.sqrt(spread) if spread > 0 else math.nan


def _moments(values: Weights, weights: Weights) -> tuple[float, float]:
    weighted = weights > 0
    values, weights = values[weighted], weights[weighted]
    if values.min() == values.max():  # no spread at all, not the rounding error of a mean
        return float(values[0]), 0.0
    total = float(weights.sum())
    mean = weighted_sum(values, weights) / total
    return mean, weighted_sum(np.square(values - mean), weights) / total


def entropy(values: Weights, counts: Weights, total: float) -> float:
    """Entropy in nats of the map as a distribution over pixels: 0 for a single point, ln(pixels) for a flat map.

    ``counts`` says how many pixels have each of ``values``; ``total`` is the map's mass.
    """
    shares = values / total
    if not shares.all():  # zero times its logarithm is zero
        shares, counts = shares[shares > 0], counts[shares > 0]
    return max(0.0, -weighted_sum(shares * np.log(shares), counts))
