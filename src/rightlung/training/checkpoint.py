"""Checkpoints: all that a run needs to go on, in one safetensors file that is either whole or not there.

A file is written under a temporary name, brought to the disk, and then given its name in one step; a process killed at
any moment leaves at most a temporary file, which nothing reads. The last two are kept. Nothing is ever unpickled.
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

KEPT = 2
_NAME = re.compile(r"step-\d{8,}\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state after ``step`` steps: tensors by name, and what is no tensor."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, whole or not at all, and remove those before the last two."""
    path = folder / f"step-{checkpoint.step:08d}.safetensors"
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
    about = {"step": str(checkpoint.step), "facts": json.dumps(dict(checkpoint.facts))}

    def write(unfinished: Path) -> None:
        try:
            save_file(tensors, unfinished, about)
        except SafetensorError as error:  # a full disk, in its words
            raise OSError(str(error)) from None

    write_whole(path, write, durable=True)
    try:
        for old in (*_files(folder)[:-KEPT], *folder.glob(temporary_path(Path("step-*.safetensors")).name)):
            old.unlink()
    except OSError as error:
        raise not_written(folder, error) from None
    return path


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the latest checkpoint that is whole; None where there is none."""
    for path in reversed(_files(folder)):
        with contextlib.suppress(SafetensorError, OSError, KeyError, ValueError, TypeError):
            with safe_open(path, framework="pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
            return Checkpoint(int(about["step"]), tensors, json.loads(about["facts"]))
    return None


def _files(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    found = [path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.stem.removeprefix("step-")))
