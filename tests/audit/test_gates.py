"""Gates of audits: each model gets the verdict that its construction demands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rightlung.asking import ask
from rightlung.audit import audit
from rightlung.cli.main import app
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.gates import GATES
from tests.audit.gate_models import ADDRESS, Blind, Disturbed

QUICK = ["--resamples", "300", "--cases", "1"]
SETTINGS = BootstrapSettings(resamples=300, flips=999)


def run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["audit", *arguments, *QUICK, "--json"], catch_exceptions=False)
    assert done.exit_code in (0, 3), done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def looker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("looker")
    run("tests.audit.gate_models:Looker", ADDRESS.replace("32", "20"), "--gates", "--out", str(out))
    return out


def of_all(result: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = result["gates"]["results"][0]
    return first


def test_a_model_that_looks_at_the_finding_uses_the_image_selectively(looker: Path) -> None:
    found = of_all(json.loads((looker / "audit.json").read_text()))
    assert (found["use"], found["removal"], found["words"]) == ("uses the image selectively", "twin-removed", "yes")
    assert found["effects"]["twin-removed"]["high"] < -0.3
    assert abs(found["effects"]["occlude-elsewhere"]["estimate"]) < 0.05
    assert found["effects"]["location-prior"]["shown"]
    assert found["effects"]["centre-prior"]["estimate"] < 0


def test_an_effect_is_the_mean_paired_difference_of_the_instances(looker: Path) -> None:
    found = of_all(json.loads((looker / "audit.json").read_text()))
    inside: dict[str, dict[tuple[str, str], float]] = {}
    for row in pq.read_table(looker / "instances.parquet").to_pylist():
        inside.setdefault(row["condition"], {})[row["study"], row["query"]] = row["mass_inside"]
    changes = [value - inside["none"][key] for key, value in inside["twin-removed"].items()]
    assert found["effects"]["twin-removed"]["phrases"] == len(changes)
    assert found["effects"]["twin-removed"]["estimate"] == pytest.approx(sum(changes) / len(changes))


def test_the_page_shows_verdict_figures_twins_and_one_case(looker: Path) -> None:
    page = (looker / "audit.html").read_text()
    for said in ("The model uses the image selectively.", "Verdict by finding", "Causal effect of a finding",
                 "equal area elsewhere covered", "The map for the same words on changed images."):  # fmt: skip
        assert said in page
    result = json.loads((looker / "audit.json").read_text())
    assert result["gates"]["not_asked"] == {"untrained": "the model has no weights of PyTorch"}
    assert {*result["counts"]["rows_by_condition"]} >= {*GATES} - {"untrained"}
    assert "Gates not applied (the model has no weights of PyTorch): untrained." in page
    assert result["summary"][-1].startswith("Gates: all findings together: uses the image selectively.")


@pytest.mark.parametrize(
    ("model", "use", "words"), [(Blind(), "ignores it", "no"), (Disturbed(), "uses it unstably", "no")]
)
def test_a_blind_model_ignores_the_image_and_a_disturbed_one_uses_it_unstably(
    model: object, use: str, words: str, tmp_path: Path
) -> None:
    conditions = ["none", "occlude-target", "occlude-elsewhere", "noise-image", "nonsense-prompt", "swap-sides"]
    ask(model, ADDRESS, tmp_path / "p", conditions, queries=["phrases"])
    found = of_all(audit(tmp_path / "p", out=tmp_path / "a", settings=SETTINGS, cases=0).result)
    assert (found["use"], found["words"], found["side"]) == (use, "no", "no")


def test_gates_of_a_predictions_file_are_refused_with_a_sentence(looker: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(looker / "predictions"), "--gates"])
    assert str(done.exception).startswith("--gates applies to a model only: a predictions file already holds")
