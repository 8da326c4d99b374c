"""Platt scaling (Platt, 1999): from a score of an answer to the probability that what the phrase asserts is visible.

A model folder may hold ``calibration.json`` (`rightlung.models.calibration_file`), written by ``rightlung calibrate``.
It changes no answer, and is refused next to other weights than those that it was measured with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core import Grounding
from rightlung.core.errors import check_known
from rightlung.scoring.statistics import bootstrap

SIMILARITY, PRESENCE = "similarity of image and text", "1 − abstention"
BINS, EDGE = 10, 1e-4
"""``1 − abstention`` enters the logistic function as log-odds, at least ``EDGE`` from 0 and 1."""
Floats = NDArray[np.float64]
Measured = tuple[float, float, float]
"""A number and its 95 % interval; patients are resampled."""


@dataclass(frozen=True)
class Calibration:
    """A calibration of answers to phrases: the probability is the logistic function of intercept + slope · score.

    Measured on other studies (``test_data``): ``brier``, the mean squared error of the probability; ``brier_blind``,
    that of the share of true phrases with the same findings, without the image; ``calibration_error``, the expected
    calibration error (Guo et al., ICML 2017); and ``bins`` of (phrases, mean probability, share of true phrases).
    """

    score: str
    slope: float
    intercept: float
    data: str
    phrases: int
    patients: int
    base_rate: float
    test_data: str
    test_phrases: int
    test_patients: int
    brier: Measured
    brier_blind: Measured
    calibration_error: Measured
    bins: tuple[tuple[int, float, float], ...]

    def __post_init__(self) -> None:
        check_known("score", self.score, (SIMILARITY, PRESENCE))

    def probability(self, value: float) -> float:
        """Return the probability behind a value of the score."""
        return float(platt(self.score, self.slope, self.intercept, [value])[0])


def scores_of(answer: Mapping[str, Any], grounding: Grounding) -> dict[str, float]:
    """Return the scores of an answer that can be calibrated, by name."""
    similarity, presence = answer.get("similarity_global"), {PRESENCE: 1 - grounding.abstention}
    return presence if similarity is None else {SIMILARITY: similarity} | presence


def platt(score: str, slope: float, intercept: float, values: ArrayLike) -> Floats:
    """Return the probabilities behind values of a score."""
    found: Floats = 1 / (1 + np.exp(-np.clip(intercept + slope * _entered(score, values), -500, 500)))
    return found


def fit_platt(score: str, values: ArrayLike, true: ArrayLike) -> tuple[float, float]:
    """Return slope and intercept by maximum likelihood.

    >>> slope, intercept = fit_platt(SIMILARITY, [0.1, 0.2, 0.3, 0.4], [False, True, False, True])
    >>> round(-intercept / slope, 2)
    0.25
    """
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(_entered(score, values)[:, None], true)
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def reliability(rows: Floats) -> list[tuple[int, float, float]]:
    """Return the number, mean probability and share of true phrases of each bin; rows are (probability, true).

    >>> reliability(np.array([[0.05, 0], [0.95, 1], [0.97, 0]]))
    [(1, 0.05, 0.0), (2, 0.96, 0.5)]
    """
    place = np.minimum((rows[:, 0] * BINS).astype(int), BINS - 1)
    bins = ((int((place == one).sum()), *rows[place == one].mean(0).tolist()) for one in np.unique(place))
    return [(count, round(probability, 4), round(true, 4)) for count, probability, true in bins]


def calibration_error(rows: Floats) -> float:
    """Return the mean distance of probability and share of true phrases over bins, weighted by their phrases."""
    place = np.minimum((rows[:, 0] * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(place, rows[:, 0] - rows[:, 1])).sum() / len(rows))


def measured(rows: Floats, patients: Sequence[str], statistic: Any = "mean") -> Measured:
    """Return a statistic of rows with its interval."""
    found = bootstrap(rows, statistic, clusters=patients, resamples=1000, method="percentile")
    return round(found.estimate, 4), round(found.low, 4), round(found.high, 4)


def _entered(score: str, values: ArrayLike) -> Floats:
    given = np.asarray(values, np.float64)
    kept = np.clip(given, EDGE, 1 - EDGE)
    entered: Floats = np.log(kept / (1 - kept)) if score == PRESENCE else given
    return entered
