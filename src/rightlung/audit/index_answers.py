"""What the audit of an index of reports adds: its constant and nearest reports, and how much an answer copies.

The constant report is that of the index with the highest BLEU-2 on the index's own texts (docs/generation.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rightlung.audit.blind import BASELINES, INDEX_CONSTANT
from rightlung.generation.reporter import RetrievalReporter
from rightlung.measuring.texts import COPIED_EXEMPLARS, COPIED_NEAREST
from rightlung.predictions import Prediction, Predictions
from rightlung.scoring.language import copied_share, token_rule

NEAREST = "index-nearest"
"""Condition: the nearest report of the index, as the writer ``nearest`` returns it."""
_WORDS = token_rule("marks")


@dataclass(frozen=True)
class IndexAnswers:
    """The index's texts that answers are compared with; ``nearest`` are the nearest reports by study."""

    constant: str
    exemplars: Sequence[str]
    nearest: Mapping[str, str]

    @classmethod
    def of(cls, reporter: RetrievalReporter, nearest: Predictions) -> IndexAnswers:
        """Return those of a reporter and of the answers of its writer ``nearest``."""
        answers = (one for batch in nearest.batches() for one in batch.predictions())
        found = {one.study: one.report for one in answers if one.condition == "none" and one.report is not None}
        shown = [text for pair in reporter.exemplars for text in pair]
        return cls(reporter.index.texts[reporter.index.constant], shown, found)

    def predictions(self, keys: Sequence[tuple[str, str]]) -> Iterator[Prediction]:
        """Yield the constant and the nearest report as answers to these queries."""
        for study, query in keys:
            yield Prediction(study, query, INDEX_CONSTANT, report=self.constant)
            if study in self.nearest:
                yield Prediction(study, query, NEAREST, report=self.nearest[study])

    def copied(self, study: str, answer: str) -> tuple[float, float]:
        """Return the share of an answer's 4-grams that the study's nearest report has, and that the exemplars have."""
        words = _WORDS(answer)
        nearest = copied_share(words, [_WORDS(self.nearest[study])]) if study in self.nearest else np.nan
        exemplars = copied_share(words, [_WORDS(text) for text in self.exemplars]) if self.exemplars else np.nan
        return nearest, exemplars

    def with_copied(self, table: pa.Table) -> pa.Table:
        """Return an instances table with the share of each answer's 4-grams in the nearest report and the exemplars.

        It is undefined where the model saw another image than the index.
        """
        own = ("none", NEAREST, *BASELINES["report"])
        columns: dict[str, list[float]] = {COPIED_NEAREST: [], COPIED_EXEMPLARS: []}
        for row in table.select(["study", "condition", "answer_text"]).to_pylist():
            known = row["answer_text"] is not None and row["condition"] in own
            shares = self.copied(row["study"], row["answer_text"]) if known else (np.nan, np.nan)
            for values, share in zip(columns.values(), shares, strict=True):
                values.append(share)
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.array(values, pa.float64()))
        return table


def nearest_writer(reporter: RetrievalReporter) -> RetrievalReporter:
    """Return the reporter that answers with the nearest report."""
    return RetrievalReporter(reporter.embedder, reporter.index, replace(reporter.settings, writer="nearest"))
