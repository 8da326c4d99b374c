"""Calibration of a model's scores: true and false phrases of a source, one of each, and a model's answers to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rightlung.asking.answerer import Answerer, NoAnswer
from rightlung.asking.questions import Question
from rightlung.core import InputError, Phrase, Polarity, Query, Study
from rightlung.core.keyed import text_generator
from rightlung.core.progress import ProgressBars
from rightlung.models.base import Matcher
from rightlung.models.calibration import (
    Calibration,
    Floats,
    calibration_error,
    fit_platt,
    measured,
    platt,
    reliability,
    scores_of,
)
from rightlung.predictions import Key
from rightlung.studies import Source


class Asked(NamedTuple):
    """A phrase about a study's image, whether it is true there, and the scores of the model's answer."""

    patient: str
    findings: tuple[str, ...]
    true: bool
    scores: dict[str, float]


def calibrate(model: object, source: Source, test: Source, tell: ProgressBars) -> Calibration:
    """Fit the better of a model's scores (by Brier score) on one source, and measure it on another."""
    fitted, tested = ([*ask_pairs(model, one, tell)] for one in (source, test))
    for one, asked in ((source, fitted), (test, tested)):
        if len({pair.patient for pair in asked}) < 2:
            raise InputError(f"{one.address}: too few phrases that are true of one patient and false of another")
    true, tested_true = (np.array([one.true for one in some]) for some in (fitted, tested))
    fits = {name: fit_platt(name, _column(fitted, name), true) for name in fitted[0].scores}
    brier = {name: float(((platt(name, *fits[name], _column(fitted, name)) - true) ** 2).mean()) for name in fits}
    best = min(brier, key=brier.__getitem__)
    shares = {kind: np.mean([0.5, 0.5] + [one.true for one in fitted if one.findings == kind])
              for kind in {one.findings for one in tested}}  # fmt: skip
    blind = np.array([shares[one.findings] for one in tested])
    rows = np.stack([platt(best, *fits[best], _column(tested, best)), tested_true], 1)
    patients = [one.patient for one in tested]
    return Calibration(
        best, *fits[best],
        source.address, len(fitted), len({one.patient for one in fitted}), round(float(true.mean()), 4),
        test.address, len(tested), len(set(patients)), measured((rows[:, 0] - tested_true) ** 2, patients),
        measured((blind - tested_true) ** 2, patients), measured(rows, patients, calibration_error),
        tuple(reliability(rows)),
    )  # fmt: skip


def ask_pairs(model: object, source: Source, tell: ProgressBars) -> Iterator[Asked]:
    """Ask about every phrase of a study that asserts findings, and one of another patient whose findings are absent."""
    pool = [(study.patient or study.id, one) for study in source for one in study.phrases if _asserts(one)]
    methods = ("ground", "similarity") if isinstance(model, Matcher) else ("ground",)
    ask = [Answerer(model, batch_size=8, boxes=None, method=method) for method in methods]
    for done, study in enumerate(source):
        tell(f"asking about {source.address}", done, len(source))
        pairs, patient = list(_pairs(study, pool)), study.patient or study.id
        image = study.image if pairs else None
        asked = [Question(Key(study.id, "pair", "none"), Query(one.text), patient=patient) for one, _ in pairs]
        for (phrase, true), *found in zip(
            pairs, *(one.answers(asked, [image] * len(pairs)) for one in ask), strict=True
        ):
            answer: dict[str, Any] = {}
            for one in found:
                if isinstance(one, NoAnswer):
                    raise InputError(f"{study.id}, {phrase.text[:60]!r}: the model gave no answer: {one.reason}")
                answer |= one
            yield Asked(patient, tuple(sorted(phrase.findings)), true, scores_of(answer, answer["grounding"]))


def _asserts(phrase: Phrase) -> bool:
    """Whether a phrase asserts findings, and denies or doubts none."""
    return bool(phrase.findings) and all(one == Polarity.POSITIVE for one in phrase.findings.values())


def _pairs(study: Study, pool: Sequence[tuple[str, Phrase]]) -> Iterator[tuple[Phrase, bool]]:
    """Yield true phrases of a study, each followed by a false one, drawn by the names of the study and the phrase."""
    patient, absent = (
        study.patient or study.id,
        {one for one, said in study.findings.items() if said == Polarity.NEGATIVE},
    )
    for phrase in study.phrases:
        if _asserts(phrase) and not absent & phrase.findings.keys():
            order = text_generator("calibrate", study.id, phrase.text).permutation(len(pool))
            others = (pool[place] for place in order)
            false = next((one for owner, one in others if owner != patient and absent >= one.findings.keys()), None)
            if false is not None:
                yield phrase, True
                yield false, False


def _column(some: Sequence[Asked], score: str) -> Floats:
    return np.array([one.scores[score] for one in some])
