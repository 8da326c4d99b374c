"""Calibration of finding scores: fitted on the predictions about some patients, measured on those about others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.errors import check_known
from rightlung.core.keyed import text_generator
from rightlung.lexicon import canonical_finding
from rightlung.measuring.selections import missing_as_negative
from rightlung.measuring.targets import StudyLabels
from rightlung.models.calibration import BINS, Floats, Measured, calibration_error, measured
from rightlung.models.finding_calibration import (
    LEAST_PATIENTS,
    ClassifierCalibration,
    FindingCalibration,
    fit_curve,
    keep_threshold,
    operating_threshold,
)
from rightlung.predictions import Batch
from rightlung.studies import Source


class Scored(NamedTuple):
    """The scores of a finding in the studies where it is known to be present or absent."""

    patients: NDArray[np.str_]
    scores: Floats
    present: NDArray[np.bool_]

    def too_few(self) -> str | None:
        """Return why this is too little to calibrate, or None."""
        counts = [len(np.unique(self.patients[one])) for one in (self.present, ~self.present)]
        if min(counts) >= LEAST_PATIENTS:
            return None
        return f"{counts[0]:,} patients with and {counts[1]:,} without; {LEAST_PATIENTS} are needed"

    def drawn(self, present: bool, finding: str) -> Scored:
        """Return one study of each patient with (or without) the finding, drawn by name."""
        of_patient = defaultdict(list)
        for place in np.flatnonzero(self.present == present).tolist():
            of_patient[str(self.patients[place])].append(place)
        draw = partial(text_generator, "calibrate", finding)
        places = [some[int(draw(who).integers(len(some)))] for who, some in sorted(of_patient.items())]
        return Scored(self.patients[places], self.scores[places], self.present[places])


@dataclass(frozen=True)
class Rules:
    """How labels are read and thresholds are chosen."""

    missing_labels: str = "unknown"
    sensitivity: float | None = None
    """The sensitivity that each threshold reaches; None: the largest sum of sensitivity and specificity."""
    keep: float = 0.9

    def __post_init__(self) -> None:
        check_known("choice of missing_labels", self.missing_labels, ("unknown", "negative"))
        for name, value in (("sensitivity", self.sensitivity), ("keep", self.keep)):
            if value is not None and not 0 < value < 1:
                raise InputError(f"--{name} must lie between 0 and 1; got {value}")

    @property
    def words(self) -> str:
        """The rule of the thresholds."""
        if self.sensitivity is None:
            return "largest sensitivity + specificity (Youden's J) on the patients of data"
        return f"highest with a sensitivity of {self.sensitivity:g} on the patients of data"


def scored(source: Source, batches: Iterable[Batch], missing_labels: str) -> dict[str, Scored]:
    """Return the scores of each finding, beside what the source's labels say."""
    labels = {one.id: StudyLabels(one.patient or one.id, one.findings) for one in source}
    if missing_labels == "negative":
        labels = missing_as_negative(labels)
    known = {
        study: {canonical_finding(name): str(said) for name, said in one.findings.items()}
        for study, one in labels.items()
    }
    rows: dict[str, list[tuple[str, float, bool]]] = defaultdict(list)
    for batch in batches:
        for study, answers in zip(batch.column("study"), batch.column("finding_scores"), strict=True):
            for one in answers or ():
                said = known.get(study, {}).get(canonical_finding(one["finding"]))
                if said in ("positive", "negative"):
                    rows[one["finding"]].append((labels[study].patient, one["score"], said == "positive"))
    return {name: Scored(*map(np.array, zip(*some, strict=True))) for name, some in rows.items()}


def calibrate_findings(
    source: Source, fitted: Mapping[str, Scored], test: Source, tested: Mapping[str, Scored], rules: Rules
) -> ClassifierCalibration:
    """Fit every finding that has enough patients on both sides, and measure it."""
    patients = [{str(who) for one in some.values() for who in one.patients} for some in (fitted, tested)]
    if both := sorted(patients[0] & patients[1]):
        raise InputError(f"{test.address}: {len(both):,} patients are also in {source.address}, such as {both[0]}")
    found, rows, left_out = {}, [], {}
    for name in fitted:
        one, other = fitted[name], tested.get(name)
        reason = one.too_few() or ("no labels among the patients to test" if other is None else other.too_few())
        if other is None or reason is not None:
            left_out[name] = str(reason)
        elif not ranks(one):
            left_out[name] = "the score does not rank it: present and absent cannot be told apart there"
        else:
            found[name], columns = _calibrated(name, one, other, rules)
            rows += [(str(who), *row) for who, row in zip(other.patients, columns.tolist(), strict=True)]
    if not found:
        raise InputError(f"{source.address}: no finding can be calibrated: {left_out or 'no study has labels'}")
    return ClassifierCalibration(
        source.address, len(patients[0]), test.address, len(patients[1]), rules.missing_labels, rules.words, rules.keep,
        found, left_out, tuple(_reliability(rows)),
    )  # fmt: skip


def ranks(some: Scored) -> bool:
    """Whether studies with the finding have higher scores: AUROC above 0.5."""
    from sklearn.metrics import roc_auc_score

    return bool(roc_auc_score(some.present, some.scores) > 0.5)


def share(values: Sequence[bool] | NDArray[np.bool_], patients: Sequence[str] | NDArray[np.str_]) -> Measured:
    """Return a share with its interval: patients are resampled; for 0 and 1, it is Clopper and Pearson's over them."""
    flags = np.asarray(values, np.float64)
    if flags.min() < flags.max():
        return measured(flags, [str(one) for one in patients])
    end = round(float(0.025 ** (1 / len(set(patients)))), 4)
    return (1.0, end, 1.0) if flags[0] else (0.0, 0.0, round(1 - end, 4))


def _calibrated(name: str, one: Scored, other: Scored, rules: Rules) -> tuple[FindingCalibration, Floats]:
    """Return what is known of a finding, and probability and truth of each study of the other patients."""
    curve, base = fit_curve(one.scores, one.present), float(one.present.mean())
    patients, true = [str(who) for who in other.patients], other.present
    rows = np.stack([curve.probabilities(other.scores), true], 1)
    blind = np.stack([np.full(len(true), base), true], 1)
    threshold = operating_threshold(one.scores, one.present, rules.sensitivity)
    lowest = keep_threshold(one.drawn(True, name).scores, rules.keep)
    kept, others = other.drawn(True, name), other.drawn(False, name)
    floor = -np.inf if lowest is None else lowest
    found = FindingCalibration(
        curve, len(one.scores), int(one.present.sum()), len(true), int(true.sum()),
        measured((rows[:, 0] - true) ** 2, patients), measured((blind[:, 0] - true) ** 2, patients),
        measured(rows, patients, calibration_error), measured(blind, patients, calibration_error),
        threshold, share(other.scores[true] >= threshold, other.patients[true]),
        share(other.scores[~true] < threshold, other.patients[~true]),
        lowest, share(kept.scores >= floor, kept.patients), share(others.scores < floor, others.patients),
    )  # fmt: skip
    return found, rows


def _reliability(rows: Sequence[tuple[str, float, float]]) -> Iterator[tuple[int, float, Measured]]:
    """Yield the bins of all findings together; rows are (patient, probability, true)."""
    patients = np.array([row[0] for row in rows])
    probabilities, true = np.array([row[1:] for row in rows]).T
    places = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    for place in np.unique(places):
        there = places == place
        mean = round(float(probabilities[there].mean()), 4)
        yield int(there.sum()), mean, share(true[there].astype(bool), patients[there])
