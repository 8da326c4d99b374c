from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import Grounding, Heatmap, Query
from rightlung.predictions import Prediction, PredictionWriter
from rightlung.studies import open_source
from tests.cli.conftest import FLAT_MODEL, Run, found

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


def test_predictions_are_audited_against_the_source_they_name(call: Run, written: Path, tmp_path: Path) -> None:
    result = found(call("audit", str(written), "--out", "out", "--resamples", "200", "--json"))
    assert (result["source"], result["model"], result["protocol"]["resamples"]) == (SOURCE, "mine", 200)
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["overall"] == result["overall"]
    assert (tmp_path / "out" / "audit.html").exists()
    assert (tmp_path / "out" / "instances.parquet").exists()
    shown = call("audit", str(written), SOURCE, "--out", "out", "--resamples", "200", "--cases", "0")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert result["protocol"]["hash"] in shown.stderr


def test_a_model_is_asked_first_and_only_what_is_missing(call: Run, tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    command = ("audit", "flat:Flat", SOURCE, "--out", "out", "--resamples", "200", "--condition", "none", "--json")
    result = found(call(*command))
    assert list(result["counts"]["rows_by_condition"]) == ["none"]
    assert found(call(*command))["overall"] == result["overall"]


def test_studies_the_source_does_not_have_are_listed_and_the_exit_says_so(call: Run, written: Path) -> None:
    result = found(call("audit", str(written), "phantom?count=3&seed=3&size=64", "--resamples", "200", "--json"), 3)
    assert len(result["problems"]) == 2
    assert all("has no study 'phantom-3-00000" in problem for problem in result["problems"])
    assert result["counts"]["studies"] == 3
    assert any("were audited against" in note for note in result["notes"])
