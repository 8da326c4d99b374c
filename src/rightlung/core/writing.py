"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rightlung.core.errors import OutputError


def write_whole(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write a file, in place of what is there: a text, bytes, or whatever a function writes to the path it is handed.

    Whatever goes wrong, the file is as it was before or as it is to be, and folders on the way to it are made.
    """
    beside = path.with_name(f".{path.name}.writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(beside)
        else:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error.strerror or error})") from error
