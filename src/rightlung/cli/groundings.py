"""The folder that ``rightlung ground`` writes: a picture for each pair of image and phrase, and one JSON of all.

Each answer is added to a hidden journal as soon as its picture is there; ``groundings.json`` is made from that journal
at the end of every call, however it ends. So a call that was stopped loses nothing, and the next one goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import OutputError

RESULT = "groundings.json"
_JOURNAL = ".groundings.jsonl"
_LOCK = ".lock"
_LONGEST_PART = 32


def file_name(*shown: str, key: str) -> str:
    """Return a name for a file from texts that may hold anything: what is harmless of them, and a hash of ``key``.

    >>> file_name("../../etc/passwd", "Effusion, left", key="k")
    'etc-passwd-effusion-left-3b65bdd33420.png'
    """
    parts = [re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_PART].strip("-") for text in shown]
    return "-".join([*(part for part in parts if part), short_hash(key)]) + ".png"


def short_hash(text: str) -> str:
    """Return twelve hexadecimal digits of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


class GroundingFolder:
    """A folder of groundings by key, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, dict[str, Any]] = {}
        self._lock = -1

    def __enter__(self) -> GroundingFolder:
        import fcntl  # not on Windows

        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                raise OutputError(f"{self.folder}: another run is writing here; choose another folder") from None
            self._entries = dict(self._read())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._write_result()
        except OutputError:
            if error is None:
                raise
        finally:
            os.close(self._lock)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was found for a key by an earlier call, None where nothing was or its picture is gone."""
        entry = self._entries.get(key)
        return entry if entry is not None and (self.folder / str(entry["overlay"])).is_file() else None

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Note what was found for a key; its picture is there already."""
        self._entries[key] = entry
        with self._writing(), (self.folder / _JOURNAL).open("a", encoding="ascii") as journal:
            journal.write(json.dumps({"key": key, "entry": entry}) + "\n")

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        path = self.folder / _JOURNAL
        if not path.exists():
            return
        text = path.read_text(encoding="ascii", errors="replace")
        if text and not text.endswith("\n"):  # a kill cut the last line off, and the next must not be glued to it
            with path.open("a", encoding="ascii") as journal:
                journal.write("\n")
        for line in text.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                if isinstance(record["entry"], dict) and "overlay" in record["entry"]:
                    yield str(record["key"]), record["entry"]

    def _write_result(self) -> None:
        result = {"note": NOT_A_MEDICAL_DEVICE, "groundings": list(self._entries.values())}
        temporary = self.folder / f".{RESULT}.tmp"
        with self._writing():
            temporary.write_text(json.dumps(result, indent=1), encoding="ascii")
            temporary.replace(self.folder / RESULT)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
