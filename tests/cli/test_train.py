"""``rightlung train`` as a person calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rightlung.training.checkpoint import last_checkpoint
from rightlung.training.recipe import recipe_text, shipped_recipes
from tests.cli.conftest import Run
from tests.training.recipes import small, written

ROOT = Path(__file__).parents[2]


def test_training_prints_one_json_object_and_writes_a_model(call: Run, tmp_path: Path) -> None:
    recipe = str(written(tmp_path))
    result = call("train", recipe, "--out", "run", "--steps", "2", "--accelerator", "cpu", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["steps"] == 2
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    assert "steps: 2" in (tmp_path / "run" / "recipe.yaml").read_text()
    again = call("train", recipe, "--out", "run", "--steps", "2", "--accelerator", "cpu")
    assert again.returncode == 2
    assert "finished" in again.stderr
    shown = call("models", "run/model")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smal"], "unknown recipe 'smal'; did you mean 'small'"),
        (["small", "--set", "batch.sise=3"], "did you mean 'size'"),
        (["small", "--precision", "fp32"], "unknown precision 'fp32'"),
        (["small", "--strategy", "dp"], "unknown strategy 'dp'; did you mean 'ddp'"),
        (["small", "--accelerator", "gpu"], "unknown accelerator 'gpu'"),
        (["small", "--steps", "0"], "schedule.steps must be at least 1"),
    ],
)
def test_slips_are_answered_with_the_nearest_that_exists(call: Run, arguments: list[str], said: str) -> None:
    result = call("train", *arguments, "--out", "run")
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not Path("run").exists()


def test_every_shipped_recipe_is_listed_in_the_package() -> None:
    assert "small" in shipped_recipes()


def test_ctrl_c_exits_with_130_and_keeps_the_step(tmp_path: Path) -> None:
    changes = ("schedule.steps=3000", "checkpoint_every=1000", "log_every=1")
    path = tmp_path / "long.yaml"
    path.write_text(recipe_text(small(tmp_path, *changes)), encoding="utf-8")
    command = [sys.executable, "-m", "rightlung", "train", str(path), "--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--accelerator", "cpu"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not (tmp_path / "run" / "log.csv").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "--resume goes on from there" in said
    checkpoint = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert 0 < checkpoint.step < 3000
    assert f"stopped after step {checkpoint.step} of 3000" in said
    assert (tmp_path / "run" / "curve.png").is_file()
