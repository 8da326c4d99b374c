"""Atomic writing, JSON, and folders that one process locks at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rightlung.core.errors import InputError, OutputError

_LOCK, _WRITING, _MOVING = ".lock", ".writing-", ".moving-"
Content = str | bytes | memoryview | Callable[[Path], object]
"""The content of a file: text, bytes, or a function that writes to the path it is given."""


def write_whole(path: Path, content: Content, *, durable: bool = False) -> None:
    """Write a file atomically: an error leaves the old file in place. Missing folders are created.

    A killed process leaves at most a hidden temporary file. With ``durable`` the file survives a power cut.
    """
    unfinished = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(unfinished, content)
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
            raise OutputError(f"{path}: written, but its folder cannot be synced to disk: {reason}") from None


def write_all(folder: Path, contents: Mapping[Path, Content]) -> None:
    """Write several files below a folder, all or none: they and backups go to a hidden folder, then they are moved.

    A killed process leaves every file complete. If it was moving files, the next `folder_lock` moves the rest.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=_WRITING, dir=folder))
        try:
            for path, content in contents.items():
                new, old = (hidden / kind / path.relative_to(folder) for kind in ("new", "old"))
                for one in (new, old, path):
                    one.parent.mkdir(parents=True, exist_ok=True)
                _put(new, content)
                if path.exists():
                    _back_up(path, old)
            hidden = hidden.rename(folder / hidden.name.replace(_WRITING, _MOVING))
            try:
                _move_new(hidden, folder)
            except BaseException:
                hidden = hidden.rename(folder / hidden.name.replace(_MOVING, _WRITING))
                _move_back(hidden, folder, contents)
                raise
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except OSError as error:
        raise not_written(folder, error) from error


def _move_new(hidden: Path, folder: Path) -> None:
    files = sorted(path for path in (hidden / "new").rglob("*") if path.is_file())
    for new in files:
        new.replace(folder / new.relative_to(hidden / "new"))


def _move_back(hidden: Path, folder: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        new, old = (hidden / kind / path.relative_to(folder) for kind in ("new", "old"))
        if old.exists():
            old.replace(path)
        elif not new.exists():
            path.unlink(missing_ok=True)


def _put(path: Path, content: Content) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _back_up(path: Path, old: Path) -> None:
    try:
        old.hardlink_to(path)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, old)


def temporary_path(path: Path) -> Path:
    """Return the hidden temporary name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}.writing")


def bring_to_disk(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def not_written(path: Path, error: OSError) -> OutputError:
    """Return the `OutputError` for a path that cannot be written."""
    if isinstance(error, OutputError):
        return error
    return OutputError(f"{path}: cannot be written: {error.strerror or error}")


def plain(value: object) -> Any:
    """Return a value that JSON can hold: NaN and infinities become None, tuples lists, and ``as_json`` is called.

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


def plain_fields(value: object, **further: object) -> dict[str, Any]:
    """Return the fields of a dataclass, and ``further`` ones, as values that JSON can hold (`plain`)."""
    return {name: plain(one) for name, one in (vars(value) | further).items()}


def write_json(path: Path, content: object, *, durable: bool = False) -> None:
    """Write `plain` of the content as a JSON file, atomically."""
    text = json.dumps(plain(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_whole(path, text.encode(errors="backslashreplace"), durable=durable)  # \ud800 is what JSON writes, too


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must hold a JSON object; got {type(content).__name__}")
    return content


class FolderLock:
    """A lock on a folder: a context manager, or a handle to `release`. The system drops it when the process ends."""

    def __init__(self, descriptor: int, folder: Path, created: Sequence[Path]) -> None:
        self._descriptor: int | None = descriptor
        self._folder, self._created = folder, created
        _held.add(self)

    @property
    def held(self) -> bool:
        """Whether this process still holds the lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock. A folder that it created and that is still empty is removed."""
        if self.held and self._created:
            with contextlib.suppress(OSError):
                if [file.name for file in self._folder.iterdir()] == [_LOCK]:
                    (self._folder / _LOCK).unlink()
                    for folder in self._created:
                        folder.rmdir()
        self.close()

    def close(self) -> None:
        """Release the lock and leave the folder as it is."""
        _held.discard(self)
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def folder_lock(folder: Path, refusal: str | Exception) -> FolderLock:
    """Create a folder if it is missing, lock it by the file ``.lock`` in it, and tidy up after a killed process.

    If another process holds the lock, ``refusal`` is raised (a text as an `OutputError`). On Windows nothing is locked.
    """
    path = folder / _LOCK
    try:
        created = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except FileExistsError:
        raise OutputError(f"{folder}: expected a folder; this is a file") from None
    except OSError as error:
        raise not_written(folder, error) from None
    try:
        # Between opening and locking the file, its holder may have removed the folder.
        if not try_lock(descriptor) or not path.exists():
            raise OutputError(refusal) if isinstance(refusal, str) else refusal
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise OutputError(f"{folder}: cannot be locked: {error.strerror}") from None
        raise
    for leftover in folder.glob(f"{_WRITING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in folder.glob(f"{_MOVING}*"):
        with contextlib.suppress(OSError):
            _move_new(leftover, folder)
            shutil.rmtree(leftover)
    return FolderLock(descriptor, folder, created)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False if another process holds the lock."""
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


def _close_in_child() -> None:
    """Close the locks in a forked process (a data loader's worker), which must not outlive its parent's."""
    for lock in list(_held):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
