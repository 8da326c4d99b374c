"""The cache of indexes in ``$RIGHTLUNG_CACHE``, by default ``~/.cache/rightlung``.

An entry is a folder with ``studies.arrow`` (uncompressed Arrow, so that it can be memory-mapped) and ``about.json``.
Its name contains the reader and hashes of the data's path and of the key: version of the reader, options, and the
inputs' names, sizes and modification times. Entries appear complete or not at all, and can be deleted at any time.
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

import pyarrow as pa

from rightlung.core import InputError

FORMAT = 4
"""Increase when the layout of an entry changes."""
STUDIES, ABOUT = "studies.arrow", "about.json"
_KEPT = 3
"""How many entries of one data set are kept: for other versions or options, or from before its tables were replaced."""


def cache_folder() -> Path:
    """Return the folder for everything that can be regenerated."""
    try:
        return Path(os.environ.get("RIGHTLUNG_CACHE") or "~/.cache/rightlung").expanduser().absolute()
    except RuntimeError:  # without a home folder nothing can be kept, and a note will say so
        return Path(os.devnull)


def entry_folder(reader: str, version: int, root: Path, options: Mapping[str, str], inputs: Sequence[Path]) -> Path:
    """Return the folder of the index of these inputs, whether or not it exists."""
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


def store(entry: Path, table: Any, about: dict[str, Any]) -> Path | None:
    """Write an index to its entry and return the entry; if that is impossible, print a note and return None.

    If another process was faster, its entry is used.
    """
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=entry.parent, ignore_cleanup_errors=True) as folder:
            made = Path(folder)
            with pa.OSFile(str(made / STUDIES), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            about = {**about, "size": (made / STUDIES).stat().st_size}
            (made / ABOUT).write_text(json.dumps(about), encoding="utf-8")
            if read_about(entry) is None:
                shutil.rmtree(entry, ignore_errors=True)  # damaged, or half deleted
                with contextlib.suppress(OSError):
                    made.rename(entry)
    except OSError as error:
        note(f"the index cannot be written to {entry.parent} ({error.strerror or error}); it stays in memory")
        return None
    _forget_old(entry)
    return entry


def _forget_old(entry: Path) -> None:
    """Delete all but the newest entries of the same data, and leftovers of interrupted processes older than a day."""
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
    """Return the description of an entry; None if it is missing or incomplete."""
    try:
        about = json.loads((entry / ABOUT).read_bytes())
        size = (entry / STUDIES).stat().st_size
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) and about.get("size") == size else None


def note(text: str) -> None:
    """Print a message for a person on standard error, if possible."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"rightlung: {text}", file=sys.stderr, flush=True)
