"""The reports that retrieval chooses from, and how frequent they are among other patients.

A contrastive loss unlearns the frequency of a text; the prior correction adds it again (docs/tasks.md). Frequencies and
the weights of the correction come from patients who are not audited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rightlung.core.keyed import text_digest
from rightlung.measuring.targets import StudyLabels
from rightlung.predictions import IMAGE_QUERY, Prediction, Predictions
from rightlung.predictions.prediction import REPORT_QUERY
from rightlung.scoring.text_retrieval import Candidates, PriorCorrection, TextPool, fit_prior

CORRECTED = "prior-corrected"
"""Condition: the cosines with the texts' log frequency added."""
PLAIN = "none"
FIT_IMAGES = 2000
"""At most so many images of other patients fit the correction."""
FIT_NUMBERS = 20_000_000
"""At most so many cosines are held for it."""
LEAST_IMAGES = 20

Queries = Mapping[tuple[str, str], StudyLabels]


@dataclass(frozen=True)
class ReportPool:
    """What retrieval chooses from under each condition, and a description of it for the result."""

    candidates: Mapping[str, Candidates] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    def corrected(self, predictions: Predictions, asked: Queries) -> Iterator[Prediction]:
        """Yield the answers about images again under the condition `CORRECTED`, if there is a correction."""
        for batch in predictions.batches() if CORRECTED in self.candidates else ():
            for one in batch.predictions():
                if (one.study, one.query) in asked and one.query == IMAGE_QUERY and one.condition == PLAIN:
                    yield replace(one, condition=CORRECTED)

    def sentence(self) -> str:
        """Say what the candidates are, without the location of the files; empty for those of the audited studies."""
        if not self.about:
            return ""
        return f"candidates: the {self.about['candidates']} distinct reports of pool {self.about['digest']}"


def reports_of(queries: Queries) -> dict[str, StudyLabels]:
    """Return the labels of the studies with a report, by id."""
    return {study: one for (study, query), one in queries.items() if query == REPORT_QUERY and one.report}


def asked_of_pool(own: Queries, other: Queries) -> dict[tuple[str, str], StudyLabels]:
    """Return what to ask about the pool's studies: one report of each text that no audited study has, and images.

    The images are of patients who are not audited; they fit the prior correction.
    """
    audited = TextPool.of([str(one.report) for one in reports_of(own).values()])
    patients = {one.patient for one in own.values()}
    texts = {study: str(one.report) for study, one in reports_of(other).items()}
    missing = audited.places([*texts.values()]) < 0
    fresh = [study for study, new in zip(texts, missing, strict=True) if new]
    first: dict[int, str] = {}
    for study, place in zip(fresh, TextPool.of([*texts.values()]).places([texts[one] for one in fresh]), strict=True):
        first.setdefault(int(place), study)
    images = [study for study in texts if other[study, REPORT_QUERY].patient not in patients]
    most = max(1, min(FIT_IMAGES, FIT_NUMBERS // (len(audited.texts) + len(first))))
    chosen = [images[place * len(images) // most] for place in range(most)] if len(images) > most else images
    keys = [*((study, REPORT_QUERY) for study in first.values()), *((study, IMAGE_QUERY) for study in chosen)]
    return {key: other[key] for key in keys}


def blind_candidates(pool: TextPool, training_texts: Sequence[str]) -> dict[str, Candidates]:
    """Return the candidates of the answers that never see an image: all texts are alike but for their frequency."""
    alike = Candidates(pool, np.ones((len(pool.texts), 1)))
    return {
        "blind-frequent": replace(alike, bonus=pool.log_frequency(training_texts)),
        "blind-chance": alike,
    }


def report_pool(
    name: str, own: tuple[Queries, Predictions], other: tuple[Queries, Predictions | None], problems: list[str]
) -> ReportPool:
    """Return the pool of the audited studies' reports and those of a source, with the prior correction.

    ``own`` and ``other`` are what was asked about the audited studies and about the source ``name``, all of it, and
    the answers.
    """
    audited, reports = reports_of(own[0]), reports_of(other[0])
    # A study that is in both counts once.
    texts = dict.fromkeys((study, str(one.report)) for some in (audited, reports) for study, one in some.items())
    pool = TextPool.of([text for _, text in texts], name=name)
    patients = {one.patient for one in audited.values()}
    others = {study: one for study, one in reports.items() if one.patient not in patients}
    own_texts, _ = _embeddings(own[1], audited)
    other_texts, shown = _embeddings(other[1], reports)
    told = other_texts | own_texts
    plain = Candidates.some(pool, dict(zip(pool.places([*told]).tolist(), told.values(), strict=True)))
    pool = plain.pool
    training = [str(one.report) for one in others.values()]
    about: dict[str, Any] = {
        "source": name, "candidates": len(pool.texts), "digest": text_digest(*sorted(pool.texts)).hex()[:10],
        "reports_of_other_patients": len(training),
    }  # fmt: skip
    candidates = {PLAIN: plain} | blind_candidates(pool, training or [text for _, text in texts])
    places = pool.places([text for text, _ in shown.values()])
    seen = [one for (study, one), place in zip(shown.items(), places, strict=True) if study in others and place >= 0]
    correction = _correction(plain, training, seen)
    if correction is None:
        problems.append(
            f"no prior correction: it needs {LEAST_IMAGES} images of patients in {name} who are not audited; there are "
            f"{len(seen)}"
        )
    else:
        bonus = correction.bonus(pool.log_frequency(training))
        candidates[CORRECTED] = replace(plain, bonus=bonus)
        about |= {"prior": {"log_frequency": correction.weight, "images": len(seen)}}
    return ReportPool(candidates, about)


def _embeddings(
    predictions: Predictions | None, labels: Mapping[str, StudyLabels]
) -> tuple[dict[str, Sequence[float]], dict[str, tuple[str, Sequence[float]]]]:
    """Return the embeddings of reports by their text, and of images by study with the study's report."""
    texts: dict[str, Sequence[float]] = {}
    images: dict[str, tuple[str, Sequence[float]]] = {}
    for one in (one for batch in predictions.batches() for one in batch.predictions()) if predictions else ():
        if one.condition != PLAIN or one.study not in labels:
            continue
        text = str(labels[one.study].report)
        if one.query == REPORT_QUERY and one.text_embedding is not None:
            texts[text] = one.text_embedding
        elif one.query == IMAGE_QUERY and one.image_embedding is not None:
            images[one.study] = (text, one.image_embedding)
    return texts, images


def _correction(
    plain: Candidates, training: Sequence[str], images: Sequence[tuple[str, Sequence[float]]]
) -> PriorCorrection | None:
    """Fit the correction to images of other patients and their reports, among these patients' reports only.

    Among all candidates, the reports that nobody else has would be those of the audited studies, never the right ones.
    """
    if len(images) < LEAST_IMAGES:
        return None
    known = np.unique(plain.pool.places(training))
    known = known[known >= 0]
    texts, vectors = zip(*images, strict=True)
    places = np.searchsorted(known, plain.pool.places(texts))
    return fit_prior(vectors, plain.embeddings[known], places, plain.pool.log_frequency(training)[known])
