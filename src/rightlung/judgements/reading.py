"""Reading a table of judgements: every row is checked, a bad one is named and left out, the rest goes on.

CSV (or CSV packed by gzip) and Parquet hold the same columns. Rows whose three ratings are all empty are still to be
judged, as in a planned table; rows with some of the three are incomplete and bad.
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
    """What a table holds: the judgements, how many rows are still to be judged, and the rows that are wrong."""

    judgements: tuple[Judgement, ...]
    open: int
    problems: tuple[Problem, ...]

    def __len__(self) -> int:
        return len(self.judgements)


def read_judgements(
    path: str | Path,
    *,
    key: BlindingKey | None = None,
    instances: Instances | None = None,
    names: Iterable[str] = (),
) -> Judgements:
    """Read and check a table of judgements.

    With ``key``, every code must be one of its codes; with ``instances``, every study and phrase must be one of them.
    What is wrong with the table as a whole is an `InputError`: a missing column, versions that are mixed, and a table
    that is not blinded, where ``model`` is a name in the key or among ``names``, or is not a code at all.
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
    """The cells of a row by column, and where it stands: a line of CSV, or a row of Parquet."""

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
            raise self.error(name, "is empty; every row must have it")
        return self.cells[name]

    def whole(self, name: str, low: int, high: float, which: str) -> int:
        text = self.cells[name]
        number = text.removesuffix(".0")  # spreadsheets write whole numbers this way
        if not (number.isascii() and number.isdecimal() and low <= int(number) <= high):
            raise self.error(name, f"must be a whole number {which}; got {text!r}")
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
            raise InputError(f"{path} has no column {missing[0]!r}. It has: {', '.join(columns)}")
        texts = ({name: _cell(value) for name, value in row.items()} for row in listed)
        rows = (_Row(path.name, cells, row=place) for place, cells in enumerate(texts))
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise InputError(f"{path}: {unknown_name('column', unknown[0], COLUMNS)}; put notes of your own into 'comment'")
    yield from rows


def _cell(value: Any) -> str:
    """Return a Parquet value as a CSV file would hold it; pandas makes 3.0 and NaN of whole numbers with gaps."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _check_whole(path: Path, rows: Iterable[_Row], key: BlindingKey | None, names: tuple[str, ...]) -> None:
    """Refuse a table of another version or of several, and one that names a model: no row of it is blinded."""
    places: dict[str, str] = {}
    for row in rows:
        places.setdefault(row.cells.get("version", str(VERSION)) or "none", row.place)
        if row.cells["model"] and (fault := blinding_fault(row.cells["model"], key, names)):
            raise InputError(f"{path}, {row.place}, field model: {fault}")
    listed = ", ".join(f"{version} ({place})" for version, place in places.items())
    if len(places) > 1:
        raise InputError(f"{path}, field version: rows of several versions are mixed: {listed}; use separate files")
    for version, place in places.items():
        if version != str(VERSION):
            read = f"the table is of version {version}, and this program reads version {VERSION}"
            raise InputError(f"{path}, {place}, field version: {read}")


def _judgement(
    row: _Row,
    key: BlindingKey | None,
    instances: Instances | None,
    seen: dict[tuple[str, tuple[str, str], str], _Row],
) -> Judgement | None:
    """Return the row's judgement, ``None`` where it is still to be made; ``seen`` are the rows before it."""
    annotator, study, prompt, model = (row.filled(name) for name in ("annotator", "study", "prompt", "model"))
    if key is not None and model not in key.models:
        raise row.error("model", f"has the code {model!r}, which the key does not have. It has: {', '.join(key.codes)}")
    phrase = _phrase(row)
    if instances is not None:
        _check_known(row, study, phrase, prompt, instances)
    order = row.whole("order", 0, math.inf, "of at least 0") if row.cells.get("order") else None
    judged_at = row.cells.get("judged_at", "")
    try:
        datetime.datetime.fromisoformat(judged_at or "2024-05-17")
    except ValueError:
        message = f"must be a date and time such as 2024-05-17T09:30:00; got {judged_at!r}"
        raise row.error("judged_at", message) from None
    ratings = _ratings(row)
    first = seen.setdefault((annotator, (study, phrase or same_words(prompt)), model), row)
    if first is not row:
        message = f"{annotator!r} judges {model!r} on the same prompt on {first.place} already, which counts"
        raise row.error(None, message)
    if ratings is None:
        return None
    comment = row.cells.get("comment", "")
    return Judgement(annotator, study, phrase, prompt, model, *ratings, comment, judged_at, order)


def _check_known(row: _Row, study: str, phrase: str, prompt: str, instances: Instances) -> None:
    instance = instances.get((study, phrase))
    if instance is None and not any(study == known for known, _ in instances):
        raise row.error("study", f"the instances have no study {study!r}")
    if instance is None and phrase:
        raise row.error("phrase", f"the instances of study {study!r} have no {phrase!r}")
    if instance is not None and same_words(instance.text) != same_words(prompt):
        raise row.error("prompt", f"{phrase!r} of study {study!r} is {instance.text!r}; got {prompt!r}")


def _phrase(row: _Row) -> str:
    """Return the query of a phrase given by index (``3``) or query (``phrase:3``), empty for a custom prompt."""
    text = row.cells["phrase"]
    if not text or PHRASE_QUERY.fullmatch(text):
        return text
    query = phrase_query(int(text)) if text.isascii() and text.isdecimal() else ""
    if query != f"phrase:{text}":
        message = f"must be an index such as 3 or 'phrase:3', or empty for a custom prompt; got {text!r}"
        raise row.error("phrase", message)
    return query


def _ratings(row: _Row) -> tuple[int, int, int] | None:
    missing = [name for name in RATINGS if not row.cells[name]]
    if len(missing) == len(RATINGS):
        return None
    if missing:
        given = ", ".join(name for name in RATINGS if name not in missing)
        raise row.error(missing[0], f"is empty although {given} is given: half a judgement")
    recall, precision, intuitiveness = (row.whole(name, *SCALE, f"from {SCALE[0]} to {SCALE[1]}") for name in RATINGS)
    return recall, precision, intuitiveness
