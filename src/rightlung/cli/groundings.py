"""The folder that ``rightlung ground`` writes: an overlay for each pair of image and phrase, and one JSON file.

Each grounding is appended to a hidden journal once its overlay is written, and ``groundings.json`` is made from the
journal at the end of every call. So an interrupted call loses nothing, and the next one continues.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.core import OutputError
from rightlung.core.files import folder_lock, not_written, write_json

RESULT = "groundings.json"
UNITS = {
    "box": "fractions of the image: left, top, right, bottom, from the top left corner",
    "score": "highest value of the map in the box, in the model's own unit, times (1 - abstention); not a probability. "
    "For a model that returns boxes, the model's own score.",
    "abstention": "0 (the model points at something) to 1 (the phrase is probably not in the image)",
    "peak": "fractions of the image: x from the left, y from the top; the patient's left is on the image's right",
}
"""What the numbers of a grounding mean."""
_JOURNAL = ".groundings.jsonl"
_LONGEST_PART = 32


def file_name(*shown: str, key: str) -> str:
    """Return a safe file name: the letters and digits of the given texts, and a hash of ``key``.

    >>> file_name("../../etc/passwd", "Effusion, left", key="k")
    'etc-passwd-effusion-left-3b65bdd33420.png'
    """
    parts = [re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_PART].strip("-") for text in shown]
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return "-".join([*(part for part in parts if part), digest]) + ".png"


class GroundingFolder:
    """A folder of groundings by key, locked by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.date = ""
        """When the folder was last written to, before this call."""
        self._entries: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> GroundingFolder:
        self._lock = folder_lock(self.folder, f"{self.folder}: another run is writing here; choose another folder")
        try:
            with self._writing():
                self._entries = dict(self._read())
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._entries or error is None:
                result = {"note": NOT_A_MEDICAL_DEVICE, "units": UNITS, "groundings": list(self._entries.values())}
                write_json(self.folder / RESULT, result)
        except OutputError:
            if error is None:
                raise
        finally:
            self._lock.release()

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the grounding of a key, or None if there is none or its overlay is missing."""
        entry = self._entries.get(key)
        return entry if entry is not None and (self.folder / str(entry["overlay"])).is_file() else None

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Add the grounding of a key, whose overlay is already written."""
        self._entries[key] = entry
        with self._writing(), (self.folder / _JOURNAL).open("a", encoding="ascii") as journal:
            journal.write(json.dumps({"key": key, "entry": entry}) + "\n")

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        path = self.folder / _JOURNAL
        if not path.exists():
            return
        self.date = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
        text = path.read_text(encoding="ascii", errors="replace")
        if text and not text.endswith("\n"):  # the process was killed while writing: start a new line
            with path.open("a", encoding="ascii") as journal:
                journal.write("\n")
        for line in text.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                if isinstance(record["entry"], dict) and "overlay" in record["entry"]:
                    yield str(record["key"]), record["entry"]

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_written(self.folder, error) from None
