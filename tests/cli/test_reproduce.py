"""``rightlung reproduce`` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import FLAT_MODEL, Run

PAPER = ("reproduce", "wrong-lung")
FEW = ("--source", "phantom?count=6&seed=4&size=64", "--only", "none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "right-lung"], "unknown paper 'right-lung'; did you mean 'wrong-lung'"),
        ([*PAPER, "--only", "sidd"], "unknown variant 'sidd'; did you mean 'sided'"),
        ([*PAPER, "--only", ""], "--only names no variant"),
        ([*PAPER, "--accelerator", "gpu"], "unknown accelerator 'gpu'"),
        ([*PAPER, "--set", "schedule.step=3"], "did you mean 'steps'"),
        ([*PAPER, "--set", "schedule.steps"], "--set takes field=value"),
        ([*PAPER, "--set", "schedule.steps=0"], "schedule.steps must be at least 1"),
        ([*PAPER, "--set", "sidet:schedule.steps=3"], "unknown variant 'sidet'; did you mean 'sided'"),
        ([*PAPER, "--only", "sided", "--set", "uniter:seed=3"], "uniter is not among the selected ones"),
        ([*PAPER, "--only", "none", "--set", "seed=3"], "no variant is selected"),
        ([*PAPER, "--only", "none", "--model", "startr"], "unknown model 'startr'; did you mean 'starter'"),
        ([*PAPER, "--only", "none", "--source", "phantm?count=3"], "phantm"),
        ([*PAPER, "--only", "none", "--source", "manifest:nowhere"], "nowhere"),
        ([*PAPER, "--source", "manifest:nowhere"], "the training data must be given, too: --train SOURCE"),
        ([*PAPER, "--train", "manifest:nowhere"], "nowhere"),
        ([*PAPER, "--only", "none", "--judgements", "table.csv"], "--key KEY"),
        ([*PAPER, "--seeds", "0"], "--seeds"),
        ([*PAPER, "--limit", "1"], "--limit"),
        ([*PAPER, "--at-once", "0"], "--at-once"),
    ],
)
def test_slips_are_answered_in_a_sentence_before_anything_is_done(call: Run, arguments: list[str], said: str) -> None:
    result = call(*arguments, "--out", "out")
    assert result.returncode == 2, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("out").exists()


def test_without_a_paper_all_are_listed_and_without_a_folder_one_is_asked_for(call: Run) -> None:
    listed = call("reproduce", "--json")
    assert listed.returncode == 0, listed.stderr
    counts = {one["name"]: one["variants"] for one in json.loads(listed.stdout)}
    assert counts == {"wrong-lung": 19, "chex": 25, "eclip": 64, "fita": 14, "xbench": 22}
    assert "reproduce PAPER --quick --out DIR" in call("reproduce").stderr
    assert "reproduce wrong-lung needs --out DIR" in call(*PAPER).stderr


def test_json_alone_goes_to_standard_output_and_whole_work_ends_with_0(call: Run) -> None:
    result = call(*PAPER, "--out", "out", *FEW, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["files"][0] == "out/page.html"
    assert found["left_out"] == []
    assert all(Path(name).is_file() for name in found["files"])
    (command,) = json.loads(Path("out/commands.json").read_text())["commands"]
    assert command.startswith("rightlung reproduce wrong-lung --out out --source 'phantom?count=6&seed=4&size=64'")
    refused = call(*PAPER, "--out", "out", *FEW, "--limit", "3")
    assert refused.returncode == 2
    assert "limit" in refused.stderr


def test_rows_that_are_refused_make_the_exit_code_3_and_are_said(call: Run) -> None:
    assert call("phantom", "made", "--count", "6", "--seed", "4", "--size", "64").returncode == 0
    with Path("made/manifest.jsonl").open("a") as file:
        file.write('{"id": "odd", "file": 3}\nno JSON\n')
    result = call(*PAPER, "--out", "out", "--source", "manifest:made", "--only", "none", "--no-page")
    assert result.returncode == 3, result.stderr
    assert "left out, and why:\n  manifest:made: rows that the source refused: 2\n" in result.stderr
    assert "the first of them: manifest.jsonl, line 7, field file" in result.stderr
    again = call(*PAPER, "--out", "out", "--source", "manifest:made", "--only", "none", "--no-page", "--json")
    assert again.returncode == 3
    assert len(json.loads(again.stdout)["left_out"]) == 2


def test_studies_without_a_phrase_to_measure_are_answered_in_a_sentence(call: Run, manifest: Path) -> None:
    result = call(*PAPER, "--out", "out", "--source", f"manifest:{manifest}", "--only", "none")
    assert result.returncode == 2, result.stderr
    assert "no phrase to measure" in result.stderr


def test_a_model_that_fails_at_everything_makes_the_exit_code_3(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat_model.py").write_text(
        f"{FLAT_MODEL}\nclass Silent:\n    def ground(self, images, phrases):\n        raise ValueError('nothing')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    models = ["--model", "flat_model:Flat", "--model", "flat_model:Silent"]
    result = call(*PAPER, "--out", "out", *FEW, *models, "--no-page", "--accelerator", "cpu")
    assert result.returncode == 3, result.stderr
    assert "own-flat-model-silent: the model answered none of" in result.stderr
    assert Path("out/measures/own-flat-model-flat/about.json").is_file()
