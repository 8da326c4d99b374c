from __future__ import annotations

import importlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rightlung.audit.self_test import self_test
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


def test_answers_of_code_that_was_edited_are_refused_until_they_are_overwritten(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ("audit", "edited_model:Flat", SOURCE, "--out", "out", "--resamples", "200", "--condition", "none")

    def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "edited_model.py").write_text(code)
        sys.modules.pop("edited_model", None)
        importlib.invalidate_caches()
        return call(*command, "--cases", "0", *options)

    first = found(run(FLAT_MODEL, "--json"))
    again = run(FLAT_MODEL, "--json")
    assert found(again)["reused"] == first["counts"]["rows"]
    assert f"reused {first['counts']['rows']} answers from 20" in again.stderr
    left = FLAT_MODEL.replace("np.ones((4, 4))", "np.eye(4)")
    refused = run(left)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: out/predictions: holds predictions of a model whose code has changed")
    assert "--overwrite" in refused.stderr
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["overall"] == first["overall"]
    assert found(run(left, "--overwrite", "--json"))["overall"] != first["overall"]


def test_a_model_that_fails_at_everything_exits_2_with_its_first_error_and_no_page(call: Run, tmp_path: Path) -> None:
    (tmp_path / "silent_model.py").write_text(
        "class Silent:\n    def ground(self, images, phrases):\n        raise ValueError('shapes do not match')\n"
    )
    for source in (SOURCE, "phantom?count=2&seed=3&size=64"):
        result = call("audit", "silent_model:Silent", source, "--out", "out", "--condition", "none")
        assert result.returncode == 2
        assert "first error: " in result.stderr
        assert "ValueError: shapes do not match" in result.stderr
        assert not (tmp_path / "out" / "audit.html").exists()


def test_a_wrong_phrase_is_warned_about_on_the_terminal(call: Run, written: Path, tmp_path: Path) -> None:
    table = pq.read_table(written)
    wrong = pa.array(["left pneumothorax"] * len(table))
    column = table.schema.get_field_index("phrase")
    pq.write_table(table.set_column(column, "phrase", wrong), tmp_path / "wrong.parquet")
    result = call("audit", "wrong.parquet", "--out", "out", "--resamples", "200", "--cases", "0")
    assert f"Warning: {len(table)} of {len(table)} rows ask something other than" in " ".join(result.stderr.split())


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_relative_source_is_relative_to_the_predictions(
    call: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    manifest.rename(place / "mine")
    folder = place / "p" if kind == "folder" else place
    address = "manifest:../mine" if kind == "folder" else "manifest:mine?limit=1"
    with PredictionWriter(place / "p", source=address, model="mine") as writer:
        writer.write(Prediction("a", "phrase:0", "none", Query("Pleural effusion"), Grounding(Heatmap(np.eye(4)))))
    if kind == "file":
        (place / "p" / "part-00000.parquet").rename(place / "mine.parquet")
        folder = place / "mine.parquet"
    options = ("--resamples", "200", "--cases", "0", "--json")
    result = found(call("audit", str(folder), "--out", "out", *options))
    assert result["counts"]["phrases"] == 1
    assert str(place) in result["source"]
    assert not any("were audited against" in note for note in result["notes"])


def test_predict_notes_a_relative_source_so_that_it_is_found_from_anywhere(
    call: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    assert call("predict", "flat:Flat", "manifest:mine", "--out", "p", "--condition", "none").returncode == 0
    assert call("predict", "flat:Flat", f"manifest:{manifest}", "--out", "p", "--condition", "none").returncode == 0
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    result = found(call("audit", "../p", "--out", "out", "--resamples", "200", "--cases", "0", "--json"))
    assert result["source"] == f"manifest:{manifest}"


MOVING_MODEL = f"""import pathlib
{FLAT_MODEL}
    def to(self, device):
        pathlib.Path("device.txt").write_text(str(device))
"""


@pytest.mark.parametrize("cuda", [True, False])
def test_audit_predict_and_ground_choose_the_device_in_the_same_way(
    call: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: bool
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    (tmp_path / "moving_model.py").write_text(MOVING_MODEL)
    (tmp_path / "flat.py").write_text(FLAT_MODEL)
    address = f"manifest:{manifest}"
    for name in ("moving_model:Flat", "flat:Flat"):
        for arguments in (
            ("audit", name, address, "--condition", "none", "--resamples", "200", "--cases", "0"),
            ("predict", name, address, "--condition", "none"),
            ("ground", address, "--model", name),
        ):
            Path("device.txt").unlink(missing_ok=True)
            result = call(*arguments, "--out", f"{arguments[0]}-{name[:4]}")
            assert result.returncode == 0, result.stderr
            if name.startswith("moving"):
                assert Path("device.txt").read_text() == ("cuda" if cuda else "cpu"), arguments


def test_tasks_are_measured_on_a_source_that_has_the_targets(call: Run, tmp_path: Path) -> None:
    (tmp_path / "flat_tasks.py").write_text(FLAT_MODEL)
    command = ["audit", "flat_tasks:Flat", SOURCE, "--out", "out", "--resamples", "100", "--json", "--boxes", "merge"]
    result = found(call(*command, "--task", "detection", "--task", "grounding"))
    assert [*result["tasks"]] == ["grounding", "detection"]
    assert 0 <= result["map"] == result["tasks"]["detection"]["measures"]["map"]["estimate"] <= 1
    assert result["tasks"]["detection"]["boxes"]["merge"] is True
    assert result["tasks"]["detection"]["protocol"]["box_settings"] == "boxes of a class merged; not scaled"
    assert Path(result["page"]).exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--task", "detect"], "detect"),
        (["--task", "detection", "--boxes", "nms=7"], "the setting of boxes must be merge, none, or nms=IOU"),
        (["--boxes", "merge"], "--boxes applies to --task grounding or --task detection only"),
        (["--tune", SOURCE], "--tune applies to --task only: also give that, or leave --tune out"),
        (["--probe", "logistic"], "--probe applies to --task probe only"),
        (["--missing-labels", "negative"], "--missing-labels applies to --task classification or --task probe only"),
        (["--task", "report", "--missing-labels", "negative"], "--missing-labels applies to --task classification"),
        (["--task", "detection", "--prior-source", SOURCE], "--prior-source does not apply to --task"),
        (["--task", "report"], "task report: Gloria has no method report"),
    ],
)
def test_what_makes_no_sense_of_tasks_is_said(call: Run, options: list[str], expected: str) -> None:
    done = call("audit", "starter", SOURCE, "--out", "out", *options)
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_linear_probe_of_a_model_learns_from_another_source(call: Run, tmp_path: Path) -> None:
    (tmp_path / "eyes.py").write_text(
        "import numpy as np\n\n"
        "class Eyes:\n"
        "    def encode_image(self, images):\n"
        "        return np.array([[image.mean(), image.std()] for image in images], np.float32)\n\n"
        "    def encode_text(self, texts):\n"
        "        return np.ones((len(texts), 2), np.float32)\n"
    )
    train = "phantom?count=8&seed=4&size=64"
    options = ("--probe", "five-epochs", "--resamples", "100", "--cases", "0", "--out", "out")
    result = found(call("audit", "eyes:Eyes", SOURCE, "--task", "probe:90%", "--train", train, *options, "--json"))
    assert result["train"] == train
    assert 0 <= result["tasks"]["probe"]["90%"]["finding_auroc"] <= 1
    assert "5 epochs" in result["tasks"]["probe"]["90%"]["protocol"]["labels"]
    assert "labels of 90 %" in result["tasks"]["probe"]["90%"]["protocol"]["labels"]
    assert "--train applies to --task probe only" in call("audit", "eyes:Eyes", SOURCE, "--train", train).stderr


def test_the_self_test_needs_no_model_and_lists_metrics_that_miss_errors(
    call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)  # no Java: METEOR is not computed, and the exit code says so
    monkeypatch.setattr("rightlung.cli.self_test.self_test", partial(self_test, 3))
    result = found(call("audit", "--self-test", "--json"), 3)
    assert result["reports"] == 3
    assert "METEOR was not computed" in result["problems"]
    told = call("audit", "--self-test")
    assert "punish a wrong side; not: bleu_1" in told.stderr
    assert call("audit", "--self-test", "starter").returncode == 2
    assert call("audit").returncode == 2
