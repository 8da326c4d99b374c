from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow.parquet as pq

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.studies import open_source
from rightlung.studies.sources import InMemorySource
from tests.cli.conftest import FLAT_MODEL, Run, found

SMALL = ("--model", "flat:Flat", "--count", "8", "--seed", "3", "--out", "shown")


def test_the_demo_asks_scores_writes_a_page_and_asks_nothing_twice(call: Run, tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    first = call("demo", *SMALL)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    for expected in ("the model", "image-blind prior", "sides swapped", "image exchanged", "audit.html", "next:"):
        assert expected in first.stderr
    shown = tmp_path / "shown"
    folder = next((shown / "predictions").iterdir())
    parts = {part.name: part.stat().st_mtime_ns for part in folder.glob("*.parquet")}
    result = found(call("demo", *SMALL, "--json"))
    assert {part.name: part.stat().st_mtime_ns for part in folder.glob("*.parquet")} == parts
    assert result["overall"]["auroc"]["model"]["estimate"] == 0.5  # a flat map
    assert result["overall"]["auroc"]["difference"]["high"] < 0
    assert set(result["conditions"]) == {"swap-sides", "exchange-image"}
    assert NOT_A_MEDICAL_DEVICE in (shown / "audit.html").read_text(encoding="utf-8")
    assert np.asarray(PIL.Image.open(shown / "demo.png")).shape[1] > 3 * 224
    phrases = sum(len(study.phrases) for study in open_source("phantom?count=8&seed=3"))
    assert result["counts"]["phrases"] == phrases
    assert pq.read_metadata(shown / "instances.parquet").num_rows == sum(result["counts"]["rows_by_condition"].values())


def test_held_studies_are_made_once() -> None:
    made = []
    source = open_source("phantom?count=3&seed=1&size=64")
    held = InMemorySource(source, lambda _, done, total: made.append((done, total)))
    assert made == [(1, 3), (2, 3), (3, 3)]
    assert held.ids == list(source.ids)
    assert held[1] is held.study(held.ids[1])
    assert [study.id for study in held] == list(source.ids)
    assert held.address == source.address
