"""Reading a table of judgements: every row is checked, a bad one is named and left out, the rest goes on.

CSV (or CSV packed by gzip) and Parquet hold the same columns. Rows whose three ratings are all empty are still to be
judged, as in a planned table; rows with some of the three are incomplete and bad.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core import InputError, Problem
from rightlung.core.errors import unknown_name
from rightlung.core.problem import ProblemError
from rightlung.judgements.blinding import BlindingKey, blinding_fault
from rightlung.judgements.instances import JudgedInstance
from rightlung.judgements.judgement import (
    COLUMNS,
    CUSTOM,
    OPTIONAL,
    RATINGS,
    REQUIRED,
    SCALE,
    VERSION,
    Judgement,
    same_words,
)
from rightlung.predictions import phrase_query
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.studies.tables import Table


@dataclass(frozen=True)
class Judgements:
    """What a table holds: the judgements, how many rows are still to be judged, and the rows that are wrong."""

    path: Path
    judgements: tuple[Judgement, ...]
    open: int
    problems: tuple[Problem, ...]
    bad_rows: int

    def __len__(self) -> int:
        return len(self.judgements)


@dataclass(frozen=True)
class _Row:
    """The cells of a row by column, and where it stands: a line of CSV, or a row of Parquet."""

    path: Path
    cells: Mapping[str, str]
    line: int | None = None
    row: int | None = None

    def problem(self, field: str | None, message: str) -> Problem:
        return Problem(self.path.name, message, self.line, field, row=self.row)

    @property
    def place(self) -> str:
        return self.problem(None, "").place or ""

    def error(self, field: str | None, message: str) -> ProblemError:
        """Build the error that leaves this row out."""
        return ProblemError(self.problem(field, message))

    def refusal(self, field: str, message: str) -> InputError:
        """Build the error that refuses the whole table because of this row."""
        return InputError(f"{self.path}, {self.place}, field {field}: {message}")

    def filled(self, name: str) -> str:
        if not self.cells[name]:
            raise self.error(name, "is empty; every row must have it")
        return self.cells[name]

    def whole(self, name: str, low: int, high: float, must: str) -> int:
        text = self.cells[name]
        whole = text.removesuffix(".0")  # spreadsheets write whole numbers this way
        if not (whole.isascii() and whole.isdecimal() and low <= int(whole) <= high):
            raise self.error(name, f"must be a whole number {must}; got {text!r}")
        return int(whole)


def read_judgements(
    path: str | Path,
    *,
    key: BlindingKey | None = None,
    instances: Mapping[tuple[str, str], JudgedInstance] | None = None,
    names: Iterable[str] = (),
) -> Judgements:
    """Read and check a table of judgements.

    With ``key``, every code must be one of its codes; with ``instances``, every study and phrase must be one of them.
    What is wrong with the table as a whole is an `InputError`: a missing column, versions that are mixed, and a table
    that is not blinded, where ``model`` is a name in the key or among ``names``, or is not a code at all.
    """
    file = Path(path)
    problems: list[Problem] = []
    rows = list(_parquet_rows(file) if file.suffix == ".parquet" else _csv_rows(file, problems))
    _check_versions(file, rows)
    known = tuple(names)
    for row in rows:
        if row.cells["model"] and (fault := blinding_fault(row.cells["model"], key, known)):
            raise row.refusal("model", fault)
    checker = _Checker(key, instances)
    found: list[Judgement | None] = []
    for row in rows:
        try:
            found.append(checker.judgement(row))
        except ProblemError as error:
            problems.append(error.problem)
    problems.sort(key=lambda problem: problem.line or problem.row or 0)
    judged = tuple(one for one in found if one is not None)
    return Judgements(file, judged, len(found) - len(judged), tuple(problems), len(problems))


def _csv_rows(path: Path, problems: list[Problem]) -> Iterator[_Row]:
    table = Table(path, REQUIRED, problems=problems)
    columns = [column for column in table.columns if column]
    _check_columns(path, columns)
    for row in table:
        yield _Row(path, {column: row.text(column) for column in columns}, line=row.line)


def _parquet_rows(path: Path) -> Iterator[_Row]:
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error})") from None
    for column in REQUIRED:
        if column not in table.column_names:
            raise InputError(f"{path} has no column {column!r}. It has: {', '.join(table.column_names)}")
    _check_columns(path, table.column_names)
    for position, row in enumerate(table.to_pylist()):
        yield _Row(path, {name: _cell(value) for name, value in row.items()}, row=position)


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    for column in columns:
        if column not in COLUMNS:
            near = str(unknown_name("column", column, (*REQUIRED, *OPTIONAL)))
            raise InputError(f"{path}: {near}; put notes of your own into 'comment'")


def _cell(value: Any) -> str:
    """Return a Parquet value as a CSV file would hold it; pandas makes 3.0 and NaN of whole numbers with gaps."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _check_versions(path: Path, rows: Sequence[_Row]) -> None:
    """Refuse a table of a version that is not known, or of several: which rules a row follows must be certain."""
    seen: dict[str, _Row] = {}
    for row in rows:
        seen.setdefault(row.cells.get("version", str(VERSION)), row)
    if len(seen) > 1:
        listed = ", ".join(f"{version or 'none'} ({row.place})" for version, row in seen.items())
        raise InputError(
            f"{path}, field version: rows of several versions are mixed: {listed}; keep them in separate files"
        )
    for version, row in seen.items():
        if version != str(VERSION):
            raise row.refusal(
                "version",
                f"the table is of version {version or 'none'}, and this program reads version {VERSION}",
            )


class _Checker:
    """Makes judgements from rows, one after another; it remembers what has been judged."""

    def __init__(self, key: BlindingKey | None, instances: Mapping[tuple[str, str], JudgedInstance] | None) -> None:
        self._key, self._instances = key, instances
        self._studies = {study for study, _ in instances or ()}
        self._seen: dict[tuple[str, tuple[str, str], str], _Row] = {}

    def judgement(self, row: _Row) -> Judgement | None:
        """Return the row's judgement, ``None`` where it is still to be made."""
        annotator, study, prompt, model = (row.filled(name) for name in ("annotator", "study", "prompt", "model"))
        if self._key is not None and model not in self._key.models:
            codes = ", ".join(self._key.codes)
            raise row.error("model", f"has the code {model!r}, which the key does not have. It has: {codes}")
        phrase = _phrase(row)
        self._check_known(row, study, phrase, prompt)
        order = row.whole("order", 0, math.inf, "of at least 0") if row.cells.get("order") else None
        judged_at = _moment(row)
        ratings = _ratings(row)
        question = study, phrase or same_words(prompt)
        first = self._seen.setdefault((annotator, question, model), row)
        if first is not row:
            raise row.error(
                None, f"{annotator!r} judges {model!r} on the same prompt on {first.place} already, which counts"
            )
        if ratings is None:
            return None
        comment = row.cells.get("comment", "")
        return Judgement(annotator, study, phrase, prompt, model, *ratings, comment, judged_at, order)

    def _check_known(self, row: _Row, study: str, phrase: str, prompt: str) -> None:
        if self._instances is None:
            return
        if study not in self._studies:
            raise row.error("study", f"the instances have no study {study!r}")
        if phrase == CUSTOM:
            return
        instance = self._instances.get((study, phrase))
        if instance is None:
            raise row.error("phrase", f"the instances of study {study!r} have no {phrase!r}")
        if same_words(instance.text) != same_words(prompt):
            raise row.error("prompt", f"{phrase!r} of study {study!r} is {instance.text!r}; got {prompt!r}")


def _phrase(row: _Row) -> str:
    """Return the query of a phrase given by its index (``3``) or its query (``phrase:3``); empty for a custom prompt."""
    text = row.cells["phrase"]
    if not text or PHRASE_QUERY.fullmatch(text):
        return text
    query = phrase_query(int(text)) if text.isascii() and text.isdecimal() else ""
    if query != f"phrase:{text}":
        raise row.error(
            "phrase", f"must be an index such as 3 or 'phrase:3', or empty for a custom prompt; got {text!r}"
        )
    return query


def _ratings(row: _Row) -> list[int] | None:
    missing = [name for name in RATINGS if not row.cells[name]]
    if len(missing) == len(RATINGS):
        return None
    if missing:
        given = ", ".join(name for name in RATINGS if name not in missing)
        raise row.error(missing[0], f"is empty although {given} is given: half a judgement")
    return [row.whole(name, *SCALE, f"from {SCALE[0]} to {SCALE[1]}") for name in RATINGS]


def _moment(row: _Row) -> str:
    text = row.cells.get("judged_at", "")
    if text:
        try:
            datetime.datetime.fromisoformat(text)
        except ValueError:
            raise row.error("judged_at", f"must be a date and time such as 2024-05-17T09:30:00; got {text!r}") from None
    return text
