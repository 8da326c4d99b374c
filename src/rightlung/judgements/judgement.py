"""One judgement: a person's ratings of the heatmap that a blinded model made for a prompt.

The three questions and five-point scales are those of "That's the Wrong Lung!", section A.7.
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
"""Version of the table format; increased when a column changes its meaning or becomes required."""

RATINGS = ("recall", "precision", "intuitiveness")
SCALE = (1, 5)

CUSTOM = ""
"""Value of ``phrase`` for a prompt that the annotator wrote."""

REQUIRED = ("annotator", "study", "phrase", "prompt", "model", *RATINGS)
COLUMNS = ("version", "annotator", "order", *REQUIRED[1:], "comment", "judged_at")
"""Column order of a planned table; a table to read may have any order."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A row of the table. ``phrase`` is a query as in a predictions file, such as ``phrase:3``, or `CUSTOM`.

    ``recall`` and ``precision`` from 1 to 5 mean 0–20, 20–40, … 80–100 %; ``intuitiveness`` is 1 (worst) to 5 (best).
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
        """The study with the query, or with the words of a custom prompt."""
        return self.study, self.phrase or same_words(self.prompt)


def same_words(text: str) -> str:
    """Return a text in lower case, with single spaces and without a final full stop.

    >>> same_words(" Opacity in the  left base. ")
    'opacity in the left base'
    """
    return " ".join(text.casefold().split()).rstrip(" .")


def refuse_existing(path: Path, what: str) -> None:
    """Raise an error if the path exists, so that no judgements are overwritten."""
    if os.path.lexists(path):
        raise InputError(f"{path}: this {what} exists already and is not overwritten; move it or choose another name")


def write_new_csv(path: Path, what: str, rows: Iterable[Sequence[object]]) -> None:
    """Write a new CSV file; raise an error if it exists."""
    refuse_existing(path, what)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue())
