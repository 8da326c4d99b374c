"""Checkpoints: all that a run needs to go on, in one safetensors file that is either whole or not there.

A file is written under a temporary name, brought to the disk, and then given its name in one step; a process killed at
any moment leaves at most a temporary file, which nothing reads. The last two are kept. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rightlung.core import OutputError

KEPT = 2
TEMPORARY = ".partial"
_NAME = re.compile(r"step-(\d{8,})\.safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state after ``step`` steps: tensors by name, and what is no tensor."""

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, whole or not at all, and remove those before the last two."""
    path = folder / f"step-{checkpoint.step:08d}.safetensors"
    temporary = path.with_name(path.name + TEMPORARY)
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, {"step": str(checkpoint.step), "facts": json.dumps(dict(checkpoint.facts))})
        bring_to_disk(temporary)
        temporary.replace(path)
        bring_to_disk(folder)
        for old in _files(folder)[:-KEPT]:
            (folder / old).unlink()
        for left_over in folder.glob(f"*{TEMPORARY}"):
            left_over.unlink()
    except (OSError, SafetensorError) as error:
        raise OutputError(f"the checkpoint {path} cannot be written: {error}") from None
    return path


def last_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the latest checkpoint that is whole; None where there is none."""
    for name in reversed(_files(folder)):
        with contextlib.suppress(SafetensorError, OSError, KeyError, ValueError, TypeError):
            return _read(folder / name)
    return None


def _read(path: Path) -> Checkpoint:
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
    return Checkpoint(int(about["step"]), tensors, json.loads(about["facts"]))


def _files(folder: Path) -> list[str]:
    """The checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path.name) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [name for _, name in sorted(found)]


def bring_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str) -> None:
    """Write a text file that is either whole or as it was before."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        temporary.write_text(content, encoding="utf-8")
        bring_to_disk(temporary)
        temporary.replace(path)
        bring_to_disk(path.parent)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None
