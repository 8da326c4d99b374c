from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from rightlung.judgements import read_key, read_measures
from tests.cli.conftest import Run, found
from tests.judgements.made_up import fill_in, row, write_about, write_audit, write_experiment, write_rows

PLAN = ("judgements", "plan", "exp", "--out", "table.csv", "--key", "private/key.csv", "--annotator", "ann",
        "--annotator", "bea", "--per-annotator", "8", "--overlap", "4", "--seed", "3")  # fmt: skip
FAST = ("--resamples", "200")


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return write_experiment(tmp_path / "exp", 30)


def test_a_study_from_plan_to_page(call: Run, experiment: Path, tmp_path: Path) -> None:
    summary = found(call(*PLAN, "--json"))
    assert (summary["rows"], summary["prompts"], summary["models"]) == (32, 12, 2)
    assert "no-attn" not in (tmp_path / "table.csv").read_text()
    key = read_key(tmp_path / "private" / "key.csv")
    assert sorted(key.models.values()) == ["no-attn", "plain"]

    check = ("judgements", "check", "table.csv", "--key", "private/key.csv", "--instances", "exp", "--json")
    assert found(call(*check))["open"] == 32
    fill_in(tmp_path / "table.csv", key.models, read_measures([experiment]))
    analyse = ("judgements", "analyse", "table.csv", "--out", "out", *FAST)
    result = found(call(*analyse, "--key", "private/key.csv", "--measures", "exp", "--json"))
    assert result["counts"]["judgements"] == 32
    assert result["models"] == ["no-attn", "plain"]
    assert result["agreement"]["units"] == 8
    assert result["clusters"] == "patients"
    assert len(result["correlations"]) == 3
    for name in ("judgements.json", "judgements.md", "judgements.html"):
        assert (tmp_path / "out" / name).exists()
    shown = call(*analyse, "--instances", "exp")
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "judged 2 models on 12 prompts" in shown.stderr
    assert "judgements.html" in shown.stderr


def test_a_plan_is_reproducible_and_never_written_over(call: Run, experiment: Path, tmp_path: Path) -> None:
    assert call(*PLAN).returncode == 0
    first = (tmp_path / "table.csv").read_bytes()
    assert "table.csv: this table exists already" in call(*PLAN).stderr
    (tmp_path / "table.csv").unlink()
    assert call(*PLAN).returncode == 2  # the key is still there: then nothing at all is written
    assert not (tmp_path / "table.csv").exists()
    (tmp_path / "private" / "key.csv").unlink()
    assert call(*PLAN).returncode == 0
    assert (tmp_path / "table.csv").read_bytes() == first


def test_only_abnormal_phrases_of_named_models_can_be_planned(call: Run, experiment: Path, tmp_path: Path) -> None:
    result = call(*PLAN, "--abnormal", "--model", "no-attn", "--model", "GLoRIA Retrained")
    assert result.returncode == 0, result.stderr
    with (tmp_path / "table.csv").open(newline="") as file:
        numbers = {int(one["prompt"].split()[2]) for one in csv.DictReader(file)}
    assert len(numbers) == 12
    assert all(number % 4 != 3 for number in numbers)
    assert sorted(read_key(tmp_path / "private" / "key.csv").models.values()) == ["no-attn", "plain"]


ABOUTS: dict[str, dict[str, object]] = {
    "no-attn": {"seed": 1},
    "no-attn-seed2": {"variant": "no-attn", "seed": 2},
    "own-model-seed2": {"group": "ours"},
    "prior": {"group": "reference"},
    "sided": {"group": "ours", "seed": 1},
    "sided-without-mirror": {"group": "ours", "ablation": True, "seed": 1},
    "uniter": {"comparable": False, "seed": 1},
}


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """An experiment of seven models."""
    folder = write_experiment(tmp_path / "exp", 30, slugs=ABOUTS)
    for slug, facts in ABOUTS.items():
        write_about(folder, slug, **facts)
    return folder


def test_references_ablations_other_seeds_and_what_does_not_compare_are_not_planned_unless_named(
    call: Run, seven: Path, tmp_path: Path
) -> None:
    summary = found(call(*PLAN, "--json"))
    assert (summary["models"], summary["rows"]) == (3, 48)
    assert summary["models_left_out"] == ["no-attn-seed2", "prior", "sided-without-mirror", "uniter"]
    key = tmp_path / "private" / "key.csv"
    assert sorted(read_key(key).models.values()) == ["no-attn", "own-model-seed2", "sided"]
    key.unlink()
    (tmp_path / "table.csv").unlink()
    said = call(*PLAN).stderr
    assert "not comparable): no-attn-seed2, prior, sided-without-mirror, uniter; --model includes them" in said
    key.unlink()
    (tmp_path / "table.csv").unlink()
    assert found(call(*PLAN, "--model", "uniter", "--model", "prior", "--json"))["models_left_out"] == []
    assert sorted(read_key(key).models.values()) == ["prior", "uniter"]


def test_a_model_is_one_that_was_measured_named_once_and_clearly(call: Run, seven: Path, tmp_path: Path) -> None:
    for slug in ("no-attn", "no-attn-seed2"):
        write_about(seven, slug, **{**ABOUTS[slug], "name": "No Attn token"})
    for named, sentence in (
        (["sided", "sidde"], "unknown model 'sidde'; did you mean 'sided'?"),
        (
            ["no attn token"],
            "several measured models are named 'no attn token'; give one of these instead: no-attn, no-attn-seed2",
        ),
        (["sided", "SIDED"], "model 'sided' is given twice"),
    ):
        result = call(*PLAN, *(part for name in named for part in ("--model", name)))
        assert result.returncode == 2
        assert sentence in result.stderr
        assert not (tmp_path / "table.csv").exists()


def test_an_audit_is_planned_with_its_own_model_unless_others_are_named(call: Run, tmp_path: Path) -> None:
    write_audit(tmp_path / "exp", 30, {"auroc": [0.5] * 30}, model="starter")
    for models in (["starter"], ["gloria", "starter"]):
        named = [part for name in models for part in ("--model", name)] if len(models) > 1 else []
        assert call(*PLAN, *named).returncode == 0
        assert sorted(read_key(tmp_path / "private" / "key.csv").models.values()) == models
        (tmp_path / "private" / "key.csv").unlink()
        (tmp_path / "table.csv").unlink()


def test_bad_rows_are_listed_and_the_exit_says_so(call: Run, tmp_path: Path) -> None:
    write_rows(tmp_path / "judged.csv", [row(), row(study="s1"), row(study="s2", recall=7)])
    summary = found(call("judgements", "check", "judged.csv", "--json"), 2)
    assert (summary["valid"], summary["judgements"]) == (False, 2)
    assert summary["problems"] == ["judged.csv, line 4, field recall: expected a whole number from 1 to 5; got '7'"]
    assert "line 4, field recall" in call("judgements", "check", "judged.csv").stderr
    analysed = call("judgements", "analyse", "judged.csv", "--out", "out", *FAST)
    assert analysed.returncode == 3
    assert "1 rows were left out" in analysed.stderr
    assert "line 4, field recall" in (tmp_path / "out" / "judgements.html").read_text()


def test_the_commands_of_the_documentation_run_as_they_stand(call: Run, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "judgements.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    assert {command[2] for command in commands} == {"plan", "check", "analyse"}
    measures = read_measures([write_experiment(tmp_path / "runs" / "wrong-lung", 120)])
    for command in commands:
        assert command[0] == "rightlung"
        fast = FAST if command[2] == "analyse" else ()
        result = call(*command[1:], *fast)
        assert result.returncode == 0, result.stderr
        if command[2] == "plan":
            table, key = (tmp_path / command[command.index(name) + 1] for name in ("--out", "--key"))
            fill_in(table, read_key(key).models, measures)
