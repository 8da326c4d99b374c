"""Answers of the image-blind baselines to the questions of a task, as conditions of the same predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rightlung.audit.tasks import TaskAnswers, TaskPart
from rightlung.core import Box, Grounding, ScoredBox, Sentence
from rightlung.core.keyed import text_generator
from rightlung.measuring import Targets
from rightlung.measuring.targets import StudyLabels
from rightlung.models.blind.frequency import UNKNOWN
from rightlung.models.blind.model import ANYTHING, BlindModel, known_findings
from rightlung.models.blind.reports import RANDOM, BlindReports
from rightlung.predictions import IMAGE_QUERY, Prediction
from rightlung.predictions.prediction import BOX_QUERY, REPORT_QUERY, phrase_query

INDEX_CONSTANT = "blind-constant"
"""Of reports: the one of an index with the highest BLEU-2 there; only for a model that has an index."""

BASELINES: Mapping[str, Mapping[str, str]] = {
    "ground": {"blind-median": "median box of the same findings and side"},
    "detect": {
        "blind-constant": "median box of each finding, constant score",
        "blind-random": "median box of each finding, random score",
    },
    "classify": {"blind-constant": "score 0.5 for every finding"},
    "classify-regions": {"blind-frequency": "frequency of each finding in the region"},
    "classify-boxes": {"blind-nearby": "frequency of each finding in boxes nearby"},
    "describe": {"blind-frequent": "most frequent text"},
    "report": {
        "blind-frequent": "most frequent report",
        "blind-best": "report with the best BLEU-4",
        "blind-assembled": "sentences glued together for BLEU-4",
        "blind-language": "most probable report by its 4-grams",
        RANDOM: "random report of another study",
        INDEX_CONSTANT: "constant report of the index",
    },
    "embed": {"blind-frequent": "frequent reports first, images at random", "blind-chance": "uniform chance"},
}
"""Baselines by what is asked: names (used as conditions) and titles."""
_OF_QUERIES = {"regions": "classify-regions", "region-names": "classify-regions", "boxes": "classify-boxes"}


def baselines_of(part: TaskPart) -> Mapping[str, str]:
    """Return the baselines of a part, by name."""
    kind = _OF_QUERIES.get(part.query, part.method) if part.method == "classify" else part.method
    return BASELINES[kind]


class BlindBaselines:
    """What other patients' boxes and texts say about a part, never having seen an image."""

    def __init__(self, part: TaskPart, asked: TaskAnswers, targets: Targets, elsewhere: bool) -> None:
        """Fit on what ``asked`` knows; with ``elsewhere``, these are other studies than those to answer about."""
        self.part, self.elsewhere = part, elsewhere
        self.model = BlindModel()
        self.reports: list[str] = []
        """Reports of the other studies, whose frequency answers retrieval."""
        self.written = BlindReports()
        for key, labels in asked.queries.items():
            if part.method == "ground":
                for corners in targets.phrases[key].boxes:
                    self.model.learn_phrase(labels.patient, labels.findings, labels.report or "", corners)
            elif part.method == "detect":
                for finding, some in labels.boxes.items():
                    for one in some:
                        self.model.finding_boxes.add(finding, labels.patient, one)
            elif part.method == "embed":
                if elsewhere and key[1] == REPORT_QUERY:
                    self.reports.append(labels.report or "")
            elif part.method == "classify":
                self._count_findings(key, labels, targets)
            elif part.method == "report":
                self.written.add(labels.patient, labels.report or "")
            elif labels.report:
                for subject in {self._subject(key[1]), ANYTHING}:
                    self.model.texts[subject].add(labels.patient, labels.report)

    def _count_findings(self, key: tuple[str, str], labels: StudyLabels, targets: Targets) -> None:
        known = known_findings(labels.findings)
        if self.part.query == "boxes":
            present = [name for name, there in known.items() if there]
            self.model.box_findings.add(labels.patient, _corners(key, targets), present)
        elif self.part.query != "image":
            self.model.region_findings.add(self._subject(key[1]), labels.patient, known)

    def _subject(self, query: str) -> str:
        """Return what is known about the subject of a query without looking: the name of a region."""
        return query if self.part.query in ("regions", "region-names") else ANYTHING

    def answers(
        self, asked: TaskAnswers, targets: Targets, keys: Iterable[tuple[str, str]], seed: int = 0
    ) -> Iterator[Prediction]:
        """Yield the answers of every baseline to the queries with these keys."""
        for study, query in keys:
            labels = asked.queries[study, query]
            patient = None if self.elsewhere else labels.patient
            for name in baselines_of(self.part):
                if self.part.method == "report" and name == INDEX_CONSTANT:
                    continue  # `index_answers` gives it
                if self.part.method == "ground":
                    box = self.model.phrase_box(labels.findings, labels.report or "", patient)
                    boxes = [] if box is None else [ScoredBox(box, 1.0)]
                    yield Prediction(study, query, name, grounding=Grounding(boxes=boxes))
                elif self.part.method == "detect":
                    yield Prediction(study, query, name, grounding=self._detected(asked, study, patient, name, seed))
                elif self.part.method == "classify":
                    shares = self._shares((study, query), asked.classes, patient, targets)
                    yield Prediction(study, query, name, finding_scores=dict(zip(asked.classes, shares, strict=True)))
                elif self.part.method == "embed":
                    # All images and texts are alike; `report_pool.blind_candidates` tells texts by their frequency.
                    if query == IMAGE_QUERY:
                        yield Prediction(study, query, name, image_embedding=(1.0,))
                    else:
                        yield Prediction(study, query, name, text_embedding=(1.0,))
                elif self.part.method == "report":
                    if (written := self.written.text(name, patient, study, seed)) is not None:
                        yield Prediction(study, query, name, report=written)
                elif (text := self.model.text(self._subject(query), patient)) is not None:
                    yield Prediction(study, query, name, sentences=(Sentence(text),))

    def _shares(
        self, key: tuple[str, str], classes: Sequence[str], patient: str | None, targets: Targets
    ) -> list[float]:
        """Return the frequency of each class at the place that is asked about; constant for a whole image."""
        if self.part.query == "image":
            return [UNKNOWN] * len(classes)
        if self.part.query == "boxes":
            return self.model.box_findings.shares(Box(*_corners(key, targets)), classes, patient)
        return self.model.region_findings.shares(self._subject(key[1]), classes, patient)

    def _detected(self, asked: TaskAnswers, study: str, patient: str | None, name: str, seed: int) -> Grounding:
        chance = text_generator(seed, name, study, "")
        found = []
        for finding in asked.classes:
            score = float(chance.random()) if name == "blind-random" else 0.5
            if (box := self.model.finding_boxes.box([finding], patient)) is not None:
                found.append(ScoredBox(box, score, finding))
        return Grounding(boxes=found)


def _corners(key: tuple[str, str], targets: Targets) -> Sequence[float]:
    """Return the box of a phrase that a query is about."""
    study, query = key
    index = BOX_QUERY.fullmatch(query)
    assert index is not None, "the part asks about boxes"
    corners: Sequence[float] = targets.phrases[study, phrase_query(int(index[1]))].boxes[int(index[2])]
    return corners
