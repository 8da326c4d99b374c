"""What a predictions folder holds after a model was asked: how many rows, and which of them got no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rightlung.core import InputError
from rightlung.predictions.parts import Part, read_rows
from rightlung.predictions.prediction import Key
from rightlung.predictions.reader import open_predictions
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
    rows: int
    """Rows in the folder; ``written`` of them by this call."""
    written: int
    conditions: dict[str, int]
    """Rows under each condition."""
    failed: tuple[Failed, ...]
    """Rows of the folder without an answer."""
    problems: tuple[str, ...]
    """Studies that could not be read, so that nothing was asked."""
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every question of every study got an answer."""
        return not self.failed and not self.problems


def summarise(
    folder: Path, *, model: str, source: str, studies: int, written: int, problems: Sequence[str], notes: Sequence[str]
) -> Summary:
    """Count a folder's rows and collect those without an answer, whichever call wrote them."""
    failed: list[Failed] = []
    conditions: dict[str, int] = {}
    rows = 0
    for part in _parts(folder):
        for _, columns in read_rows(part, (*KEY_COLUMNS, "error")):
            for *key, error in zip(*(column.to_pylist() for column in columns.columns), strict=True):
                rows += 1
                conditions[key[2]] = conditions.get(key[2], 0) + 1
                if error is not None:
                    failed.append(Failed(Key(*key), error))
    return Summary(
        folder, model, source, studies, rows, written, conditions, tuple(failed), tuple(dict.fromkeys(problems)),
        tuple(notes),
    )  # fmt: skip


def _parts(folder: Path) -> Sequence[Part]:
    try:
        return open_predictions(folder).parts
    except InputError:  # not one study could be read, so there is no part
        return ()
