"""The reports of a model by study and condition, and a question about them with its answer (`report_gates`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rightlung.core.files import plain_fields
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator
from rightlung.results.gates import PLAIN, TOO_FEW, Dependence, fewest_patients


@dataclass(frozen=True)
class ReportGate:
    """A question about a model's reports, its answer, and the numbers behind it."""

    name: str
    question: str
    answer: Dependence
    wanted: Dependence | None
    """The answer of a model to rely on; None: either."""
    sentence: str
    values: Mapping[str, Estimate] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self)


def above(one: Estimate, border: float, level: float) -> Dependence:
    """Return whether an estimate is above a border, if its whole interval, of this level, is on one side of it."""
    if not one.has_interval or one.patients < fewest_patients(level):
        return TOO_FEW
    return "yes" if one.low >= border else "no" if one.high < border else TOO_FEW


def with_reason(gate: ReportGate, level: float) -> ReportGate:
    """Return the gate with the reason in its sentence if too few patients have a value for an answer."""
    counts, fewest = [one.patients for one in gate.values.values() if one.patients], fewest_patients(level)
    if gate.answer != TOO_FEW or not counts or min(counts) >= fewest:
        return gate
    return replace(gate, sentence=f"{gate.sentence} An answer needs {fewest} patients; there are {min(counts)}.")


class Reports:
    """The reports of each study under each condition."""

    def __init__(self, table: pa.Table, settings: BootstrapSettings) -> None:
        names = ["condition", "answer_text", "reference_text", "labels_called", "labels_true", "pairs_called"]
        self.table, self.settings = table, settings
        frame = table.select(["study", "patient", *names, "pairs_true"]).to_pandas()
        frame = frame[[isinstance(text, str) for text in frame.answer_text]]
        self.frames = {name: rows.set_index("study") for name, rows in frame.groupby("condition", sort=False)}
        self.plain = self.frames.get(PLAIN, frame[:0].set_index("study"))

    @cached_property
    def estimator(self) -> Estimator:
        """The estimator over the unchanged reports."""
        return Estimator(self.plain.patient.to_numpy(dtype=object), self.settings)

    @property
    def fewest(self) -> int:
        """From how many patients on a question is answered."""
        return fewest_patients(self.settings.level)

    def above(self, one: Estimate, border: float) -> Dependence:
        """Return whether an estimate is above a border, see `above`."""
        return above(one, border, self.settings.level)

    def asked(self, condition: str) -> bool:
        """Return whether there are answers under a condition."""
        return condition in self.frames

    def mean(self, values: Sequence[float]) -> Estimate:
        """Return the mean of a value of each unchanged report, NaN where undefined."""
        return self.estimator.mean(np.array(values, np.float64))

    def compared(self, condition: str, of: Callable[[pd.Series, pd.Series], float]) -> Estimate:
        """Return the mean of what is computed from the unchanged and the changed report of each study."""
        other = self.frames[condition]
        rows = ((one, other.loc[study] if study in other.index else None) for study, one in self.plain.iterrows())
        return self.mean([np.nan if after is None else of(before, after) for before, after in rows])

    def measure(self, name: str, condition: str = PLAIN, minus: str | None = None) -> Estimate:
        """Return a measure under a condition, or its change from another one."""
        return estimate(self.table, name, condition, minus=minus, settings=self.settings)
