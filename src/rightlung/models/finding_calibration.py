"""Finding scores that can be read: a probability, a threshold for yes or no, and one that keeps what is present.

All three are fitted for each finding on some patients and measured on others (``rightlung calibrate --task classify``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rightlung.models.calibration import PRESENCE, SIMILARITY, Floats, Measured, fit_platt, platt

LEAST_PATIENTS = 10
"""Patients with and without a finding that are needed, among those to fit and those to measure on."""
LEAST_ISOTONIC = 100
"""Studies with and without a finding from which the curve is isotonic; with fewer it is a logistic one (Platt)."""


@dataclass(frozen=True)
class Curve:
    """From score to probability: logistic (``slope``, ``intercept``), or straight lines between ``steps``."""

    method: Literal["platt", "isotonic"]
    score: str
    """`PRESENCE` if scores lie between 0 and 1 and enter as log-odds, else `SIMILARITY`; of no use to ``isotonic``."""
    slope: float = 0.0
    intercept: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    """Scores and their probabilities."""

    def probabilities(self, scores: ArrayLike) -> Floats:
        """Return the probabilities behind scores."""
        if self.method == "platt":
            return platt(self.score, self.slope, self.intercept, scores)
        places, values = np.array(self.steps).T
        found: Floats = np.interp(np.asarray(scores, np.float64), places, values)
        return found


@dataclass(frozen=True)
class FindingCalibration:
    """What was fitted for a finding, and measured on other patients.

    At or above ``threshold`` the finding counts as present, with this ``sensitivity`` and ``specificity``. Below
    ``keep_threshold`` it counts as excluded (None: never): ``kept`` is the share of patients with the finding that are
    not, ``excluded`` the share of patients without it that are; a study of each patient is drawn at random.
    ``*_blind``: the same measure for the share of studies with the finding, without the image.
    """

    curve: Curve
    studies: int
    present: int
    test_studies: int
    test_present: int
    brier: Measured
    brier_blind: Measured
    calibration_error: Measured
    calibration_error_blind: Measured
    threshold: float
    sensitivity: Measured
    specificity: Measured
    keep_threshold: float | None
    kept: Measured
    excluded: Measured

    def reading(self, score: float) -> dict[str, object]:
        """Return what a score says: probability, present or not, excluded or not."""
        return {
            "probability": round(float(self.curve.probabilities([score])[0]), 4),
            "present": score >= self.threshold,
            "excluded": self.keep_threshold is not None and score < min(self.keep_threshold, self.threshold),
            "threshold": self.threshold, "sensitivity": self.sensitivity, "specificity": self.specificity,
            "keep_threshold": self.keep_threshold, "kept": self.kept,
        }  # fmt: skip


@dataclass(frozen=True)
class ClassifierCalibration:
    """The findings that were calibrated on the studies of ``data`` and measured on those of ``test_data``."""

    data: str
    patients: int
    test_data: str
    test_patients: int
    missing_labels: str
    rule: str
    """How thresholds were chosen, in words."""
    keep: float
    """The share of patients with a finding who are to be kept."""
    findings: Mapping[str, FindingCalibration]
    left_out: Mapping[str, str]
    """Why other findings were not calibrated; their scores are only a ranking."""
    reliability: tuple[tuple[int, float, Measured], ...]
    """All findings together, in ten bins: answers, mean probability, share with the finding."""


def fit_curve(scores: ArrayLike, present: ArrayLike) -> Curve:
    """Return an isotonic curve if enough studies have and lack the finding (`LEAST_ISOTONIC`), else a logistic one."""
    from sklearn.isotonic import IsotonicRegression

    given, true = np.asarray(scores, np.float64), np.asarray(present, bool)
    kind = PRESENCE if given.min() >= 0 and given.max() <= 1 else SIMILARITY
    if min(true.sum(), (~true).sum()) < LEAST_ISOTONIC:
        return Curve("platt", kind, *fit_platt(kind, given, true))
    edge = 1 / (len(given) + 2)
    fitted = IsotonicRegression(y_min=edge, y_max=1 - edge).fit(given, true)
    steps = zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True)
    return Curve("isotonic", kind, steps=tuple((score, round(value, 5)) for score, value in steps))


def operating_threshold(scores: ArrayLike, present: ArrayLike, sensitivity: float | None = None) -> float:
    """Return the threshold with the largest sum of sensitivity and specificity (Youden's J), the highest of several.

    With a wished sensitivity: the highest threshold that reaches it.

    >>> scores, present = [0.1, 0.4, 0.3, 0.8], [0, 0, 1, 1]
    >>> operating_threshold(scores, present), operating_threshold(scores, present, 1)
    (0.8, 0.3)
    """
    from sklearn.metrics import roc_curve

    false, true, thresholds = roc_curve(present, scores, drop_intermediate=False)
    chosen = (true - false).argmax() if sensitivity is None else (true >= sensitivity - 1e-12).argmax()
    return float(thresholds[chosen])


def keep_threshold(scores: ArrayLike, share: float) -> float | None:
    """Return the split-conformal threshold that keeps ``share`` of new patients with a finding (Vovk, 2012).

    ``scores`` are those of n patients with the finding, one each. A new one of the same kind is below the k-th smallest
    with a probability of at most k / (n + 1), whatever the model. None: n is too small to exclude anybody.

    >>> keep_threshold([0.9, 0.2, 0.7, 0.5, 0.8, 0.6, 0.4, 0.3, 0.1], 0.8), keep_threshold([0.9, 0.8], 0.9)
    (0.2, None)
    """
    ordered = np.sort(np.asarray(scores, np.float64))
    rank = int((len(ordered) + 1) * (1 - share) + 1e-9)
    return float(ordered[rank - 1]) if rank else None
