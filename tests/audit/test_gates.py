"""Gates of audits: each model gets the verdict that its construction demands."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rightlung.asking import ask
from rightlung.audit import audit
from rightlung.audit.box_gates import scores_at_targets
from rightlung.audit.finding_gates import finding_gates
from rightlung.cli.main import app
from rightlung.core import Box, Grounding, Query, ScoredBox
from rightlung.predictions import Batch, Prediction
from rightlung.probes.twins import changed_finding
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.gates import GATES
from rightlung.studies import open_source
from tests.audit.gate_models import ADDRESS, Blind, Disturbed, studies

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
    for said in ("The model uses the image selectively.", "the verdict about the side at the top of the page counts",
                 "Verdict by finding", "Causal effect of a finding",
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


@pytest.mark.parametrize(("model", "use"), [("Looker", "uses the image selectively"), ("Blind", "ignores it")])
def test_a_classifier_is_judged_by_the_finding_that_was_changed(model: str, use: str, tmp_path: Path) -> None:
    result = run(
        f"tests.audit.gate_models:{model}", ADDRESS, "--task", "classification", "--gates", "--out", str(tmp_path)
    )
    gates = result["tasks"]["classification"]["gates"]
    found = gates["results"][0]
    assert found["use"] == use
    assert found["words"] == "not asked"
    assert gates["not_asked"]["swap-sides"] == "the question has no words"
    removed = sum(changed_finding(study, None, "removed") is not None for study in studies())
    assert found["effects"]["twin-removed"]["phrases"] == removed
    assert [*result["tasks"]["classification"]["conditions"]] == []  # the gates' conditions are not listed again


@pytest.mark.parametrize(
    ("model", "task", "count", "use"),
    [
        ("Looker", "grounding", 20, "uses the image selectively"),
        ("Blind", "grounding", 12, "ignores it"),
        ("Looker", "region-classification:regions", 12, "uses the image selectively"),
    ],
)
def test_boxes_of_phrases_and_findings_of_regions_have_gates(
    model: str, task: str, count: int, use: str, tmp_path: Path
) -> None:
    source = ADDRESS.replace("32", str(count))
    result = run(f"tests.audit.gate_models:{model}", source, "--task", task, "--gates", "--out", str(tmp_path))
    task, _, part = task.partition(":")
    measured = result["tasks"][task][part] if part else result["tasks"][task]
    found = measured["gates"]["results"][0]
    assert (found["use"], found["words"]) == (use, "not asked" if part else "yes" if model == "Looker" else "no")
    assert "does the model use the finding?" in (tmp_path / "audit.html").read_text().lower()


def test_the_response_of_a_grounder_is_its_best_box_at_the_target() -> None:
    corners = [(0.0, 0.0, 0.5, 0.5), (0.1, 0.1, 0.5, 0.5), (0.6, 0.6, 0.9, 0.9)]  # the last lies elsewhere
    boxes = [ScoredBox(Box(*one), score) for one, score in zip(corners, (0.3, 0.4, 0.8), strict=True)]
    target: Any = SimpleNamespace(phrases={("s", "phrase:0"): SimpleNamespace(boxes=[(0.0, 0.0, 0.5, 0.5)])})
    given = {"none": boxes, "noise-image": boxes[2:], "mean-image": []}
    rows = [
        Prediction("s", "phrase:0", name, Query("An opacity."), Grounding(boxes=some)) for name, some in given.items()
    ]
    rows.append(Prediction("s", "phrase:0", "untrained", error="out of memory"))
    found = scores_at_targets([Batch.of(rows)], target)
    assert found == {("s", "phrase:0", name): score
                     for name, score in (("none", 0.4), ("noise-image", 0.0), ("mean-image", 0.0))}  # fmt: skip


def test_tasks_without_gates_refuse_them_in_a_sentence(tmp_path: Path) -> None:
    options = ["--gates", "--out", str(tmp_path)]
    for task, part in (("retrieval", "retrieval-image-to-text"), ("region-classification:regions-by-name", "")):
        done = CliRunner().invoke(app, ["audit", "tests.audit.gate_models:Blind", ADDRESS, "--task", task, *options])
        said = "--gates applies to grounding, detection, classification, probe, region-classification, report and"
        assert str(done.exception).startswith(said)
        assert str(done.exception).endswith(f"not to {part or task.replace(':', '-')}")


def test_the_response_of_a_detector_is_its_best_box_at_the_finding() -> None:
    def row(
        number: int, condition: str, scores: list[float], matches: list[int], targets: float = 1.0
    ) -> dict[str, Any]:
        return {
            "study": f"s{number}", "query": "image", "patient": f"p{number}", "condition": condition,
            "target": "nodule", "finding_score": None, "finding_label": None, "box_scores": scores,
            "box_matches": matches, "box_targets": targets,
        }  # fmt: skip

    rows = [row(n, "none", [0.9, 0.6], [0, 3]) for n in range(6)]  # the second overlaps the finding
    rows += [row(n, "noise-image", [0.9, 0.2], [0, 1]) for n in range(6)]
    rows += [row(9, "none", [0.7], [0], targets=0.0)]  # a false positive does not count
    gates = finding_gates(pa.Table.from_pylist(rows), SETTINGS, open_source(ADDRESS))
    assert gates is not None
    found = gates.results[0]
    assert found.response.value == pytest.approx(0.6)
    assert found.patients == 6
    assert found.effects["noise-image"].value == pytest.approx(-0.4)
    assert found.changes["noise-image"].value == pytest.approx(0.4)


def test_gates_of_a_predictions_file_are_refused_with_a_sentence(looker: Path) -> None:
    done = CliRunner().invoke(app, ["audit", str(looker / "predictions"), "--gates"])
    assert str(done.exception).startswith("--gates applies to a model only: a predictions file already holds")
