"""Where indexes are kept: ``$RIGHTLUNG_CACHE``, else ``~/.cache/rightlung``. Made whole or not at all.

An entry is a folder with ``studies.arrow`` (Arrow's file format, not compressed, so that it is mapped into memory and
not read) and ``about.json``. Its name holds the reader, the place of the data and the key: version of the reader,
options, and the inputs' names, sizes and times of change. Deleting the folder is always safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rightlung.core import InputError

FORMAT = 3
"""Raised when the layout of an entry changes."""
STUDIES, ABOUT = "studies.arrow", "about.json"
_KEPT = 3
"""How many entries of one data set are kept: with other versions or options, or before its tables were replaced."""


def cache_folder() -> Path:
    """Return the folder for everything that can be made again."""
    try:
        return Path(os.environ.get("RIGHTLUNG_CACHE") or "~/.cache/rightlung").expanduser().absolute()
    except RuntimeError:  # nobody's home: nothing can be kept, and the note will say so
        return Path(os.devnull)


def entry_folder(reader: str, version: int, root: Path, options: Mapping[str, str], inputs: Sequence[Path]) -> Path:
    """Return where the index of these inputs stands, or would stand."""
    place = _digest([str(root)])[:12]
    key = _digest([FORMAT, version, sorted(options.items()), [_identity(path, root) for path in inputs]])[:20]
    return cache_folder() / "indexes" / f"{reader}-{place}-{key}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _identity(path: Path, root: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    size = -1 if path.is_dir() else status.st_size
    return os.path.relpath(path, root), size, status.st_mtime_ns


def working_folder(entry: Path) -> Path | None:
    """Return a new folder in which an entry can be made, on the disk where it will stand; ``None`` if none can be."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".making-", dir=entry.parent))
    except OSError as error:
        note(f"the index cannot be kept in {entry.parent} ({error.strerror}); it stays in memory")
        return None


def put_in_place(made: Path, entry: Path) -> Path:
    """Give a finished folder its name; where another process was first, take that one's."""
    try:
        made.rename(entry)
    except OSError:
        if read_about(entry) is None:  # damaged, or half deleted
            shutil.rmtree(entry, ignore_errors=True)
            with contextlib.suppress(OSError):
                made.rename(entry)
                return entry
        shutil.rmtree(made, ignore_errors=True)
    _forget_old(entry)
    return entry


def _forget_old(entry: Path) -> None:
    """Delete all but the newest entries of the same data, and what broken-off processes left more than a day ago."""
    family = entry.name.rpartition("-")[0] + "-"
    with contextlib.suppress(OSError):
        same = [path for path in entry.parent.iterdir() if path.name.startswith(family)]
        same.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        stale = [
            path for path in entry.parent.glob(".making-*") if path.stat().st_mtime < entry.stat().st_mtime - 86_400
        ]
        for path in [*same[_KEPT:], *stale]:
            if path != entry:
                shutil.rmtree(path, ignore_errors=True)


def read_about(entry: Path) -> dict[str, Any] | None:
    """Return what is known of an entry; ``None`` where there is none, or none that is whole."""
    try:
        about = json.loads((entry / ABOUT).read_bytes())
        size = (entry / STUDIES).stat().st_size
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) and about.get("size") == size else None


def note(text: str) -> None:
    """Say something to a person on standard error, where there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"rightlung: {text}", file=sys.stderr, flush=True)
