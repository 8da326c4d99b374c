"""Put a complete folder in the place of another, so that whoever looks finds the old one or the new one, whole."""

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
def replaced(place: Path) -> Iterator[Path]:
    """Give a new folder beside ``place`` to write to, and put it there at the end of the block.

    All of it is on the disk before it gets its name. When the block ends by an exception (Ctrl-C, too) ``place`` is as
    it was; a process killed outright leaves a hidden ``.NAME.….unfinished`` behind, which the next one clears away.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    for leftover in place.parent.glob(f".{glob.escape(place.name)}.*.unfinished"):
        with _held(leftover) as free:
            if free:
                shutil.rmtree(leftover, ignore_errors=True)
    unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}.unfinished")
    unfinished.mkdir()
    with _held(unfinished):
        try:
            yield unfinished
            for path in (*unfinished.iterdir(), unfinished):
                bring_to_disk(path)
            _put(unfinished, place)
            bring_to_disk(place.parent)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)  # by now the old folder, if there was one


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder by a lock that ends with its process, however that ends; say whether nobody else holds it."""
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


def _put(unfinished: Path, place: Path) -> None:
    if not place.exists():
        unfinished.rename(place)
    elif not _exchange(unfinished, place):  # two steps: between them there is no folder, but both are complete
        before = unfinished.with_suffix(".before")
        place.rename(before)
        try:
            unfinished.rename(place)
        except BaseException:
            before.rename(place)
            raise
        before.rename(unfinished)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step, and say whether this system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0)
