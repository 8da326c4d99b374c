"""``rightlung predict`` as a person runs it, with a model of one's own by ``module:attribute``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rightlung.predictions import Prediction, check_predictions, open_predictions
from tests.cli.conftest import Run, found

ROOT = Path(__file__).parents[2]
PAINTER = "tests.asking.models:Painter"
PHANTOM = "phantom?count=6&seed=3&size=64"


def rows_of(folder: Path) -> dict[object, Prediction]:
    assert check_predictions(folder) == []
    return {row.key: row for row in open_predictions(folder)}


def test_it_writes_a_predictions_file_under_three_conditions_and_goes_on(call: Run, tmp_path: Path) -> None:
    summary = found(call("predict", PAINTER, PHANTOM, "--out", "p", "--limit", "4", "--json"))
    assert sorted(summary["conditions"]) == ["exchange-image", "none", "swap-sides"]
    assert summary["studies"] == 4
    assert summary["rows"] == summary["written"] == len(rows_of(tmp_path / "p"))
    assert summary["note"].startswith("Not a medical device")
    second = call("predict", PAINTER, PHANTOM, "--out", "p")
    assert second.returncode == 0, second.stderr
    assert second.stdout == ""
    assert re.search(
        rf"^reused {summary['rows']} answers from \d{{4}}-\d\d-\d\d \d\d:\d\d UTC: p$", second.stderr, re.M
    )
    opened = open_predictions(tmp_path / "p")
    assert (opened.model, opened.source) == (PAINTER, PHANTOM)


def test_without_a_terminal_progress_is_printed_as_lines(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rightlung.core.progress.PAUSE", 0.0)
    result = call("predict", PAINTER, PHANTOM, "--out", "p", "--batch-size", "8", "--condition", "none")
    assert "asking the model: 6 of 6" in result.stderr.splitlines()


def test_studies_that_cannot_be_asked_are_listed_and_the_exit_says_so(
    call: Run, manifest: Path, tmp_path: Path
) -> None:
    (manifest / "a.png").write_bytes(b"no image")
    command = ("predict", PAINTER, f"manifest:{manifest}", "--out", "p", "--condition", "none")
    failed = found(call(*command, "--json"), 3)["failed"]
    assert [(failure["study"], failure["condition"]) for failure in failed] == [("a", "none")]
    assert "a.png" in failed[0]["reason"]
    shown = call(*command)
    assert shown.returncode == 3
    assert "1 questions without an answer" in shown.stderr
    assert len(rows_of(tmp_path / "p")) == 3


def test_an_interrupt_exits_130_and_the_same_command_ends_where_one_run_would_have(call: Run, tmp_path: Path) -> None:
    source = "phantom?count=20&seed=3&size=64"
    arguments = ["predict", "tests.asking.models:Interrupted", source, "--condition", "none", "--out", "p"]
    stopped = subprocess.run(
        [sys.executable, "-m", "rightlung", *arguments, "--batch-size", "4"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert stopped.returncode == 130
    assert "the same command continues from there" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    kept = rows_of(tmp_path / "p")
    assert len(kept) == 4 * 4
    assert call(*arguments, "--batch-size", "1000").returncode == 0
    assert call("predict", PAINTER, source, "--condition", "none", "--out", "whole").returncode == 0
    whole = rows_of(tmp_path / "whole")
    assert kept.items() <= whole.items()
    assert rows_of(tmp_path / "p") == whole


def test_what_is_asked_can_be_chosen_and_is_all_that_the_model_can_answer_otherwise(call: Run, tmp_path: Path) -> None:
    model = "tests.asking.test_protocols:BoxClassifier"
    summary = found(call("predict", model, PHANTOM, "--out", "p", "--query", "image", "--json"))
    assert summary["conditions"] == {"none": 6, "exchange-image": 6}
    assert call("predict", model, PHANTOM, "--out", "p").returncode == 0
    rows = rows_of(tmp_path / "p").values()
    assert {row.query for row in rows} >= {"image", "region:left lung", "region:right lung"}
    assert all(row.finding_scores is not None for row in rows)
