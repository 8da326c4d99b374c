from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.audit import audit
from rightlung.core import Grounding, Heatmap, InputError, OutputError, Study
from rightlung.predictions import Prediction, PredictionWriter
from tests.audit.cards import QUICK, Cards, audited, diagonal_map, write_answers


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return write_answers(Cards(6), tmp_path / "p", diagonal_map, conditions=("none",))


def test_empty_predictions_are_refused(written: Path, tmp_path: Path) -> None:
    table = pq.read_table(next(written.glob("*.parquet")))
    pq.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(InputError, match="hold no row"):
        audit(tmp_path / "empty.parquet", Cards(6), tmp_path / "out")


def test_predictions_that_name_no_source_ask_for_one(written: Path, tmp_path: Path) -> None:
    table = pq.read_table(next(written.glob("*.parquet")))
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "nameless.parquet")
    with pytest.raises(InputError, match="name no source"):
        audit(tmp_path / "nameless.parquet", None, tmp_path / "out")
    assert audit(tmp_path / "nameless.parquet", Cards(6), tmp_path / "out", settings=QUICK).result["model"] is None


def test_predictions_without_a_phrase_of_the_source_are_refused(tmp_path: Path) -> None:
    columns = {"study": ["a"], "query": ["image"], "condition": ["none"], "phrase": [None], "similarity_global": [0.1]}
    pq.write_table(pa.table(columns), tmp_path / "image.parquet")
    with pytest.raises(InputError, match="no row asks a phrase"):
        audit(tmp_path / "image.parquet", Cards(6), tmp_path / "out")


def test_predictions_of_another_source_are_refused_and_strangers_listed(written: Path, tmp_path: Path) -> None:
    class Others(Cards):
        def _position(self, study_id: str) -> int | None:
            return None

    with pytest.raises(InputError, match="none of the studies in the predictions, which name the source 'cards'"):
        audit(written, Others(6), tmp_path / "out")
    done = audit(written, Cards(4, phrases=3), tmp_path / "out", settings=QUICK, cases=0)
    assert sum("has no study" in problem for problem in done.problems) == 2
    assert sum("has 3 phrases, and no phrase:3" in problem for problem in done.problems) == 4
    assert done.result["counts"]["phrases"] == 12


def test_one_study_that_cannot_be_built_is_named_and_the_others_are_audited(written: Path, tmp_path: Path) -> None:
    class Batched(Cards):
        """Builds studies together, as the phantom does, and refuses all of them if one is damaged."""

        def _build(self, position: int) -> Study:
            if position == 2:
                raise InputError("card-2 is damaged")
            return super()._build(position)

        def __getitems__(self, positions: list[int]) -> list[Study]:
            return [self._build(position) for position in positions]

    done = audit(written, Batched(6), tmp_path / "out", settings=QUICK, cases=0)
    assert done.result["counts"]["studies"] == 5
    assert sum("card-2 is damaged" in problem for problem in done.problems) == 1


def test_a_damaged_part_is_named_and_an_earlier_audit_is_left_as_it_was(written: Path, tmp_path: Path) -> None:
    done = audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0)
    before = {path.name: path.read_bytes() for path in done.folder.iterdir()}
    part = next(written.glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 40] = b"x" * 40
    part.write_bytes(bytes(data))
    with pytest.raises(InputError, match=part.name):
        audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0)
    assert {path.name: path.read_bytes() for path in done.folder.iterdir()} == before


@pytest.mark.parametrize("step", ["make_page", "write_instances", "write_page"])
def test_an_audit_that_is_interrupted_leaves_the_earlier_files(
    step: str, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0)
    before = {path.name: path.read_bytes() for path in done.folder.iterdir()}

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"rightlung.audit.run.{step}", stop)
    with pytest.raises(KeyboardInterrupt):
        audit(written, Cards(4), tmp_path / "out", settings=QUICK, cases=0)
    assert {path.name: path.read_bytes() for path in done.folder.iterdir()} == before


def test_a_second_audit_into_the_same_folder_is_refused_while_the_first_runs(written: Path, tmp_path: Path) -> None:
    refused: list[str] = []

    def meanwhile(stage: str, done: float, total: float) -> None:
        if stage == "working out intervals" and not done:
            with pytest.raises(OutputError, match="another audit is being written here") as error:
                audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0)
            refused.append(str(error.value))

    done = audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0, progress=meanwhile)
    assert len(refused) == 1
    assert str(done.folder) in refused[0]
    audit(written, Cards(6), tmp_path / "out", settings=QUICK, cases=0)  # the folder is free again


def test_a_folder_that_cannot_be_made_is_said_before_the_work(written: Path) -> None:
    stages: list[str] = []
    with pytest.raises(OutputError, match="/dev/null/out"):
        audit(written, Cards(6), "/dev/null/out", progress=lambda stage, done, total: stages.append(stage))
    assert stages == []


def test_nothing_with_a_target_still_gives_a_page(tmp_path: Path) -> None:
    with PredictionWriter(tmp_path / "p", source="cards", model="m") as writer:
        for number in range(6):
            writer.write(Prediction(f"card-{number}", "phrase:3", grounding=Grounding(Heatmap(np.eye(2)))))
    done = audit(tmp_path / "p", Cards(6), tmp_path / "out", settings=QUICK)
    assert done.result["overall"] == {}
    assert "nothing can be said" in done.page.read_text(encoding="utf-8")


def test_studies_without_a_patient_stand_for_themselves_and_that_is_said(tmp_path: Path) -> None:
    class Anonymous(Cards):
        def _build(self, position: int) -> Study:
            return replace(super()._build(position), patient=None)

    result = audited(tmp_path, Anonymous(5), diagonal_map, ("none",)).result
    assert result["counts"]["patients"] == 5
    assert any("5 studies name no patient" in note for note in result["notes"])
