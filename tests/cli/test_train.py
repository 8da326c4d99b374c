"""``rightlung train`` as a person calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import PIL.Image

from rightlung.training.checkpoint import last_checkpoint
from rightlung.training.recipe import recipe_text
from tests.cli.conftest import Run, found
from tests.training.recipes import small, written

ROOT = Path(__file__).parents[2]


def test_training_prints_one_json_object_and_writes_a_model(call: Run, tmp_path: Path) -> None:
    command = ("train", str(written(tmp_path)), "--out", "run", "--steps", "2", "--accelerator", "cpu")
    assert found(call(*command, "--json"))["steps"] == 2
    assert (tmp_path / "run" / "model" / "config.json").is_file()
    assert "steps: 2" in (tmp_path / "run" / "recipe.yaml").read_text()
    again = call(*command)
    assert again.returncode == 2
    assert "finished" in again.stderr
    assert call("models", "run/model").returncode == 0


def _studies(folder: Path, unreadable: int) -> str:
    """A manifest of six studies, of which some pictures are none."""
    folder.mkdir()
    for number in range(6):
        path = folder / f"{number}.png"
        PIL.Image.fromarray(np.full((20, 16), 90 + number, dtype=np.uint8)).save(path)
        if number < unreadable:
            path.write_bytes(b"no picture")
    rows = [
        {"id": f"s{number}", "file": f"{number}.png", "patient": f"p{number}", "text": "Left effusion."}
        for number in range(6)
    ]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"manifest:{folder}"


def test_studies_that_cannot_be_read_are_told_and_make_the_exit_code_3(call: Run, tmp_path: Path) -> None:
    good, bad = _studies(tmp_path / "good", 1), _studies(tmp_path / "bad", 4)
    command = ["train", str(written(tmp_path)), "--steps", "1", "--accelerator", "cpu", "--set"]
    result = call(*command, f"data.train=[{{source: '{good}'}}]", "--out", "run", "--json")
    assert "data.train[0]: 1 study is left out, the first: " in result.stderr
    left_out = found(result, 3)["left_out"]
    assert len(left_out) == 1
    assert "0.png" in left_out[0]
    assert json.loads((tmp_path / "run" / "finished.json").read_text())["left_out"] == left_out
    validation = f"data.validation={{source: '{good}', phrases_per_image: 0}}"
    judged = call(*command, validation, "--out", "judged")
    assert judged.returncode == 3, judged.stderr
    assert "1 studies could not be used and were left out:" in judged.stderr
    refused = call(*command, f"data.train=[{{source: '{bad}'}}]", "--out", "none")
    assert refused.returncode == 2
    assert "4 of 6 studies cannot be read, the first: " in refused.stderr


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
    assert "continue with --resume" in said
    assert "the same command" not in said
    checkpoint = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert 0 < checkpoint.step < 3000
    assert f"stopped after step {checkpoint.step} of 3000" in said
    assert (tmp_path / "run" / "curve.png").is_file()
