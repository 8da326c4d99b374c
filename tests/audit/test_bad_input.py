from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.audit import Audit, audit
from rightlung.core import Grounding, Heatmap, InputError, OutputError, Study
from rightlung.predictions import Prediction, PredictionWriter
from tests.audit.cards import QUICK, Cards, audited, diagonal_map, write_answers


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return write_answers(Cards(6), tmp_path / "p", diagonal_map, conditions=("none",))


def run(written: Path, source: Cards | None = None, **options: Any) -> Audit:
    return audit(written, source or Cards(6), written.parent / "out", settings=QUICK, cases=0, **options)


def test_predictions_without_a_row_a_phrase_or_a_source_are_refused(written: Path, tmp_path: Path) -> None:
    table = pq.read_table(written)
    image = {"study": ["a"], "query": ["image"], "condition": ["none"], "phrase": [None], "similarity_global": [0.1]}
    for name, content, message in (
        ("empty", table.slice(0, 0), "the predictions have no rows"),
        ("image", pa.table(image), "no row asks about a phrase"),
        ("nameless", table.replace_schema_metadata(None), "name no source"),
    ):
        pq.write_table(content, tmp_path / f"{name}.parquet")
        with pytest.raises(InputError, match=message):
            audit(tmp_path / f"{name}.parquet", None if name == "nameless" else Cards(6), tmp_path / "out")
    assert run(tmp_path / "nameless.parquet").result["model"] is None


def test_predictions_of_another_source_are_refused_and_strangers_listed(written: Path) -> None:
    class Others(Cards):
        def _position(self, study_id: str) -> int | None:
            return None

    with pytest.raises(InputError, match="none of the studies in these predictions \\(made from 'cards'\\)"):
        run(written, Others(6))
    done = run(written, Cards(4, phrases=3))
    assert sum("has no study" in problem for problem in done.problems) == 2
    assert sum("has 3 phrases and no phrase:3" in problem for problem in done.problems) == 4
    assert done.result["counts"]["phrases"] == 12


@pytest.mark.parametrize("step", ["make_page", "write_instances", "write_page"])
def test_an_audit_that_is_interrupted_leaves_the_earlier_files(
    step: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(written).folder
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"rightlung.audit.run.{step}", stop)
    with pytest.raises(KeyboardInterrupt):
        run(written, Cards(4))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_second_audit_into_the_same_folder_is_refused_while_the_first_runs(written: Path) -> None:
    refused: list[str] = []

    def meanwhile(stage: str, done: float, total: float) -> None:
        if stage == "computing intervals" and not done:
            with pytest.raises(OutputError, match="out: another audit is writing to this folder"):
                run(written)
            refused.append(stage)

    run(written, progress=meanwhile)
    assert len(refused) == 1
    run(written)  # the folder is free again


def test_a_folder_that_cannot_be_made_is_said_before_the_work(written: Path) -> None:
    with pytest.raises(OutputError, match="/dev/null/out"):
        audit(written, Cards(6), "/dev/null/out", progress=lambda *_: pytest.fail("work has begun"))


def test_nothing_with_a_target_still_gives_a_page_and_other_questions_are_counted(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path / "p", source="cards", model="m") as writer:
        for number in range(6):
            writer.write(Prediction(f"card-{number}", "phrase:3", grounding=Grounding(Heatmap(np.eye(2)))))
            writer.write(Prediction(f"card-{number}", "image", similarity_global=0.5))
    done = run(tmp_path / "p")
    assert done.result["overall"] == {}
    assert "localisation cannot be measured" in done.page.read_text(encoding="utf-8")
    assert any("6 rows with queries other than the source's phrases" in note for note in done.result["notes"])


def test_studies_without_a_patient_stand_for_themselves_and_that_is_said(tmp_path: Path) -> None:
    class Anonymous(Cards):
        def _build(self, position: int) -> Study:
            return replace(super()._build(position), patient=None)

    result = audited(tmp_path, Anonymous(5), diagonal_map, ("none",)).result
    assert result["counts"]["patients"] == 5
    assert any("5 studies have no patient id" in note for note in result["notes"])
