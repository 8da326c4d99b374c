"""Answers of the image-blind baselines to the questions of a task, as conditions of the same predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping

from rightlung.audit.tasks import TaskAnswers, TaskPart
from rightlung.core import Grounding, ScoredBox, Sentence
from rightlung.core.keyed import text_generator
from rightlung.lexicon.findings import canonical_finding
from rightlung.lexicon.wordkeys import side_named
from rightlung.measuring import Targets
from rightlung.measuring.targets import StudyLabels
from rightlung.models.blind import ConstantText, MedianBoxes
from rightlung.predictions import IMAGE_QUERY, Prediction
from rightlung.predictions.prediction import REPORT_QUERY

INDEX_CONSTANT = "blind-constant"
"""Of reports: the one of an index with the highest BLEU-2 there; only for a model that has an index."""

BASELINES: Mapping[str, Mapping[str, str]] = {
    "ground": {"blind-median": "median box of the same findings and side"},
    "detect": {
        "blind-constant": "median box of each finding, constant score",
        "blind-random": "median box of each finding, random score",
    },
    "classify": {"blind-constant": "score 0.5 for every finding"},
    "describe": {"blind-frequent": "most frequent text"},
    "report": {"blind-frequent": "most frequent report", INDEX_CONSTANT: "constant report of the index"},
    "embed": {"blind-frequent": "frequent reports first, images at random", "blind-chance": "uniform chance"},
}
"""Baselines by method: names (used as conditions) and titles."""


class BlindBaselines:
    """What other patients' boxes and texts say about a part, never having seen an image."""

    def __init__(self, part: TaskPart, asked: TaskAnswers, targets: Targets, elsewhere: bool) -> None:
        """Fit on what ``asked`` knows; with ``elsewhere``, these are other studies than those to answer about."""
        self.part, self.elsewhere = part, elsewhere
        self.boxes = MedianBoxes()
        self.reports: list[str] = []
        """Reports of the other studies, whose frequency answers retrieval."""
        self.texts: dict[str, ConstantText] = defaultdict(ConstantText)
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
                if self.part.method == "report" and name == INDEX_CONSTANT:
                    continue  # `index_answers` gives it
                if self.part.method == "ground":
                    box = self.boxes.box(_phrase_names(labels), patient)
                    boxes = [] if box is None else [ScoredBox(box, 1.0)]
                    yield Prediction(study, query, name, grounding=Grounding(boxes=boxes))
                elif self.part.method == "detect":
                    yield Prediction(study, query, name, grounding=self._detected(asked, study, patient, name, seed))
                elif self.part.method == "classify":
                    yield Prediction(study, query, name, finding_scores=dict.fromkeys(asked.classes, 0.5))
                elif self.part.method == "embed":
                    # All images and texts are alike; `report_pool.blind_candidates` tells texts by their frequency.
                    if query == IMAGE_QUERY:
                        yield Prediction(study, query, name, image_embedding=(1.0,))
                    else:
                        yield Prediction(study, query, name, text_embedding=(1.0,))
                elif (text := self._text(query, patient)) is not None:
                    answer = {"report": text} if self.part.method == "report" else {"sentences": (Sentence(text),)}
                    yield Prediction(study, query, name, **answer)

    def _detected(self, asked: TaskAnswers, study: str, patient: str | None, name: str, seed: int) -> Grounding:
        chance = text_generator(seed, name, study, "")
        found = []
        for finding in asked.classes:
            score = float(chance.random()) if name == "blind-random" else 0.5
            if (box := self.boxes.box([finding], patient)) is not None:
                found.append(ScoredBox(box, score, finding))
        return Grounding(boxes=found)

    def _text(self, query: str, patient: str | None) -> str | None:
        return self.texts[self._subject(query)].text(patient) or self.texts[""].text(patient)


def _phrase_names(labels: StudyLabels) -> list[Hashable]:
    """Return the names under which to look up the box of a phrase, the most specific first."""
    findings = tuple(sorted(map(canonical_finding, labels.findings)))
    return [(findings, side_named(labels.report or "")), findings, "any"]
