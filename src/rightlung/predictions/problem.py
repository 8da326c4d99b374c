"""What is wrong in a predictions file, and where: the part, the row, the key, the column."""

from __future__ import annotations

from dataclasses import dataclass

from rightlung.core import InputError
from rightlung.predictions.prediction import Key


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. ``row`` counts from 0 within the part's file, as ``DataFrame.iloc`` does.

    >>> print(Problem("part-00003.parquet", "value nan at cell 5", 17, "map", Key("a", "phrase:0", "none")))
    part-00003.parquet, row 17 (study 'a', query 'phrase:0', condition 'none'), column map: value nan at cell 5
    """

    part: str
    message: str
    row: int | None = None
    column: str | None = None
    key: Key | None = None

    def __str__(self) -> str:
        place = self.part
        if self.row is not None:
            place += f", row {self.row}"
        if self.key is not None:
            place += f" ({self.key})"
        if self.column is not None:
            place += f", column {self.column}"
        return f"{place}: {self.message}"


class PredictionError(InputError):
    """A predictions file is wrong; ``problem`` holds the place in parts, the message the same in one sentence."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def __reduce__(self) -> tuple[type[PredictionError], tuple[Problem]]:
        return type(self), (self.problem,)
