"""Read a table of judgements and check every row. Bad rows are reported and left out.

CSV (also gzipped) and Parquet have the same columns. A row without any rating is still to be judged, as in a planned
table; a row with some of the three ratings is bad.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core import InputError, Problem
from rightlung.core.errors import unknown_name
from rightlung.core.problem import ProblemError
from rightlung.judgements.blinding import BlindingKey, blinding_fault
from rightlung.judgements.judgement import COLUMNS, RATINGS, REQUIRED, SCALE, VERSION, Judgement, same_words
from rightlung.judgements.measures import Instances
from rightlung.predictions import phrase_query
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.studies.tables import CsvTable


@dataclass(frozen=True)
class Judgements:
    """The judgements of a table, the number of rows still to be judged, and the problems of bad rows."""

    judgements: tuple[Judgement, ...]
    open: int
    problems: tuple[Problem, ...]

    def __len__(self) -> int:
        return len(self.judgements)


def read_judgements(
    path: str | Path, *, key: BlindingKey | None = None, instances: Instances | None = None, names: Iterable[str] = ()
) -> Judgements:
    """Read and check a table of judgements.

    With ``key``, every code must be in the key; with ``instances``, every study and phrase must be among them. Raises
    `InputError` for problems of the whole table: a missing column, mixed versions, or a ``model`` that is not a code or
    is a model name of the key or of ``names`` (the table is not blinded).
    """
    file = Path(path)
    problems: list[Problem] = []
    rows = list(_rows(file, problems))
    _check_whole(file, rows, key, tuple(names))
    seen: dict[tuple[str, tuple[str, str], str], _Row] = {}
    found: list[Judgement | None] = []
    for row in rows:
        try:
            found.append(_judgement(row, key, instances, seen))
        except ProblemError as error:
            problems.append(error.problem)
    problems.sort(key=lambda problem: problem.line or problem.row or 0)
    judged = tuple(one for one in found if one is not None)
    return Judgements(judged, len(found) - len(judged), tuple(problems))


@dataclass(frozen=True)
class _Row:
    """The cells of a row by column, and its line in a CSV file or its row in a Parquet file."""

    file: str
    cells: Mapping[str, str]
    line: int | None = None
    row: int | None = None

    def error(self, field: str | None, message: str) -> ProblemError:
        return ProblemError(Problem(self.file, message, self.line, field, row=self.row))

    @property
    def place(self) -> str:
        return self.error(None, "").problem.place or ""

    def filled(self, name: str) -> str:
        if not self.cells[name]:
            raise self.error(name, "is empty; a value is required")
        return self.cells[name]

    def whole(self, name: str, low: int, high: float, which: str) -> int:
        text = self.cells[name]
        number = text.removesuffix(".0")  # spreadsheets write whole numbers this way
        if not (number.isascii() and number.isdecimal() and low <= int(number) <= high):
            raise self.error(name, f"expected a whole number {which}; got {text!r}")
        return int(number)


def _rows(path: Path, problems: list[Problem]) -> Iterator[_Row]:
    if path.suffix != ".parquet":
        table = CsvTable(path, REQUIRED, problems=problems)
        columns = [column for column in table.columns if column]
        rows = (_Row(path.name, {name: row.text(name) for name in columns}, line=row.line) for row in table)
    else:
        try:
            content = pq.ParquetFile(path).read()
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: cannot be read as Parquet ({error})") from None
        columns, listed = content.column_names, content.to_pylist()
        if missing := [name for name in REQUIRED if name not in columns]:
            raise InputError(f"{path}: column {missing[0]!r} is missing; found {', '.join(columns)}")
        texts = ({name: _cell(value) for name, value in row.items()} for row in listed)
        rows = (_Row(path.name, cells, row=place) for place, cells in enumerate(texts))
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise InputError(f"{path}: {unknown_name('column', unknown[0], COLUMNS)}; use the column 'comment' for notes")
    yield from rows


def _cell(value: Any) -> str:
    """Return a Parquet value as CSV text; pandas stores whole numbers with gaps as 3.0 and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _check_whole(path: Path, rows: Iterable[_Row], key: BlindingKey | None, names: tuple[str, ...]) -> None:
    """Raise an error for a table of an unknown version or of several versions, or one that is not blinded."""
    places: dict[str, str] = {}
    for row in rows:
        places.setdefault(row.cells.get("version", str(VERSION)) or "none", row.place)
        if row.cells["model"] and (fault := blinding_fault(row.cells["model"], key, names)):
            raise InputError(f"{path}, {row.place}, field model: {fault}")
    listed = ", ".join(f"{version} ({place})" for version, place in places.items())
    if len(places) > 1:
        raise InputError(f"{path}, field version: rows have different versions: {listed}; use separate files")
    for version, place in places.items():
        if version != str(VERSION):
            raise InputError(f"{path}, {place}, field version: expected {VERSION}; got {version}")


def _judgement(
    row: _Row, key: BlindingKey | None, instances: Instances | None, seen: dict[tuple[str, tuple[str, str], str], _Row]
) -> Judgement | None:
    """Return the judgement of a row, ``None`` if it is still to be made. ``seen`` has the rows before it."""
    annotator, study, prompt, model = (row.filled(name) for name in ("annotator", "study", "prompt", "model"))
    if key is not None and model not in key.models:
        raise row.error("model", f"the key has no code {model!r}; it has {', '.join(key.codes)}")
    phrase = _phrase(row)
    if instances is not None:
        _check_known(row, study, phrase, prompt, instances)
    order = row.whole("order", 0, math.inf, "of at least 0") if row.cells.get("order") else None
    judged_at = row.cells.get("judged_at", "")
    try:
        datetime.datetime.fromisoformat(judged_at or "2024-05-17")
    except ValueError:
        message = f"expected a date and time such as 2024-05-17T09:30:00; got {judged_at!r}"
        raise row.error("judged_at", message) from None
    ratings = _ratings(row)
    first = seen.setdefault((annotator, (study, phrase or same_words(prompt)), model), row)
    if first is not row:
        message = f"{annotator!r} has judged {model!r} on this prompt already, on {first.place}; only that row counts"
        raise row.error(None, message)
    if ratings is None:
        return None
    comment = row.cells.get("comment", "")
    return Judgement(annotator, study, phrase, prompt, model, *ratings, comment, judged_at, order)


def _check_known(row: _Row, study: str, phrase: str, prompt: str, instances: Instances) -> None:
    instance = instances.get((study, phrase))
    if instance is None and not any(study == known for known, _ in instances):
        raise row.error("study", f"the measured studies do not include {study!r}")
    if instance is None and phrase:
        raise row.error("phrase", f"study {study!r} has no measured {phrase!r}")
    if instance is not None and same_words(instance.text) != same_words(prompt):
        raise row.error("prompt", f"{phrase!r} of study {study!r} is {instance.text!r}; got {prompt!r}")


def _phrase(row: _Row) -> str:
    """Return the query of a phrase given by index (``3``) or query (``phrase:3``), empty for a custom prompt."""
    text = row.cells["phrase"]
    if not text or PHRASE_QUERY.fullmatch(text):
        return text
    query = phrase_query(int(text)) if text.isascii() and text.isdecimal() else ""
    if query != f"phrase:{text}":
        message = f"expected an index such as 3 or 'phrase:3', or nothing for a custom prompt; got {text!r}"
        raise row.error("phrase", message)
    return query


def _ratings(row: _Row) -> tuple[int, int, int] | None:
    missing = [name for name in RATINGS if not row.cells[name]]
    if len(missing) == len(RATINGS):
        return None
    if missing:
        given = ", ".join(name for name in RATINGS if name not in missing)
        raise row.error(missing[0], f"is empty although {given} is given; fill in all three ratings or none")
    recall, precision, intuitiveness = (row.whole(name, *SCALE, f"from {SCALE[0]} to {SCALE[1]}") for name in RATINGS)
    return recall, precision, intuitiveness
