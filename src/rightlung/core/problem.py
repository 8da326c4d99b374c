"""A problem in a file, and its location. The row is left out and reading continues."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as made

from rightlung.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file. Lines of text files count from 1, rows of Parquet files from 0 (as ``DataFrame.iloc``).

    >>> print(Problem("manifest.jsonl", "a box must have four numbers", 3000, "boxes[2].box"))
    manifest.jsonl, line 3000, field boxes[2].box: a box must have four numbers
    >>> print(Problem("part-00003.parquet", "value nan at cell 5", row=17, column="map", key="study 'a'"))
    part-00003.parquet, row 17 (study 'a'), column map: value nan at cell 5
    """

    file: str
    message: str
    line: int | None = None
    field: str | None = None
    kind: str | None = made(default=None, compare=False)
    """The name of a check in `rightlung.studies.checks.issue`, if known."""
    row: int | None = made(default=None, kw_only=True)
    column: str | None = made(default=None, kw_only=True)
    key: object = made(default=None, kw_only=True)

    @property
    def place(self) -> str | None:
        """The line or the row, None if unknown."""
        if self.line is not None:
            return f"line {self.line}"
        return None if self.row is None else f"row {self.row}"

    def __str__(self) -> str:
        parts = [self.file, self.place] if self.place else [self.file]
        if self.key is not None:
            parts[-1] = f"{parts[-1]} ({self.key})"
        parts += [f"{name} {value}" for name in ("field", "column") if (value := getattr(self, name)) is not None]
        return f"{', '.join(map(str, parts))}: {self.message}"


class ProblemError(InputError):
    """An `InputError` about one place in a file, with the `Problem` as ``problem``."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    def __reduce__(self) -> tuple[type[ProblemError], tuple[Problem]]:
        return type(self), (self.problem,)
