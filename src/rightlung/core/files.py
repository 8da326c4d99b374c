"""Files that are written as a whole or not at all, JSON, and folders that one process holds at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from rightlung.core.errors import InputError, OutputError

Content = str | bytes | memoryview | Callable[[Path], object]
"""What a file is to hold: a text, bytes, or whatever a function writes to the path it is handed."""


def write_whole(path: Path, content: Content, *, durable: bool = False) -> None:
    """Write a file, in place of what is there.

    Whatever goes wrong, the file is as it was before or as it is to be, and folders on the way to it are made. A
    process that is killed leaves at most the hidden file `beside` it. With ``durable`` a power cut loses nothing.
    """
    unfinished = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(unfinished)
        else:
            unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        if durable:
            bring_to_disk(unfinished)
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise not_written(path, error) from error
        raise
    if durable:
        try:
            bring_to_disk(path.parent)
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(
                f"{path}: is written, but a power cut may lose it, as its folder cannot be synced: {reason}"
            ) from None


def write_all(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write files in place of what is there, all of them or none.

    They are written to a temporary folder first and moved when all are there; if a move fails, the earlier ones are
    undone.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as name:
            moves = [
                (Path(name, f"{place}.new"), Path(name, f"{place}.old"), path) for place, path in enumerate(contents)
            ]
            for new, _, path in moves:
                new.write_bytes(contents[path])
                path.parent.mkdir(parents=True, exist_ok=True)
            done: list[tuple[Path, Path]] = []
            try:
                for new, old, path in moves:
                    if path.exists():
                        path.replace(old)
                    done.append((old, path))
                    new.replace(path)
            except OSError:
                for old, path in reversed(done):
                    path.unlink(missing_ok=True)
                    if old.exists():
                        old.replace(path)
                raise
    except OSError as error:
        raise not_written(folder, error) from error


def beside(path: Path) -> Path:
    """Return the hidden name under which a file is written before it gets its own."""
    return path.with_name(f".{path.name}.writing")


def bring_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def not_written(path: Path, error: OSError) -> OutputError:
    """Build the error for a path that the system does not let us write."""
    if isinstance(error, OutputError):
        return error
    return OutputError(f"{path}: cannot be written: {error.strerror or error}")


def plain(value: object) -> Any:
    """Return a value as JSON can write it: NaN and infinities become null, tuples become lists.

    An object with a method ``as_json`` becomes what that returns.

    >>> plain({"auroc": float("nan"), "interval": (0.5, 1.0)})
    {'auroc': None, 'interval': [0.5, 1.0]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value.as_json()) if hasattr(value, "as_json") else value


def write_json(path: Path, content: object, *, durable: bool = False) -> None:
    """Write a JSON file of what `plain` makes of the content, whole or not at all."""
    text = json.dumps(plain(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, text.encode(errors="backslashreplace"), durable=durable)  # \ud800 is what JSON writes, too


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold names with values; got {type(content).__name__}")
    return content


class FolderLock:
    """A hold on a folder: a context, or a handle to `release`. It ends with the process, however that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _held.add(self)

    @property
    def held(self) -> bool:
        """Whether the folder is still held, by this process."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let go of the folder."""
        _held.discard(self)
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def folder_lock(folder: Path, refusal: str | Exception) -> FolderLock:
    """Make a folder where there is none, and hold it by the file ``.lock`` in it.

    Where another process holds it, ``refusal`` is raised (a text as an `OutputError`). Windows has no such lock: there
    the folder is taken without one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except FileExistsError:
        raise OutputError(f"{folder}: is a file, where a folder is needed") from None
    except OSError as error:
        raise not_written(folder, error) from None
    try:
        if not try_lock(descriptor):
            raise OutputError(refusal) if isinstance(refusal, str) else refusal
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise OutputError(f"{folder}: the folder cannot be locked: {error.strerror}") from None
        raise
    return FolderLock(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; say whether nobody else had."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """A forked process (a data loader's worker) must not keep the lock when its parent is killed."""
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
