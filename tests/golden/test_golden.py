"""Scores that must not change by accident. To change one on purpose, see `figures.keep`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.golden.figures import differences, of_audit, of_experiment
from tests.golden.planted import write_planted

TRAINED = ("Retrained", "UNITER", "No Attn", "t2 |")  # table t2 is Retrained's


def test_the_figures_of_a_quick_reproduction_stay(call: Run, tmp_path: Path) -> None:
    only = ("--only", "retrained,no-attn,uniter", "--model", "starter")
    result = call("reproduce", "wrong-lung", "--quick", *only, "--out", str(tmp_path / "quick"))
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert differences("quick", of_experiment(found), TRAINED) == []


def test_the_figures_of_an_audit_of_the_starter_stay(call: Run, tmp_path: Path) -> None:
    result = call("audit", "starter", "phantom?count=60&seed=5", "--out", str(tmp_path / "audit"), "--cases", "0")
    assert result.returncode == 0, result.stderr
    found = of_audit(json.loads((tmp_path / "audit" / "audit.json").read_text()))
    assert differences("audit", found, tolerance=2e-4) == []  # maps differ in their last bits between processors


def test_the_figures_of_planted_faults_stay(call: Run, tmp_path: Path) -> None:
    planted = write_planted(tmp_path / "planted")
    result = call("audit", str(planted), "--out", str(tmp_path / "audit"), "--cases", "0")
    assert result.returncode == 0, result.stderr
    assert differences("planted", of_audit(json.loads((tmp_path / "audit" / "audit.json").read_text()))) == []
