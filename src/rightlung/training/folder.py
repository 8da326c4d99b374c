"""The folder of a run: its recipe, its log, its checkpoints, and at the end its model.

::

    recipe.yaml      as run, every field written out
    start/           the model before the first step
    checkpoints/     the last two
    log.csv          figures; curve.png draws them
    model/           the trained model, once the run is finished
    finished.json    what came out
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rightlung.core import InputError, OutputError
from rightlung.core.files import FolderLock, folder_lock, read_json, write_json, write_whole
from rightlung.training.recipe import Recipe, differing_fields, read_recipe, recipe_text

FREE = ("checkpoint_every", "log_every", "card", "data.workers", "data.cache_folder")
"""Fields that may differ when a run goes on, as the weights do not depend on them."""


class RunFolder:
    """Where a run keeps what it makes."""

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

    def check(self, recipe: Recipe, resume: bool) -> dict[str, Any] | None:
        """Refuse a folder that this run may not use; return what came out where the run is finished already."""
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path} is a file; a run needs a folder")
        if not self.recipe.is_file():
            found = self.path.iterdir() if self.path.is_dir() else ()
            if others := sorted(path.name for path in found if not path.name.startswith(".")):
                raise OutputError(f"{self.path} holds {others[0]!r}, but no run; give --out another folder")
            return None
        if self.finished.is_file() or self.has_checkpoint():
            differing = differing_fields(read_recipe(self.recipe), recipe)
            if different := [name for name in differing if name not in FREE]:
                raise InputError(
                    f"{self.path} holds a run of another recipe, which differs in {', '.join(different[:5])}; "
                    "give --out another folder"
                )
        if self.finished.is_file():
            if not resume:
                raise InputError(
                    f"{self.path} holds this run, finished: its model is {self.model}; "
                    "give --out another folder to train again"
                )
            return read_json(self.finished) | {"model": str(self.model)}  # the folder may have been moved
        if self.has_checkpoint() and not resume:
            raise InputError(
                f"{self.path} holds this run, not finished; add --resume to go on with it, or give --out another folder"
            )
        return None

    def has_checkpoint(self) -> bool:
        """Whether the run here has come as far as a checkpoint; before that nothing is worth keeping."""
        return self.checkpoints.is_dir() and any(path.suffix == ".safetensors" for path in self.checkpoints.iterdir())

    def locked(self) -> FolderLock:
        """Keep other processes from training here; the lock goes with the process, however that ends."""
        return folder_lock(self.path, InputError(f"another process is training in {self.path}"))

    def begin(self, recipe: Recipe) -> None:
        """Write the recipe; what an attempt left that came to no checkpoint is removed."""
        if not self.has_checkpoint():
            shutil.rmtree(self.start, ignore_errors=True)
            self.log.unlink(missing_ok=True)
        write_whole(self.recipe, recipe_text(recipe), durable=True)

    def finish(self, outcome: Mapping[str, Any]) -> None:
        """Say that the run is finished."""
        write_json(self.finished, outcome, durable=True)
