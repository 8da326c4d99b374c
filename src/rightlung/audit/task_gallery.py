"""Cases of a task: where the model does best, in between, and worst, with pictures and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung.audit.gallery import Row, answers_of, at_shares, choose, pictured
from rightlung.audit.tasks import TaskAnswers, TaskPart
from rightlung.core import Box, ScoredBox, Study
from rightlung.lexicon.findings import canonical_finding
from rightlung.measuring import BoxSettings, find_measure
from rightlung.pages.content import Case, Gallery
from rightlung.pages.numbers import number
from rightlung.pages.overlays import Tile
from rightlung.predictions import Prediction, Predictions
from rightlung.predictions.prediction import BOX_QUERY, PHRASE_QUERY
from rightlung.studies import Source

SHOWN_BOXES, LONGEST_TEXT, REPORT_SIDE = 3, 700, 360
_SCORE = "case_score"


class CaseRule(NamedTuple):
    """By which measure, of one row alone, cases are ordered; which column varies among them; and their caption."""

    measure: str
    kind: str
    caption: str


RULES: Mapping[str, CaseRule] = {
    "ground": CaseRule("sentence_map", "findings", "Green: target. Orange: the model's best boxes with their scores."),
    "detect": CaseRule("map", "target", "Green: boxes of the finding. Orange: the model's best with their scores."),
    "describe": CaseRule("rouge_l", "reference_text", "Green: the region that the model was asked about."),
    "report": CaseRule("rouge_l", "reference_text", "Orange: the best box of each generated sentence, by its number."),
}
"""By method; tasks with other methods have no gallery."""


@dataclass(frozen=True)
class TaskCases:
    """Makes the galleries of a part. The boxes are post-processed as they were for measuring."""

    part: TaskPart
    source: Source
    asked: TaskAnswers
    boxes_of: Callable[[str], BoxSettings]
    """From a patient to the settings of boxes."""

    def galleries(self, table: pa.Table, predictions: Predictions, name: str, count: int) -> list[Gallery]:
        """Return galleries of the best, middle and worst cases, up to ``count`` each."""
        rule = RULES.get(self.part.method)
        if rule is None or not count:
            return []
        title, scored = find_measure(rule.measure).title, _scored(table, rule.measure)
        best, worst = choose(scored, count, _SCORE, rule.kind)
        shares, taken = np.linspace(0.35, 0.65, count).tolist(), {row["study"] for row in (*best, *worst)}
        middle = [row for row in at_shares(scored, shares, score=_SCORE, kind=rule.kind) if row["study"] not in taken]
        answers = answers_of(predictions, [(row["study"], row["query"]) for row in (*best, *middle, *worst)])
        found = []
        for what, rows in (("best", best), ("middle", middle), ("worst", worst)):
            cases = [self.case(row, answers.get((row["study"], row["query"])), title) for row in rows]
            heading = f"{what.capitalize()} cases by {title}"
            found.append(Gallery(f"{name}-{what}", heading, rule.caption, cases, folded=what != "best"))
        return [gallery for gallery in found if gallery.cases]

    def case(self, row: Row, answer: Prediction | None, measure: str) -> Case:
        """Return one case with its pictures, texts and score."""
        notes = [f"{measure} {number(row[_SCORE])}. Study {row['study']}, {row['query']}"]
        if self.part.method == "describe":
            said = [f"Reference: {_cut(row['reference_text'])}", f"Model: {_cut(row['answer_text']) or 'nothing'}"]
            subject = "Box of a phrase" if BOX_QUERY.fullmatch(row["query"]) else row["query"].partition(":")[2]
            return replace(pictured(subject, [*said, *notes], partial(self._asked_tile, row)), beside=True)
        if self.part.method == "report":
            sentences = () if answer is None or answer.sentences is None else answer.sentences
            numbered = " ".join(f"({place}) {one.text}" for place, one in enumerate(sentences, 1))
            said = [f"Reference: {_cut(row['reference_text'])}", f"Model: {_cut(numbered or row['answer_text'])}"]
            boxes = [ScoredBox(one.boxes[0], 1.0, str(n)) for n, one in enumerate(sentences, 1) if one.boxes]
            tile = partial(self._report_tile, row, boxes)
            return replace(pictured("Report", [*said, *notes], tile, REPORT_SIDE), beside=True)
        boxes = [] if answer is None or answer.grounding is None else [*answer.grounding.boxes]
        if self.part.method == "detect":
            boxes = [box for box in boxes if box.label and canonical_finding(box.label) == row["target"]]
        kept = self.boxes_of(row["patient"]).apply(boxes)[:SHOWN_BOXES]
        return pictured(row["phrase"] or row["target"], notes, partial(self._box_tiles, row, kept))

    def _box_tiles(self, row: Row, boxes: Sequence[ScoredBox]) -> list[tuple[str, Tile]]:
        """Return the image with its target, and with the model's boxes, too."""
        study = self.source.study(row["study"])
        if (phrase := PHRASE_QUERY.fullmatch(row["query"])) is not None:
            one = study.phrases[int(phrase[1])]
            shown: dict[str, Any] = {"mask": one.mask} if one.mask is not None else {"targets": one.boxes}
        else:
            corners = self.asked.queries[row["study"], row["query"]].boxes.get(row["target"], ())
            shown = {"targets": [Box(*one) for one in corners]}
        target, label = Tile(study.image, **shown), "model" if boxes else "model predicts no box"
        scores = [f"{one.score:.2g}" for one in boxes]
        answer = Tile(study.image, predicted=[one.box for one in boxes], labels=scores, **shown)
        return [("target", target), (label, answer)]

    def _asked_tile(self, row: Row) -> list[tuple[str, Tile]]:
        study = self.source.study(row["study"])
        return [("asked", Tile(study.image, targets=_asked_boxes(study, row["query"])))]

    def _report_tile(self, row: Row, boxes: Sequence[ScoredBox]) -> list[tuple[str, Tile]]:
        labels = [one.label or "" for one in boxes]
        image = self.source.study(row["study"]).image
        return [("model", Tile(image, predicted=[one.box for one in boxes], labels=labels))]


def _scored(table: pa.Table, name: str) -> pa.Table:
    """Return the rows of the condition ``none``, each with the measure of this row alone."""
    measure = find_measure(name)
    plain = table.filter(pc.equal(table["condition"], "none"))
    columns = {column: plain[column].to_pandas().to_numpy() for column in measure.columns}
    rows = ({column: values[row : row + 1] for column, values in columns.items()} for row in range(plain.num_rows))
    return plain.append_column(_SCORE, pa.array([measure.value(row) for row in rows], pa.float64()))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()} …"


def _asked_boxes(study: Study, query: str) -> list[Box]:
    """Return the box of a region or of a phrase that a query is about."""
    if (box := BOX_QUERY.fullmatch(query)) is not None:
        return [study.phrases[int(box[1])].target_boxes[int(box[2])]]
    region = study.regions.get(query.partition(":")[2])
    return [] if region is None else [region]
