"""Checkpoints: one safetensors file each, with everything that a resumed run needs.

A file is written under a temporary name, synced to disk and renamed, so that a process killed at any moment leaves at
most a temporary file, which is never read. The last two are kept. No pickles.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rightlung.core.files import not_written, temporary_path, write_whole

CHECKPOINTS_KEPT = 2
_NAME = re.compile(r"step-\d{8,}\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state after ``step`` steps: tensors by name, and plain values in ``metadata``."""

    step: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically and delete all but the last two."""
    path = folder / f"step-{checkpoint.step:08d}.safetensors"
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
    about = {"step": str(checkpoint.step), "metadata": json.dumps(dict(checkpoint.metadata))}

    def write(unfinished: Path) -> None:
        try:
            save_file(tensors, unfinished, about)
        except SafetensorError as error:  # how it reports a full disk
            raise OSError(str(error)) from None

    write_whole(path, write, durable=True)
    try:
        for old in (
            *checkpoint_files(folder)[:-CHECKPOINTS_KEPT],
            *folder.glob(temporary_path(Path("step-*.safetensors")).name),
        ):
            old.unlink()
    except OSError as error:
        raise not_written(folder, error) from None
    return path


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the latest complete checkpoint, or return None."""
    for path in reversed(checkpoint_files(folder)):
        with contextlib.suppress(SafetensorError, OSError, KeyError, ValueError, TypeError):
            with safe_open(path, framework="pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
            return Checkpoint(int(about["step"]), tensors, json.loads(about["metadata"]))
    return None


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, complete or not, oldest first."""
    found = [path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem.removeprefix("step-")))
