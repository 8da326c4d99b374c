"""Tables that are never written over."""

from __future__ import annotations

import os
from pathlib import Path

from rightlung.core import InputError
from rightlung.core.files import write_whole


def write_new(path: Path, text: str, what: str) -> None:
    """Write a file that must not be there yet: nobody's judgements are written over."""
    refuse_existing(path, what)
    write_whole(path, text)


def refuse_existing(path: Path, what: str) -> None:
    """Refuse a path where something is already."""
    if os.path.lexists(path):
        raise InputError(f"{path}: the {what} is there already and is not written over; move it or name another")
