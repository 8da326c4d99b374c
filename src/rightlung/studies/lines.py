"""The lines of a table: decompressed, decoded, and limited in length."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from rightlung.core import InputError
from rightlung.studies.files import open_regular

MAX_LINE_BYTES = 16 * 2**20
"""The longest line that is read: a file without line ends must not fill the memory."""


class Lines:
    """The decoded lines of an open table; a line that cannot be decoded has a fault instead."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._number = 0
        self._ahead: deque[tuple[int, str, str | None]] = deque()

    def take(self) -> tuple[int, str, str | None] | None:
        """Return number, text and fault of the next line; None at the end."""
        return self._ahead.popleft() if self._ahead else self._next()

    def put_back(self, lines: Sequence[tuple[int, str, str | None]]) -> None:
        """Return lines to be taken again."""
        self._ahead.extendleft(reversed(lines))

    def _next(self) -> tuple[int, str, str | None] | None:
        try:
            raw = self._file.readline(MAX_LINE_BYTES + 1)
            if not raw:
                return None
            self._number += 1
            if len(raw) > MAX_LINE_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = self._file.readline(MAX_LINE_BYTES)
                return self._number, "", f"is longer than the limit of {MAX_LINE_BYTES:,} bytes"
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{self._path} cannot be read after line {self._number:,}: {reason}") from error
        if self._number == 1:
            raw = self._checked_start(raw)
        try:
            return self._number, raw.decode("utf-8").rstrip("\r\n"), None
        except UnicodeDecodeError as error:
            return self._number, "", f"is not UTF-8 (byte {error.start + 1} of the line)"

    def _checked_start(self, raw: bytes) -> bytes:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"{self._path} is UTF-16; save it as UTF-8")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in raw:
            raise InputError(f"{self._path} is not a text table: its first line has NUL bytes")
        if b"\r" in raw.rstrip(b"\r\n"):
            raise InputError(f"{self._path} uses CR line ends; save it with LF or CRLF")
        return raw


@contextmanager
def opened_table(path: Path) -> Iterator[IO[bytes]]:
    """Open a table; decompress it if its first bytes show that it is compressed, whatever its name."""
    descriptor, _ = open_regular(path, str(path))
    with os.fdopen(descriptor, "rb", buffering=2**20) as file:
        try:
            start = os.pread(descriptor, 4, 0)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        if start.startswith(b"\x1f\x8b"):
            with gzip.open(file, "rb") as plain:
                yield cast(IO[bytes], plain)
        elif start.startswith(b"PK\x03\x04"):
            with _only_member(file, path) as member:
                yield member
        else:
            yield file


@contextmanager
def _only_member(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path} is a damaged zip archive: {error}") from error
    with archive:
        tables = [name for name in archive.namelist() if name.lower().endswith((".csv", ".txt", ".tsv"))]
        tables = [name for name in tables if not name.startswith("__MACOSX/")]
        if len(tables) != 1:
            raise InputError(f"{path} is a zip archive with {len(tables)} tables; unpack it, because one is needed")
        with archive.open(tables[0]) as member:
            yield member
