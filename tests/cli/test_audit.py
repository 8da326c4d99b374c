from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Grounding, Heatmap, Query
from rightlung.predictions import Prediction, PredictionWriter
from rightlung.studies import open_source
from tests.cli.conftest import FLAT_MODEL, Run

SOURCE = "phantom?count=5&seed=3&size=64"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions on five phantom studies, in two parts."""
    folder = tmp_path_factory.mktemp("audit") / "predictions"
    rng = np.random.default_rng(0)
    for half in (slice(0, 2), slice(2, None)):
        with PredictionWriter(folder, source=SOURCE, model="mine") as writer:
            for study in list(open_source(SOURCE))[half]:
                for index, phrase in enumerate(study.phrases):
                    grounding = Grounding(Heatmap(rng.random((6, 6))))
                    writer.write(Prediction(study.id, f"phrase:{index}", "none", Query(phrase.text), grounding))
    return folder


def test_predictions_are_audited_against_the_source_they_name(run: Run, written: Path, tmp_path: Path) -> None:
    result = run("audit", str(written), "--out", "out", "--resamples", "200", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["source"] == SOURCE
    assert found["model"] == "mine"
    assert found["protocol"]["resamples"] == 200
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["overall"] == found["overall"]
    assert (tmp_path / "out" / "audit.html").exists()
    assert (tmp_path / "out" / "instances.parquet").exists()
    shown = run("audit", str(written), SOURCE, "--out", "out", "--resamples", "200", "--cases", "0")
    assert shown.returncode == 0
    assert shown.stdout == ""
    assert found["protocol"]["hash"] in shown.stderr


def test_a_model_is_asked_first_and_only_what_is_missing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    command = ("audit", "flat:Flat", SOURCE, "--out", "out", "--resamples", "200", "--condition", "none", "--json")
    result = run(*command)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert list(found["counts"]["rows_by_condition"]) == ["none"]
    again = run(*command)
    assert json.loads(again.stdout)["overall"] == found["overall"]
    without = run("audit", "flat:Flat", "--out", "out")
    assert without.returncode == 2
    assert "give the source" in without.stderr


def test_studies_the_source_does_not_have_are_listed_and_the_exit_says_so(run: Run, written: Path) -> None:
    result = run("audit", str(written), "phantom?count=3&seed=3&size=64", "--resamples", "200", "--json")
    assert result.returncode == 3
    found = json.loads(result.stdout)
    assert len(found["problems"]) == 2
    assert all("has no study 'phantom-3-00000" in problem for problem in found["problems"])
    assert found["counts"]["studies"] == 3
    assert any("were audited against" in note for note in found["notes"])


def test_predictions_of_another_source_are_refused_with_both_named(run: Run, written: Path) -> None:
    result = run("audit", str(written), "phantom?count=3&seed=99&size=64")
    assert result.returncode == 2
    assert "seed=99" in result.stderr
    assert SOURCE in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_model_and_a_missing_file_are_one_sentence(run: Run) -> None:
    result = run("audit", "no-such-model", SOURCE)
    assert result.returncode == 2
    assert "no-such-model" in result.stderr
    assert "Traceback" not in result.stderr
    assert run("audit", "missing.parquet", SOURCE).returncode == 2
    alone = run("audit", "missing.parquet")
    assert alone.returncode == 2
    assert "missing.parquet: there is no such predictions file" in alone.stderr


def test_an_output_that_cannot_be_written_exits_4(run: Run, written: Path) -> None:
    result = run("audit", str(written), "--out", "/dev/null/out", "--resamples", "200")
    assert result.returncode == 4
    assert "Traceback" not in result.stderr
