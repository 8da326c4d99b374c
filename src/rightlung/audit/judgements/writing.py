"""Writing text files as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rightlung.core import InputError, OutputError


def write_text(path: Path, text: str) -> None:
    """Write a file, in place of what is there."""
    beside = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_new(path: Path, text: str, what: str) -> None:
    """Write a file that must not be there yet: nobody's judgements are written over."""
    refuse_existing(path, what)
    write_text(path, text)


def refuse_existing(path: Path, what: str) -> None:
    """Refuse a path where something is already."""
    if os.path.lexists(path):
        raise InputError(f"{path}: the {what} is there already and is not written over; move it or name another")
