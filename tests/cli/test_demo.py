from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.predictions import open_predictions
from rightlung.studies import open_source
from rightlung.studies.held import HeldSource
from tests.cli.conftest import FLAT_MODEL, Run

SMALL = ("--model", "flat:Flat", "--count", "8", "--seed", "3", "--out", "shown")


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    return tmp_path


def test_the_demo_asks_scores_and_writes_a_page(run: Run, flat: Path) -> None:
    result = run("demo", *SMALL, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["overall"]["auroc"]["model"]["estimate"] == 0.5  # a flat map
    assert found["overall"]["auroc"]["difference"]["high"] < 0
    assert set(found["conditions"]) == {"swap-sides", "exchange-image"}
    assert NOT_A_MEDICAL_DEVICE in (flat / "shown" / "audit.html").read_text(encoding="utf-8")
    picture = np.asarray(PIL.Image.open(flat / "shown" / "demo.png"))
    assert picture.shape[1] > 3 * 224
    phrases = sum(len(study.phrases) for study in open_source("phantom?count=8&seed=3"))
    assert found["counts"]["phrases"] == phrases
    rows = pq.read_table(flat / "shown" / "instances.parquet")
    assert len(rows) == sum(found["counts"]["rows_by_condition"].values())


def test_the_demos_table_is_for_people_and_a_second_run_asks_nothing_twice(run: Run, flat: Path) -> None:
    first = run("demo", *SMALL)
    assert first.returncode == 0, first.stderr
    assert first.stdout == ""
    for expected in ("the model", "image-blind prior", "sides swapped", "image exchanged", "audit.html", "what to try"):
        assert expected in first.stderr
    folder = next((flat / "shown" / "predictions").iterdir())
    parts = {part.name: part.stat().st_mtime_ns for part in folder.glob("*.parquet")}
    rows = len(open_predictions(folder))
    assert run("demo", *SMALL).returncode == 0
    assert {part.name: part.stat().st_mtime_ns for part in folder.glob("*.parquet")} == parts
    assert len(open_predictions(folder)) == rows


def test_a_demo_that_cannot_write_exits_4(run: Run, flat: Path) -> None:
    result = run("demo", "--model", "flat:Flat", "--count", "2", "--out", "/dev/null/demo")
    assert result.returncode == 4
    assert "Traceback" not in result.stderr


def test_held_studies_are_made_once() -> None:
    made = []
    source = open_source("phantom?count=3&seed=1&size=64")
    held = HeldSource(source, lambda _, done, total: made.append((done, total)))
    assert made == [(1, 3), (2, 3), (3, 3)]
    assert held.ids == list(source.ids)
    assert held[1] is held.study(held.ids[1])
    assert [study.id for study in held] == list(source.ids)
    assert held.address == source.address
