"""Corpus BLEU of written reports, against values worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rightlung.core import Query, Report, Study
from rightlung.measuring import MEASURES, Measure, Targets, find_measure, find_protocol, gather_targets, measure
from rightlung.measuring.targets import StudyLabels
from rightlung.predictions import Batch, Prediction
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings
from rightlung.scoring.language import BLEU_COLUMNS, bleu_statistics, words_and_marks

from .made_up import Spots

TRUE = ["The heart is of normal size.", "No pleural effusion is seen."]
SAID = ["the heart is of the size.", "No effusion"]
# Said 7 + 2 words and marks, true 7 + 6. Words 6 ("the" once) + 2 of 9, pairs 4 + 0 of 7, threes 2 of 5, fours 1 of 4.
BLEU_1, BLEU_4 = exp(1 - 13 / 9) * 8 / 9, exp(1 - 13 / 9) * (8 / 9 * 4 / 7 * 2 / 5 * 1 / 4) ** 0.25


class Reported(Spots):
    def _build(self, position: int) -> Study:
        study = super()._build(position)
        return replace(study, report=Report(TRUE[position])) if position < 2 else study


def test_corpus_bleu_is_that_worked_out_by_hand_and_resampled() -> None:
    rows = [
        bleu_statistics(words_and_marks(said), words_and_marks(true)) for said, true in zip(SAID, TRUE, strict=True)
    ]
    columns = {name: np.array([row[name] for row in rows] + [np.nan]) for name in BLEU_COLUMNS}
    assert find_measure("bleu_1").value(columns) == pytest.approx(BLEU_1)
    counts = np.array([[1.0, 1, 1], [0, 1, 0], [0, 0, 2], [0, 2, 0]])
    found = find_measure("bleu_4").of_counts(columns, counts)
    assert found == pytest.approx([BLEU_4, 0.0, np.nan, 0.0], nan_ok=True)
    assert find_measure("bleu_1").of_counts(columns, counts)[3] == pytest.approx(exp(1 - 6 / 2))


def test_reports_are_measured_under_every_condition_and_failures_have_a_row(tmp_path: Path) -> None:
    gather_targets(Reported(), None, tmp_path / "targets")
    targets = Targets.open(tmp_path / "targets")
    both = [("none", SAID), ("exchange-image", SAID[::-1])]
    given = [Prediction(f"s{n}", "image", name, report=said[n % 2]) for name, said in both for n in range(3)]
    given.append(Prediction.failed("s1", "image", "swap-sides", Query(), "planted"))
    table = measure([Batch.of(given)], targets, find_protocol("reports").applied_to(targets))
    rows = table.to_pylist()
    assert [(row["study"], row["patient"]) for row in rows] == [("s0", "p0"), ("s1", "p0")] * 2 + [("s1", "p0")]
    assert {(row["target"], row["target_kind"]) for row in rows} == {("report", "report")}
    assert rows[-1]["reason"] == "no answer: planted"
    assert np.isnan(rows[-1]["answer_words"])
    columns = {name: table.column(name).to_numpy() for name in BLEU_COLUMNS}
    counts = np.array([[row["condition"] == name for row in rows] for name, _ in both], float)
    assert find_measure("bleu_4").of_counts(columns, counts) == pytest.approx([BLEU_4, 0.0])
    audit = measure([Batch.of(given)], targets, find_protocol("audit").applied_to(targets))
    assert not set(BLEU_COLUMNS) & set(audit.schema.names)


def test_corpus_bleu_and_its_change_under_a_condition_have_an_interval(tmp_path: Path) -> None:
    """Answers that are the reports have BLEU 1, answers that share no word have 0."""
    targets = gather_targets(Reported(), None, tmp_path / "targets")
    both = [("none", TRUE), ("exchange-image", ["nothing", "nothing"])]
    given = [Prediction(f"s{n}", "image", name, report=said[n]) for name, said in both for n in range(2)]
    given.append(Prediction("s0", "image", "swap-sides", report=TRUE[0]))
    table = measure([Batch.of(given)], targets, find_protocol("reports").applied_to(targets))
    settings = BootstrapSettings(resamples=100)
    assert estimate(table, "bleu_4", settings=settings).value == 1.0
    change = estimate(table, "bleu_4", "exchange-image", minus="none", settings=settings)
    assert (change.value, change.n) == (-1.0, 4)
    assert estimate(table, "bleu_1", "swap-sides", minus="none", settings=settings).n == 2  # the same instances only


def test_a_measure_of_ones_own_makes_rows_from_answers_about_whole_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def length_rows(answer: Mapping[str, Any], labels: StudyLabels) -> list[dict[str, Any]]:
        return [{"target": "length", "extra_words": len(answer["report"].split()) - len((labels.report or "").split())}]

    own = Measure(
        "report_length", "length", "Words more than in the reference.", None, (-1e9, 1e9), columns=("extra_words",),
        image_rows=length_rows,
    )  # fmt: skip
    monkeypatch.setitem(MEASURES, "report_length", own)
    targets = gather_targets(Reported())
    given = [Prediction(f"s{n}", "image", report=SAID[n]) for n in range(2)]
    protocol = replace(find_protocol("reports"), measures=("report_length",)).applied_to(targets)
    table = measure([Batch.of(given)], targets, protocol)
    assert table.column("extra_words").to_pylist() == [0.0, -3.0]
    assert own.value({"extra_words": table.column("extra_words").to_numpy()}) == -1.5
