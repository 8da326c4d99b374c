"""Clinical efficacy: whether a generated text names the same findings as the reference, whatever its words.

Labels come from the rule labeller (`rightlung.lexicon`), not from CheXbert: numbers are comparable with each other, and
with published ones only roughly. Blank counts as negative; what "uncertain" counts as is named (`UNCERTAIN`). F1-5+ of
the papers is the average over `FIVE` with ``uncertain="negative"``, F1-5 that with ``"positive"``.

A class without a positive reference has no precision, recall, F1 or MCC (NaN) and is left out of macro averages;
scikit-learn counts it as 0. Micro averages count its false positives.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from rightlung.core.errors import InputError, check_known
from rightlung.lexicon.labeller import OBSERVATIONS, observations, read_report
from rightlung.scoring.statistics.inputs import FloatArray, as_numbers

FIVE: Final = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
"""The observations of F1-5 (Miura et al., NAACL 2021)."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {"14": OBSERVATIONS, "13": OBSERVATIONS[1:], "5": FIVE}
"""Sets of observations to average over; 13 are those without No Finding, which carries averages over 14."""

UNCERTAIN: Final[Mapping[str, Collection[str]]] = {
    "negative": ("positive",),
    "positive": ("positive", "uncertain"),
}
"""What "uncertain" counts as, and the polarities that then count as positive."""

Average = Literal["micro", "macro", "weighted"]
Measure = Literal["precision", "recall", "f1", "mcc"]


def positive_observations(report: str, uncertain: str = "negative") -> tuple[str, ...]:
    """Return the positive ones of CheXpert's 14 observations in a text.

    >>> positive_observations("Possible edema. Small left effusion.")
    ('Pleural Effusion',)
    """
    check_known("policy for uncertain findings", uncertain, UNCERTAIN)
    return tuple(name for name, said in observations(report).items() if said in UNCERTAIN[uncertain])


def sided_findings(report: str, uncertain: str = "negative") -> tuple[str, ...]:
    """Return the (finding, side) pairs of a text, sorted; both sides are two pairs, a finding without a side none.

    >>> sided_findings("Bilateral effusions. Right basal atelectasis. Cardiomegaly.")
    ('left pleural effusion', 'right atelectasis', 'right pleural effusion')
    """
    check_known("policy for uncertain findings", uncertain, UNCERTAIN)
    pairs = set()
    for sentence in read_report(report):
        for mention in sentence.mentions:
            if mention.side is not None and mention.polarity in UNCERTAIN[uncertain]:
                sides = ("left", "right") if mention.side == "both" else (mention.side,)
                pairs |= {f"{side} {mention.finding}" for side in sides}
    return tuple(sorted(pairs))


def label_matrix(labels: Sequence[Collection[str]], names: Sequence[str]) -> FloatArray:
    """Return 1 where a text has a label and 0 elsewhere: (texts, names)."""
    found = np.zeros((len(labels), len(names)))
    places = {name: place for place, name in enumerate(names)}
    for row, said in zip(found, labels, strict=True):
        row[[places[name] for name in said if name in places]] = 1.0
    return found


def class_scores(called: FloatArray, true: FloatArray, counts: FloatArray) -> dict[Measure, FloatArray]:
    """Return precision, recall, F1 and MCC of each class, (rows, classes), for counts (rows, texts).

    A class that is never called has precision, F1 and MCC 0.
    """
    hits, calls, positives = (counts @ part for part in (called * true, called, true))
    return _of_sums(hits, calls, positives, counts.sum(axis=1, keepdims=True))


def _of_sums(
    hits: FloatArray, calls: FloatArray, positives: FloatArray, total: FloatArray
) -> dict[Measure, FloatArray]:
    there = positives > 0
    spread = np.sqrt(positives * (total - positives) * calls * (total - calls))
    return {
        "precision": np.where(there, _ratio(hits, calls), np.nan),
        "recall": np.where(there, _ratio(hits, positives), np.nan),
        "f1": np.where(there, _ratio(2 * hits, calls + positives), np.nan),
        "mcc": np.where(there & (positives < total), _ratio(total * hits - positives * calls, spread), np.nan),
    }


def averaged(
    called: FloatArray,
    true: FloatArray,
    counts: FloatArray,
    average: Average,
    measure: Measure = "f1",
    absent_as_zero: bool = False,
) -> FloatArray:
    """Return the average of a measure over classes, (rows,): ``macro`` over classes, ``micro`` over all pairs.

    The micro average of MCC is that of the pooled pairs of text and class. ``weighted`` is the macro average in which a
    class counts as often as it is positive. With ``absent_as_zero``, a class without a positive reference counts as 0
    in the macro average, as in scikit-learn.
    """
    if average != "micro":
        values = class_scores(called, true, counts)[measure]
        defined = ~np.isnan(values)
        weights = counts @ true if average == "weighted" else (defined | absent_as_zero).astype(np.float64)
        mean = _ratio((np.where(defined, values, 0.0) * weights).sum(axis=1), weights.sum(axis=1))
        return np.where(defined.any(axis=1), mean, np.nan)
    hits, calls, positives = (counts @ part.sum(axis=1, keepdims=True) for part in (called * true, called, true))
    total = counts.sum(axis=1, keepdims=True) * called.shape[1]
    return _of_sums(hits, calls, positives, total)[measure][:, 0]


def example_f1(called: FloatArray, true: FloatArray, counts: FloatArray, measure: Measure = "f1") -> FloatArray:
    """Return F1 (or ``precision`` or ``recall``) of each text averaged over texts, (rows,).

    A text without any label on both sides has 0.

    So a reference scored against itself may stay below 1, as in the papers and in scikit-learn (``samples``).
    """
    hits, calls, positives = ((called * true).sum(axis=1), called.sum(axis=1), true.sum(axis=1))
    parts = {"precision": (hits, calls), "recall": (hits, positives), "f1": (2 * hits, calls + positives)}
    values = _ratio(*parts[measure])
    drawn = counts.sum(axis=1)
    return np.where(drawn > 0, _ratio(counts @ values, drawn), np.nan)


@dataclass(frozen=True)
class ClinicalEfficacy:
    """Scores of each observation, their averages, and the scores of (finding, side) pairs."""

    classes: dict[str, dict[str, float]]
    """Precision, recall, F1, MCC and the number of positive references by observation."""
    averages: dict[str, dict[str, float]]
    """By group of `GROUPS`: ``micro_f1``, ``macro_f1``, ``macro_mcc``, and so on, and ``example_f1``."""
    pairs: dict[str, float]
    """Precision, recall and F1 of the pooled (finding, side) pairs, and their number in the references."""
    uncertain: str
    """What uncertain findings count as."""


def score(answers: Sequence[str], references: Sequence[str], uncertain: str = "negative") -> ClinicalEfficacy:
    """Label answers and references, and score them.

    >>> found = score(["Small left effusion.", "No edema."], ["Right effusion.", "Edema."])
    >>> found.averages["14"]["micro_f1"], found.pairs["f1"]
    (0.5, 0.0)
    """
    if len(answers) != len(references):
        raise InputError(f"{len(answers)} answers have {len(references)} references; each needs one")
    said, known = ([positive_observations(text, uncertain) for text in some] for some in (answers, references))
    called, true = label_matrix(said, OBSERVATIONS), label_matrix(known, OBSERVATIONS)
    averages = {}
    for group, names in GROUPS.items():
        places = [OBSERVATIONS.index(name) for name in names]
        averages[group] = _averages(called[:, places], true[:, places])
    said, known = ([sided_findings(text, uncertain) for text in some] for some in (answers, references))
    return ClinicalEfficacy(of_classes(called, true, OBSERVATIONS), averages, _pairs(said, known), uncertain)


def of_classes(called: ArrayLike, true: ArrayLike, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return precision, recall, F1, MCC and the number of positives of each class, by its name."""
    calls, truth = (as_numbers(name, values) for name, values in (("called", called), ("true", true)))
    found = class_scores(calls, truth, np.ones((1, len(truth))))
    return {
        name: {measure: float(values[0, place]) for measure, values in found.items()}
        | {"positives": float(truth[:, place].sum())}
        for place, name in enumerate(names)
    }


def _averages(called: FloatArray, true: FloatArray) -> dict[str, float]:
    once = np.ones((1, len(true)))
    measures: tuple[Measure, ...] = ("precision", "recall", "f1", "mcc")
    kinds: tuple[Average, ...] = ("micro", "macro")
    found = {f"{kind}_{one}": float(averaged(called, true, once, kind, one)[0]) for kind in kinds for one in measures}
    return found | {"example_f1": float(example_f1(called, true, once)[0])}


def _pairs(said: Sequence[Collection[str]], known: Sequence[Collection[str]]) -> dict[str, float]:
    names = sorted({name for some in (*said, *known) for name in some})
    count = float(sum(map(len, known)))
    if not names:
        return {"precision": math.nan, "recall": math.nan, "f1": math.nan, "pairs": count}
    found = _averages(label_matrix(said, names), label_matrix(known, names))
    return {name: found[f"micro_{name}"] for name in ("precision", "recall", "f1")} | {"pairs": count}


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return the ratio, 0 where the denominator is 0."""
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), 0.0)
