"""Replace a folder by another in one step, so that readers find the old one or the new one, complete."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from rightlung.core.files import bring_to_disk, try_lock

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux's renameat2
_HERE = -100  # AT_FDCWD: paths as they are


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yield a new folder to write to; at the end of the block, it replaces ``folder``.

    Its files are on the disk before it gets its name. If the block raises an exception (or Ctrl-C), ``folder`` stays as
    it was. A killed process leaves a hidden ``.NAME.….unfinished`` behind, which the next one removes.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*.unfinished"):
        with _held(leftover) as free:
            if free:
                shutil.rmtree(leftover, ignore_errors=True)
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.unfinished")
    unfinished.mkdir()
    with _held(unfinished):
        try:
            yield unfinished
            for path in (*unfinished.iterdir(), unfinished):
                bring_to_disk(path)
            _put(unfinished, folder)
            bring_to_disk(folder.parent)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)  # by now the old folder, if there was one


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Lock a folder during the block, or until the process dies, and yield whether no other process holds it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except (AttributeError, OSError):  # Windows, where leftovers stay
        yield False
        return
    try:
        free = False
        with contextlib.suppress(OSError):
            free = try_lock(descriptor)
        yield free
    finally:
        os.close(descriptor)


def _put(unfinished: Path, folder: Path) -> None:
    if not folder.exists():
        unfinished.rename(folder)
    elif not _exchange(unfinished, folder):  # two steps: between them there is no folder, but both are complete
        before = unfinished.with_suffix(".before")
        folder.rename(before)
        try:
            unfinished.rename(folder)
        except BaseException:
            before.rename(folder)
            raise
        before.rename(unfinished)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return whether the system supports it."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0)
