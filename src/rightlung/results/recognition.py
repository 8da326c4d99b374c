"""Recognition against grounding: does a model that tells which findings an image shows also point at them?

For each model and finding: zero-shot AUROC, accuracy and F1 over images, and the mean of grounding measures over
phrases. Their rank correlation is taken over the findings of one model, over models, or over all pairs of both (XBench,
claim 3). Intervals resample patients or, for all pairs, the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.scoring.recognition import SortedScores
from rightlung.scoring.statistics import spearman
from rightlung.scoring.statistics.correlation import spearman_rows

if TYPE_CHECKING:
    import pandas as pd

RECOGNITION = {"auc": "zero-shot AUC", "accuracy": "accuracy at 0.5", "f1": "F1 at 0.5"}
"""Measures of recognition. Accuracy and F1 call a finding from a score of 0.5 on; nothing is tuned."""
CALLED = 0.5
FEWEST = 5
"""Fewest images with a finding, images without it, and phrases about it, so that it counts."""
Values = Callable[[Floats], Floats]
"""From counts of patients (resamples, patients) to values (resamples,)."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model answered. ``images`` has the columns patient, finding, score and label (0 or 1); ``phrases`` has
    patient, finding, and one for each measure of grounding."""

    images: pd.DataFrame
    phrases: pd.DataFrame


@dataclass(frozen=True, eq=False)
class RecognitionAndGrounding:
    """The answers of models by name, to the same images and phrases."""

    models: Mapping[str, Answers]
    settings: BootstrapSettings

    @cached_property
    def patients(self) -> dict[str, int]:
        """The place of each patient."""
        known = {p for one in self.models.values() for part in (one.images, one.phrases) for p in part.patient}
        return {patient: place for place, patient in enumerate(sorted(known))}

    @cached_property
    def findings(self) -> list[str]:
        """The findings that every model has enough answers about, the most frequent first."""
        counts: dict[str, list[int]] = {}
        for one in self.models.values():
            labels, phrases = one.images.groupby("finding").label, one.phrases.groupby("finding").size()
            for name, positives in labels.sum().items():
                few = min(positives, labels.size()[name] - positives, phrases.get(name, 0))
                counts.setdefault(str(name), []).append(int(few))
        kept = [name for name, few in counts.items() if len(few) == len(self.models) and min(few) >= FEWEST]
        return sorted(kept, key=lambda name: (-counts[name][0], name))

    def values(self, model: str, finding: str, measure: str) -> Values:
        """Return a measure of a model for one finding."""
        recognised = measure in RECOGNITION
        table = self.models[model].images if recognised else self.models[model].phrases
        rows = table[table.finding == finding]
        place = rows.patient.map(self.patients).to_numpy()
        if measure == "auc":
            scores = SortedScores(rows.score.to_numpy(np.float64), rows.label.to_numpy(np.float64))
            return lambda counts: scores.auroc(counts[:, place])
        if recognised:
            called, label = (rows.score >= CALLED).to_numpy(np.float64), rows.label.to_numpy(np.float64)
            if measure == "accuracy":
                return lambda counts: _ratio(counts[:, place] @ (called == label), counts[:, place].sum(axis=1))
            return lambda counts: _ratio(2 * counts[:, place] @ (called * label), counts[:, place] @ (called + label))
        measured = rows[measure].to_numpy(np.float64)
        there = ~np.isnan(measured)
        return lambda counts: _ratio(counts[:, place[there]] @ measured[there], counts[:, place[there]].sum(axis=1))

    def estimate(self, model: str, finding: str, measure: str) -> Estimate:
        """Return a measure with its interval over patients."""
        return self._over_patients(self.values(model, finding, measure))

    def table(self, models: Sequence[str], measure: str) -> Callable[[Floats], Floats]:
        """Return the function to a measure of models and findings, (resamples, models, findings)."""
        values = [[self.values(model, finding, measure) for finding in self.findings] for model in models]
        return lambda counts: np.stack([np.stack([one(counts) for one in row], axis=1) for row in values], axis=1)

    def across_findings(self, model: str, first: str, second: str) -> Estimate:
        """Return the rank correlation of two measures over the findings of a model."""
        one, other = self.table([model], first), self.table([model], second)
        return self._over_patients(lambda counts: spearman_rows(one(counts)[:, 0], other(counts)[:, 0]))

    def across_models(self, first: str, second: str) -> Estimate:
        """Return the rank correlation of two measures over models; each is the mean over findings."""
        one, other = (self.table([*self.models], name) for name in (first, second))
        return self._over_patients(
            lambda counts: spearman_rows(one(counts).mean(axis=2).round(12), other(counts).mean(axis=2).round(12))
        )

    def of_pairs(self, first: str, second: str) -> Estimate:
        """Return the rank correlation over all pairs of model and finding; the interval resamples findings."""
        once = np.ones((1, len(self.patients)))
        x, y = (self.table([*self.models], name)(once)[0] for name in (first, second))
        owners = np.tile(np.arange(len(self.findings)), len(self.models))
        found = spearman(x.ravel(), y.ravel(), clusters=owners, **self.settings.as_options())
        return Estimate(found.estimate, found.low, found.high, x.size, len(self.patients), found.reason)

    def _over_patients(self, values: Values) -> Estimate:
        count = len(self.patients)
        estimator = Estimator(np.arange(count), self.settings)
        return estimator.aggregate(values, np.ones(count, dtype=bool), method="percentile")


def _ratio(numerator: Any, denominator: Any) -> Floats:
    found: Floats = np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.nan)
    return found
