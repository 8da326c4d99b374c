"""Read files that users name: only regular files, and only up to a size limit.

A path may lead to a folder, a blocking pipe, or a sparse file of ten gigabytes. This is detected from the file's
status, before the first byte is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rightlung.core import InputError
from rightlung.core.errors import MissingFileError

MAX_BYTES = 256 * 2**20
"""The size limit of an image or mask file. An uncompressed 100-megapixel 16-bit radiograph has 200 MB."""


def open_regular(path: str | os.PathLike[str], what: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading and return its descriptor and status; ``what`` names it in messages."""
    try:
        # A pipe without a writer would block the plain open.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise MissingFileError(f"{what} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{what} is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{what} cannot be opened: {reason}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = "a folder, not a file" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InputError(f"{what} is {kind}")
    return descriptor, status


def file_identity(path: str | os.PathLike[str]) -> str | None:
    """Return a file's size and modification time, None if it cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116  (called for every image of a source)
    except (OSError, ValueError):
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


def shown(value: object, most: int = 60) -> str:
    """Return the ``repr`` of a value, shortened to ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def check_pixel_count(width: int, height: int, max_pixels: int, what: str) -> None:
    """Reject an image with more than ``max_pixels`` pixels."""
    if width * height > max_pixels:
        size = f"{width:,} x {height:,} pixels ({width * height:,})"
        raise InputError(f"{what} has {size}, more than the limit of {max_pixels:,}")


def check_byte_count(size: int, max_bytes: int, what: str) -> None:
    """Reject a file that is empty or larger than ``max_bytes``."""
    if size == 0:
        raise InputError(f"{what} is empty")
    if size > max_bytes:
        raise InputError(f"{what} has {size:,} bytes, more than the limit of {max_bytes:,}")


def read_regular(path: str | os.PathLike[str], what: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Return all bytes of a regular file of at most ``max_bytes``."""
    descriptor, status = open_regular(path, what)
    try:
        check_byte_count(status.st_size, max_bytes, what)
        return pread_exactly(descriptor, 0, status.st_size, what)
    finally:
        os.close(descriptor)


def pread_exactly(descriptor: int, offset: int, size: int, what: str) -> bytes:
    """Return ``size`` bytes from ``offset``, without moving the descriptor's position, which threads share."""
    pieces, missing = [], size
    while missing:
        try:
            piece = os.pread(descriptor, missing, offset + size - missing)
        except OSError as error:
            raise InputError(f"{what} cannot be read: {error.strerror}") from error
        if not piece:
            raise InputError(f"{what} is truncated: {missing:,} of {size:,} bytes are missing")
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def relative_name(name: object) -> str:
    """Return a file name relative to a folder or archive, without ``.`` and double slashes.

    Absolute names and names with ``..`` or NUL lead out of it and are rejected.

    >>> relative_name("./images//a.png")
    'images/a.png'
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"a file name must be a string with at least one character; got {name!r}")
    if "\0" in name:
        raise InputError(f"file {name!r} has a NUL character in its name")
    # Windows separates with backslashes and has drives; one rule for all systems keeps manifests portable.
    if name.startswith(("/", "\\")) or name[1:3] in (":/", ":\\"):
        raise InputError(f"file {name!r} is an absolute path; names are relative to the manifest's folder")
    if ".." in name.replace("\\", "/").split("/"):
        raise InputError(f"file {name!r} leads out of the manifest's folder with '..'")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts:
        raise InputError(f"file {name!r} names a folder, not a file")
    return "/".join(parts)


def resolved_inside(root: str, name: str) -> Path:
    """Return the real path of ``name`` below the folder ``root``; reject symbolic links that lead out of it."""
    real_root = os.path.realpath(root)
    try:
        real = os.path.realpath(os.path.join(real_root, name))  # noqa: PTH118  (relative_name has checked the name)
    except (OSError, ValueError) as error:
        raise InputError(f"file {name!r} cannot be resolved: {error}") from error
    if os.path.commonpath([real_root, real]) != real_root:
        raise InputError(f"file {name!r} is a symbolic link that leads out of the manifest's folder")
    return Path(real)
