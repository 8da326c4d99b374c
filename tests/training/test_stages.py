"""Settings that change during a run, and recipes of several stages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner, Result

from rightlung.cli.main import app
from rightlung.core import InputError
from rightlung.models.folder import load_folder
from rightlung.training.checkpoint import Checkpoint, save_checkpoint
from rightlung.training.curves import check_curve, value_at
from rightlung.training.log import read_log
from rightlung.training.recipe_file import read_recipe, read_stages
from tests.training.recipes import SMALL, final_weights, run, same, small


def test_a_curve_joins_its_points_by_straight_lines_and_is_constant_outside() -> None:
    curve = [[0.1, 0.0], [0.5, 1.0], [0.75, 0.5]]
    found = [value_at(curve, fraction) for fraction in (0.0, 0.1, 0.2, 0.5, 0.625, 0.75, 1.0)]
    assert found == pytest.approx([0.0, 0.0, 0.25, 1.0, 0.75, 0.5, 0.5])
    assert value_at(2, 0.3) == 2.0


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ("much", "w must be a number"),
        ([], "number or a list of"),
        ([[0, 1], [1]], "number or a list of"),
        ([[0.5, 1], [0.2, 1]], "fraction"),
        ([[0, 1], [2, 1]], "fraction"),
        ([[0, 1], [1, -1]], "w must be at least 0; got -1"),
    ],
)
def test_what_is_no_curve_is_refused(curve: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_curve(curve, "w")


def test_the_loss_is_weighted_by_the_curve_at_every_step(tmp_path: Path) -> None:
    changes = ["losses.global=[[0, 2.0], [0.5, 0.0]]", "losses.supervised=[[0, 0.5], [1, 1.5]]", "log_every=1"]
    run(tmp_path, *changes)
    recipe = small(tmp_path, *changes)
    rows = read_log(tmp_path / "run" / "log.csv")
    assert len(rows) == 8
    for row in rows:
        fraction = (row["step"] - 1) / 8
        weights = {"global": max(0.0, 2.0 - 4.0 * fraction), "supervised": 0.5 + fraction}
        assert recipe.loss_weights(int(row["step"]) - 1) == pytest.approx(weights)
        assert row["loss"] == pytest.approx(sum(weight * row[name] for name, weight in weights.items()), rel=1e-4)


def test_a_resumed_run_has_the_same_loss_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = ["losses.global=[[0, 2.0], [1, 0.0]]", "checkpoint_every=3"]
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole, *changes)

    class Killed(BaseException):
        pass

    def killed(folder: Path, checkpoint: Checkpoint) -> None:
        save_checkpoint(folder, checkpoint)
        raise Killed

    monkeypatch.setattr("rightlung.training.loop.save_checkpoint", killed)
    with pytest.raises(Killed):
        run(tmp_path, *changes)
    monkeypatch.undo()
    run(tmp_path, *changes, resume=True)
    assert same(final_weights(whole / "run"), final_weights(tmp_path / "run"))


def staged(folder: Path) -> Path:
    stages = [
        {"name": "first", "changes": ["schedule.steps=2"]},
        {"name": "second", "changes": ["schedule.steps=3", "losses={supervised: 1.0}", "model.config.dropout=0.5"]},
    ]
    path = folder / "staged.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "stages": stages}), encoding="utf-8")
    return path


def test_each_stage_starts_from_the_weights_of_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["train", str(staged(tmp_path)), "--out", str(out), "--accelerator", "cpu", "--json"]
    command += ["--set", "seed=5", "--set", "second:optimizer.learning_rate=0.002"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == str(out / "second" / "model")
    assert [(name, stage["steps"]) for name, stage in found["stages"].items()] == [("first", 2), ("second", 3)]
    before, start = load_folder(out / "first" / "model"), load_folder(out / "second" / "start")
    assert isinstance(before, torch.nn.Module)
    assert isinstance(start, torch.nn.Module)
    assert all(torch.equal(one, start.state_dict()[name]) for name, one in before.state_dict().items())
    recipes = [read_recipe(out / stage / "recipe.yaml") for stage in ("first", "second")]
    assert [recipe.optimizer.learning_rate for recipe in recipes] == [0.01, 0.002]
    assert [recipe.seed for recipe in recipes] == [5, 5]
    assert recipes[1].model.config == {"dropout": 0.5}
    again = CliRunner().invoke(app, [*command, "--resume"])  # nothing is trained twice
    assert again.exit_code == 0
    assert json.loads(again.stdout)["stages"]["first"]["seconds"] == found["stages"]["first"]["seconds"]


def test_stages_that_make_no_sense_are_named(tmp_path: Path) -> None:
    path = staged(tmp_path)
    with pytest.raises(InputError, match="unknown stage in --set 'secnd'; did you mean 'second'"):
        read_stages(path, ["secnd:seed=1"])
    with pytest.raises(InputError, match="has the stages first, second"):
        read_recipe(path)
    for stages, said in (
        ([], "at least one stage"),
        ({}, r"stages\[0\] needs a name"),
        ([{"name": "a/b"}], r"stages\[0\] needs a name"),
        ([{"name": "a"}, {"name": "a"}], r"stages\[1\] needs a name"),
        ([{"name": "a", "changes": "seed=1"}], r"stages\[0\]\.changes must be a list"),
        ([{"name": "a", "changes": ["sed=1"]}], "unknown field of Recipe 'sed'"),
    ):
        path.write_text(yaml.safe_dump({**SMALL, "stages": stages}), encoding="utf-8")
        with pytest.raises(InputError, match=said):
            read_stages(path)


def test_a_recipe_derived_from_one_with_stages_changes_all_one_or_leaves_some_out(tmp_path: Path) -> None:
    base = staged(tmp_path)
    derived = tmp_path / "derived.yaml"
    derived.write_text(
        f"base: {base.name}\nchanges: ['seed=9', 'schedule.steps=5', 'second:schedule.steps=6']\n", encoding="utf-8"
    )
    before, found = read_stages(base), read_stages(derived)
    assert {stage: (one.seed, one.schedule.steps) for stage, one in found.items()} == {
        stage: (9, 6 if stage == "second" else 5) for stage in before
    }
    assert found["second"].losses == before["second"].losses
    again = tmp_path / "again.yaml"  # derived from a derived one, whose changes stay
    again.write_text("base: derived.yaml\nwithout: [first]\n", encoding="utf-8")
    (only,) = read_stages(again).items()
    assert (only[0], only[1].schedule.steps, only[1].model.start) == ("second", 6, None)
    for content, said in (
        ("changes: ['thrd:seed=1']", "unknown stage in changes 'thrd'"),
        ("without: [frst]", "unknown stage in without 'frst'; did you mean 'first'"),
        ("without: first", "without one of stages"),
    ):
        derived.write_text(f"base: {base.name}\n{content}\n", encoding="utf-8")
        with pytest.raises(InputError, match=rf"derived\.yaml: .*{said}"):
            read_stages(derived)


def test_a_stage_gives_way_to_the_command_line(tmp_path: Path) -> None:
    stages = read_stages(staged(tmp_path), ["schedule.steps=1"])
    assert [recipe.schedule.steps for recipe in stages.values()] == [1, 1]
    assert stages["second"].model.start == "stage:first"


def test_a_change_of_an_entry_is_for_the_stages_that_have_it(tmp_path: Path) -> None:
    path = staged(tmp_path)
    table = yaml.safe_load(path.read_text(encoding="utf-8"))
    (entry,) = table["data"]["train"]
    table["stages"][0]["data"] = {"train": [entry, entry]}
    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    found = read_stages(path, ["data.train[1].source=phantom?count=9&seed=5"])
    assert [[one.source for one in recipe.data.train][1:] for recipe in found.values()] == [
        ["phantom?count=9&seed=5"],
        [],
    ]
    with pytest.raises(InputError, match=r"data\.train\[2\]\.source: there are 2 entries"):
        read_stages(path, ["data.train[2].source=phantom?count=9&seed=5"])


def test_a_staged_run_is_resumed_after_its_folder_was_moved(tmp_path: Path) -> None:
    def invoke(out: Path, *more: str) -> Result:
        return CliRunner().invoke(
            app, ["train", str(staged(tmp_path)), "--out", str(out), "--accelerator", "cpu", *more]
        )

    assert invoke(tmp_path / "run").exit_code == 0
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "moved" / "second" / "finished.json").unlink()
    done = invoke(tmp_path / "moved", "--resume")
    assert done.exit_code == 0, done.stderr
    for stage in ("first", "second"):  # a line for each
        assert f"{tmp_path}/moved/{stage}/model: trained for" in done.stderr


def test_patience_compares_losses_with_the_same_weights(tmp_path: Path) -> None:
    """The weight of a falling loss rises so fast that the weighted loss would rise."""
    changes = ["losses={supervised: [[0, 0.1], [1, 10]]}", "schedule={steps: 6, patience: 2}", "log_every=1",
               "data.validation={source: 'phantom?count=8&seed=12', every: 2, cached_studies: 8}",
                "data.validation.grounded_phrases=0"]  # fmt: skip
    run(tmp_path, *changes)
    for row in read_log(tmp_path / "run" / "log.csv"):
        if "validation loss" in row:
            assert row["validation loss"] == pytest.approx(10 * row["validation supervised"], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["losses={global: [[0, 0], [1, 1]]}"], "weight above 0, at every step"),
        (["data.train[0].phrases_per_image=0"], r"\.\w+ needs data\.train\[0\]\.phrases_per_image of at least 1"),
        (["data.target_options={gaze: {}}"], "data.target_options.gaze is not used"),
        (["data.train=[{source: 'phantom?count=4&seed=1'}]", "data.targets=[phrases]"], "phrases needs data.train"),
        (
            ["model.config.findings=[edema, nodule]", "data.targets=[labels]",
             "data.target_options={labels: {findings: [nodule, edema]}}"],
            "must equal model.config.findings",
        ),
    ],
)  # fmt: skip
def test_settings_that_would_train_on_nothing_or_on_the_wrong_thing_are_refused(
    tmp_path: Path, changes: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        small(tmp_path, *changes)
