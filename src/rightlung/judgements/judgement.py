"""One judgement: what a person says about the heatmap that a model, whose name is hidden, draws for a prompt.

The three questions and their five answers are those of "That's the Wrong Lung!", section A.7.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rightlung.core.errors import InputError
from rightlung.core.files import write_whole

VERSION = 1
"""Version of the table's format; it goes up when a column changes its meaning or becomes required."""

RATINGS = ("recall", "precision", "intuitiveness")
SCALE = (1, 5)

CUSTOM = ""
"""The phrase of a prompt that the annotator wrote: none of the source's."""

REQUIRED = ("annotator", "study", "phrase", "prompt", "model", *RATINGS)
COLUMNS = ("version", "annotator", "order", *REQUIRED[1:], "comment", "judged_at")
"""As a planned table lays them out; a table may have them in any order."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A row of the table. ``phrase`` is the query as in a predictions file, such as ``phrase:3``, or `CUSTOM`.

    ``recall`` and ``precision`` are 1 to 5 for 0–20, 20–40, … 80–100 %; ``intuitiveness`` is 1 (worst) to 5 (best).
    """

    annotator: str
    study: str
    phrase: str
    prompt: str
    model: str
    recall: int
    precision: int
    intuitiveness: int
    comment: str = ""
    judged_at: str = ""
    order: int | None = None

    @property
    def custom(self) -> bool:
        """Whether the annotator wrote the prompt."""
        return self.phrase == CUSTOM

    @property
    def question(self) -> tuple[str, str]:
        """What was asked, whatever the model: study and query, or study and the words of a custom prompt."""
        return self.study, self.phrase or same_words(self.prompt)


def same_words(text: str) -> str:
    """Return a text without what does not make it another: case, blanks, the full stop at its end.

    >>> same_words(" Opacity in the  left base. ")
    'opacity in the left base'
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def refuse_existing(path: Path, what: str) -> None:
    """Refuse a path where something exists already: nobody's judgements are overwritten."""
    if os.path.lexists(path):
        raise InputError(f"{path}: the {what} is there already and is not written over; move it or name another")


def write_new_csv(path: Path, what: str, rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file that must not exist yet."""
    refuse_existing(path, what)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue())
