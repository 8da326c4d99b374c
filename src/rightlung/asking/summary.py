"""What a predictions folder holds after a model was asked: how many rows, and which of them got no answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rightlung.predictions import Key, open_predictions
from rightlung.predictions.parts import read_rows
from rightlung.predictions.schema import KEY_COLUMNS


class Failed(NamedTuple):
    """A row that holds an error instead of an answer."""

    key: Key
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a predictions folder holds after `ask`."""

    folder: Path
    model: str
    source: str
    studies: int
    """Studies gone through, now or by an earlier call."""
    written: int
    """Rows written by this call."""
    conditions: dict[str, int]
    """Rows of the folder under each condition."""
    failed: tuple[Failed, ...]
    """Rows of the folder without an answer."""
    problems: tuple[str, ...]
    """Studies that could not be read, so that nothing was asked."""
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows in the folder."""
        return sum(self.conditions.values())

    @property
    def complete(self) -> bool:
        """Whether every question of every study got an answer."""
        return not self.failed and not self.problems


def count_rows(folder: Path) -> tuple[dict[str, int], tuple[Failed, ...]]:
    """Count a folder's rows by condition and collect those without an answer, whichever call wrote them."""
    conditions: dict[str, int] = {}
    failed: list[Failed] = []
    for part in open_predictions(folder).parts:
        for _, columns in read_rows(part, (*KEY_COLUMNS, "error")):
            for *key, error in zip(*(column.to_pylist() for column in columns.columns), strict=True):
                conditions[key[2]] = conditions.get(key[2], 0) + 1
                if error is not None:
                    failed.append(Failed(Key(*key), error))
    return conditions, tuple(failed)
