"""The folder of a run: its recipe, its log, its checkpoints, and at the end its model.

::

    recipe.yaml      the recipe with every field
    start/           the model before the first step
    checkpoints/     the last two checkpoints
    log.csv          losses and metrics; curve.png plots them
    model/           the trained model, once the run is finished
    finished.json    the outcome
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightlung.core import InputError, OutputError
from rightlung.core.files import FolderLock, folder_lock, read_json, write_json, write_whole
from rightlung.training.recipe import Recipe, differing_fields, recipe_text
from rightlung.training.recipe_file import read_recipe

MAY_CHANGE_ON_RESUME = ("checkpoint_every", "log_every", "model_card", "data.workers", "data.cache_folder")
"""Fields that may change when a run is resumed, since the weights do not depend on them."""


class RunFolder:
    """The files and folders of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.yaml"
        self.start = path / "start"
        self.checkpoints = path / "checkpoints"
        self.log = path / "log.csv"
        self.curve = path / "curve.png"
        self.board = path / "tensorboard"
        self.model = path / "model"
        self.finished = path / "finished.json"

    def check(self, recipe: Recipe, resume: bool, restart: bool = False) -> dict[str, Any] | None:
        """Refuse a folder that holds something else; return the outcome if this run is already finished."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file; --out must be a folder")
        if not self.recipe.is_file():
            found = self.path.iterdir() if self.path.is_dir() else ()
            if others := sorted(path.name for path in found if not path.name.startswith(".")):
                raise OutputError(f"{self.path} contains {others[0]!r} but no run; choose another folder for --out")
            return None
        if restart:
            return None
        if self.finished.is_file() or self.has_checkpoint():
            differing = differing_fields(read_recipe(self.recipe), recipe)
            if different := [name for name in differing if name not in MAY_CHANGE_ON_RESUME]:
                raise InputError(
                    f"{self.path} contains a run of another recipe, which differs in {', '.join(different[:5])}; "
                    "choose another folder for --out"
                )
        if self.finished.is_file():
            if not resume:
                raise InputError(
                    f"{self.path} contains this run, finished: its model is {self.model}; "
                    "choose another folder for --out to train again"
                )
            outcome = read_json(self.finished)
            return (outcome if isinstance(outcome, dict) else {}) | {"model": str(self.model)}  # it may have moved
        if self.has_checkpoint() and not resume:
            raise InputError(
                f"{self.path} contains this run, not finished; add --resume to continue it, --restart to "
                "train it again, or choose another --out"
            )
        return None

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint; without one there is nothing to resume."""
        return self.checkpoints.is_dir() and any(path.suffix == ".safetensors" for path in self.checkpoints.iterdir())

    def locked(self) -> FolderLock:
        """Lock the folder against other processes; the lock ends with this process."""
        return folder_lock(self.path, InputError(f"another process is training in {self.path}"))

    def begin(self, recipe: Recipe, restart: bool = False) -> None:
        """Write the recipe and remove what an attempt without a checkpoint left, or all with ``restart``."""
        if restart:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            shutil.rmtree(self.model, ignore_errors=True)
            self.finished.unlink(missing_ok=True)
        if not self.has_checkpoint():
            shutil.rmtree(self.start, ignore_errors=True)
            self.log.unlink(missing_ok=True)
        write_whole(self.recipe, recipe_text(recipe), durable=True)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Mark the run as finished."""
        write_json(self.finished, outcome, durable=True)
