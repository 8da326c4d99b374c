"""Answers of the image-blind baselines to the questions of a task, as conditions of the same predictions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from rightlung.audit.tasks import TaskAnswers, TaskPart
from rightlung.core import Grounding, ScoredBox, Sentence
from rightlung.core.keyed import text_generator
from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.wordkeys import side_named
from rightlung.measuring import Targets
from rightlung.measuring.targets import StudyLabels
from rightlung.models.blind import ConstantText, MedianBoxes
from rightlung.models.blind.reports import RANDOM, BlindReports
from rightlung.predictions import IMAGE_QUERY, Prediction
from rightlung.predictions.prediction import REPORT_QUERY
from rightlung.scoring.text_retrieval import without_case_and_spaces

BASELINES: Mapping[str, Mapping[str, str]] = {
    "ground": {"blind-median": "median box of the same findings and side"},
    "detect": {
        "blind-constant": "median box of each finding, constant score",
        "blind-random": "median box of each finding, random score",
    },
    "classify": {"blind-constant": "score 0.5 for every finding"},
    "describe": {"blind-frequent": "most frequent text"},
    "report": {
        "blind-frequent": "most frequent report",
        "blind-best": "report with the best BLEU-4",
        "blind-assembled": "sentences glued together for BLEU-4",
        RANDOM: "random report of another study",
    },
    "embed": {"blind-frequent": "frequent reports first, images at random", "blind-chance": "uniform chance"},
}
"""Baselines by method: names (used as conditions) and titles."""


class BlindBaselines:
    """What other patients' boxes and texts say about a part, never having seen an image."""

    def __init__(self, part: TaskPart, asked: TaskAnswers, targets: Targets, elsewhere: bool) -> None:
        """Fit on what ``asked`` knows; with ``elsewhere``, these are other studies than those to answer about."""
        self.part, self.elsewhere = part, elsewhere
        self.boxes = MedianBoxes()
        self.counts: Counter[str] = Counter()
        self.reports: list[str] = []
        self.texts: dict[str, ConstantText] = defaultdict(ConstantText)
        self.written = BlindReports()
        for key, labels in asked.queries.items():
            if part.method == "ground":
                for corners in targets.phrases[key].boxes:
                    for name in _phrase_names(labels):
                        self.boxes.add(name, labels.patient, corners)
            elif part.method == "detect":
                for finding, some in labels.boxes.items():
                    for one in some:
                        self.boxes.add(finding, labels.patient, one)
            elif part.method == "embed":
                if elsewhere and key[1] == REPORT_QUERY:
                    self.reports.append(labels.report or "")
            elif part.method == "report":
                self.written.add(labels.patient, labels.report or "")
            elif labels.report:
                for subject in {self._subject(key[1]), ""}:
                    self.texts[subject].add(labels.patient, labels.report)

    def _subject(self, query: str) -> str:
        """Return what is known about the subject of a query without looking: the name of a region."""
        return query if self.part.query in ("regions", "region-names") else ""

    def answers(self, asked: TaskAnswers, keys: Iterable[tuple[str, str]], seed: int = 0) -> Iterator[Prediction]:
        """Yield the answers of every baseline to the queries with these keys."""
        for study, query in keys:
            labels = asked.queries[study, query]
            patient = None if self.elsewhere else labels.patient
            for name in BASELINES[self.part.method]:
                if self.part.method == "ground":
                    box = self.boxes.box(_phrase_names(labels), patient)
                    boxes = [] if box is None else [ScoredBox(box, 1.0)]
                    yield Prediction(study, query, name, grounding=Grounding(boxes=boxes))
                elif self.part.method == "detect":
                    yield Prediction(study, query, name, grounding=self._detected(asked, study, patient, name, seed))
                elif self.part.method == "classify":
                    yield Prediction(study, query, name, finding_scores=dict.fromkeys(asked.classes, 0.5))
                elif self.part.method == "embed":
                    yield Prediction(study, query, name, **self._embedded(asked, name, query, labels.report or ""))
                elif self.part.method == "report":
                    if (written := self.written.text(name, patient, study, seed)) is not None:
                        yield Prediction(study, query, name, report=written)
                elif (text := self._text(query, patient)) is not None:
                    yield Prediction(study, query, name, sentences=(Sentence(text),))

    def _detected(self, asked: TaskAnswers, study: str, patient: str | None, name: str, seed: int) -> Grounding:
        chance = text_generator(seed, name, study, "")
        found = []
        for finding in asked.classes:
            score = float(chance.random()) if name == "blind-random" else 0.5
            if (box := self.boxes.box([finding], patient)) is not None:
                found.append(ScoredBox(box, score, finding))
        return Grounding(boxes=found)

    def _embedded(self, asked: TaskAnswers, name: str, query: str, report: str) -> dict[str, Any]:
        """Return vectors whose cosine is how frequent a report is: where texts were fitted, else among the candidates.

        For uniform chance, all are the same.
        """
        if query == IMAGE_QUERY:
            return {"image_embedding": (1.0, 0.0)}
        if name == "blind-chance":
            return {"text_embedding": (1.0, 0.0)}
        if not self.counts:
            reports = self.reports or [one.report or "" for (_, name), one in asked.queries.items() if name == query]
            self.counts.update(map(without_case_and_spaces, reports))
        share = self.counts[without_case_and_spaces(report)] / self.counts.total()
        return {"text_embedding": (share, math.sqrt(1 - share**2))}

    def _text(self, query: str, patient: str | None) -> str | None:
        return self.texts[self._subject(query)].text(patient) or self.texts[""].text(patient)


def _phrase_names(labels: StudyLabels) -> list[Hashable]:
    """Return the names under which to look up the box of a phrase, the most specific first."""
    findings = tuple(sorted(map(canonical_finding, labels.findings)))
    return [(findings, side_named(labels.report or "")), findings, "any"]
