"""The recipe ``fine-tune``: the shipped model, trained further on somebody's own pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import rightlung
from rightlung.cli.main import app
from rightlung.core import InputError
from rightlung.training.loop import train
from rightlung.training.recipe_file import read_recipe


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of images and reports, nothing else."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = []
    for number, study in enumerate(rightlung.open_source("phantom?count=6&seed=3&size=64")):
        Image.fromarray((study.image * 255).astype(np.uint8)).save(folder / f"{number}.png")
        assert study.report is not None
        sections = {"findings": study.report.text}
        split = "train" if number < 4 else "val"
        rows.append({"id": f"s{number}", "file": f"{number}.png", "split": split, "sections": sections})
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


def test_the_shipped_model_learns_from_pairs_alone(pairs: Path, tmp_path: Path) -> None:
    changes = [
        f"data.train[0].source=manifest:{pairs}?split=train", f"data.validation.source=manifest:{pairs}?split=val",
        "data.train[1].cached_studies=4", "data.workers=0", "schedule={steps: 2}", "batch_size=4", "ema=0",
    ]  # fmt: skip
    command = ["train", "fine-tune", "--out", str(tmp_path / "run"), "--accelerator", "cpu", "--json"]
    done = CliRunner().invoke(app, command + [part for change in changes for part in ("--set", change)])
    assert done.exit_code == 0, done.stderr
    tuned, starter = rightlung.load(str(tmp_path / "run" / "model")), rightlung.load("starter")
    before, after = starter.state_dict(), tuned.state_dict()
    for encoder in ("image_encoder.", "text_encoder."):
        assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith(encoder))
    study = next(iter(rightlung.open_source(f"manifest:{pairs}?split=val")))
    (answer,) = tuned.ground([study.image], ["left pleural effusion"])
    assert answer.heatmap.values.shape == (56, 56)


def test_without_a_source_the_recipe_says_which_field_to_set(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.train\[0\]\.source: .*mine does not exist"):
        train(read_recipe("fine-tune"), tmp_path / "run")
