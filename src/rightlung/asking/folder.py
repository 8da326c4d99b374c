"""The predictions folder of a run: its rows, and which studies are finished.

What can be asked about a study is known only once it is built, which may mean rendering it. So a hidden list names the
studies whose rows are all on disk. It only saves time: without it, or if parts were removed since, the keys decide.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rightlung.predictions import Key, open_predictions
from rightlung.predictions.parts import read_rows
from rightlung.predictions.schema import KEY_COLUMNS

LIST = ".finished.jsonl"


class Failed(NamedTuple):
    """A row with an error instead of an answer."""

    key: Key
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The content of a predictions folder after `ask`."""

    folder: Path
    model: str
    source: str
    studies: int
    """Studies asked about, now or by an earlier call."""
    written: int
    """Rows written by this call."""
    reused: int
    """Answers of earlier calls that this call did not ask again."""
    reused_from: str | None
    """The date of these answers, or the first and the last date; None if unknown."""
    conditions: dict[str, int]
    """Rows in the folder by condition."""
    failed: tuple[Failed, ...]
    """Rows in the folder without an answer."""
    problems: tuple[str, ...]
    """Studies that could not be read."""
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows in the folder."""
        return sum(self.conditions.values())

    @property
    def complete(self) -> bool:
        """Whether every question of every study was answered."""
        return not self.failed and not self.problems


def count_rows(folder: Path) -> tuple[dict[str, int], tuple[Failed, ...]]:
    """Return the number of a folder's rows by condition, and those without an answer."""
    conditions: Counter[str] = Counter()
    failed: list[Failed] = []
    for part in open_predictions(folder).parts:
        for _, columns in read_rows(part, (*KEY_COLUMNS, "error")):
            conditions.update(columns.column("condition").to_pylist())
            rows = zip(*(column.to_pylist() for column in columns.columns), strict=True)
            failed += [Failed(Key(*key), error) for *key, error in rows if error is not None]
    return dict(conditions), tuple(failed)


class FinishedStudies:
    """The studies that were asked everything in ``asked``, such as ``phrases swap-sides``."""

    def __init__(self, folder: Path, asked: Iterable[str], rows: int) -> None:
        self._path, self._asked = folder / LIST, frozenset(asked)
        self._under: dict[str, frozenset[str]] = {}
        with contextlib.suppress(OSError):
            for text in self._path.read_text(encoding="ascii", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a line truncated by a kill
                    line = json.loads(text)
                    if int(line["rows"]) > rows:
                        self._under = {}
                        self._path.unlink()
                        return
                    for study in map(str, line["studies"]):
                        self._under[study] = self._under.get(study, frozenset()) | frozenset(line["asked"])

    def __contains__(self, study: object) -> bool:
        return self._asked <= self._under.get(str(study), frozenset())

    def add(self, studies: Iterable[str], but: Container[str], rows: int) -> None:
        """Add studies whose rows are on disk, except those in ``but``; there are ``rows`` answers on disk now."""
        if added := [study for study in studies if study not in but]:
            line = {"rows": rows, "asked": sorted(self._asked), "studies": added}
            with contextlib.suppress(OSError), self._path.open("a", encoding="ascii") as file:
                file.write(json.dumps(line) + "\n")
