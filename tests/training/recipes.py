"""Recipes small enough to run in a second."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from rightlung.models.folder import load_folder
from rightlung.training.checkpoint import last_checkpoint
from rightlung.training.log import TrainingProgress
from rightlung.training.loop import Hardware, TrainingOutcome, train
from rightlung.training.recipe import Recipe
from rightlung.training.recipe_file import read_recipe

CPU = Hardware(accelerator="cpu")
SMALL: dict[str, Any] = {
    "model": {"kind": "tests.training.tiny:Tiny", "config": {"dropout": 0.1}},
    "data": {
        "image_size": 64,
        "mask_grid": 8,
        "workers": 0,
        "train": [
            {"source": "phantom?count=16&seed=11", "cached_studies": 16, "phrases_per_image": 3,
             "other_study_probability": 0.2, "swapped_side_probability": 0.2, "drop_side_probability": 0.3,
             "prompt_probability": 0.2},
        ],
    },
    "losses": {"global": 1.0, "supervised": 0.5},
    "optimizer": {"learning_rate": 0.01},
    "schedule": {"steps": 8, "warmup_steps": 2},
    "batch_size": 4,
    "ema": 0.8,
    "seed": 3,
    "checkpoint_every": 3,
    "log_every": 2,
}  # fmt: skip


def small(folder: Path, *changes: str) -> Recipe:
    """The small recipe, with changes as after ``--set``."""
    return read_recipe(written(folder), changes)


def written(folder: Path) -> Path:
    path = folder / "small.yaml"
    if not path.exists():  # two processes may use one folder: the file must never be half there
        part = folder / f"small-{os.getpid()}.yaml"
        part.write_text(yaml.safe_dump(SMALL, sort_keys=False), encoding="utf-8")
        part.replace(path)
    return path


def quiet() -> TrainingProgress:
    return TrainingProgress(shown=False)


def run(folder: Path, *changes: str, resume: bool = False, name: str = "run") -> TrainingOutcome:
    """Train by the small recipe with these changes, here and quietly."""
    return train(small(folder, *changes), folder / name, resume=resume, hardware=CPU, progress=quiet())


def final_weights(run: Path) -> dict[str, Tensor]:
    """All that a finished run ends with: the model, and the last checkpoint with optimizer and average."""
    checkpoint = last_checkpoint(run / "checkpoints")
    assert checkpoint is not None
    model = {f"model/{name}": value for name, value in load_folder(run / "model").state_dict().items()}
    return model | dict(checkpoint.tensors)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two sets of weights are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
