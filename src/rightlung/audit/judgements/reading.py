"""Reading a table of judgements: every row is checked, a bad one is named and left out, the rest goes on.

CSV (or CSV packed by gzip) and Parquet hold the same columns. Rows whose three ratings are all empty are still to be
judged, as a planned table has them; rows with some of the three are half done and bad.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rightlung.audit.judgements.blinding import Key, blinding_fault
from rightlung.audit.judgements.instances import JudgedInstance, read_parquet
from rightlung.audit.judgements.judgement import (
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
from rightlung.core import InputError, Problem
from rightlung.core.errors import unknown_name
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


class _RowError(InputError):
    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


_Row = tuple[str, Mapping[str, str]]
"""Where a row stands, and its cells by column."""


def read_judgements(
    path: str | Path,
    *,
    key: Key | None = None,
    instances: Mapping[tuple[str, str], JudgedInstance] | None = None,
    names: Iterable[str] = (),
) -> Judgements:
    """Read and check a table of judgements.

    With ``key``, every code must be one of its; with ``instances``, every study and phrase. What is wrong with the
    table as a whole is an `InputError`: a missing column, versions that are mixed, and a table that is not blinded,
    where ``model`` is a name of the key's or of ``names``, or no code at all.
    """
    file = Path(path)
    problems: list[Problem] = []
    rows = list(_rows(file, problems))
    unreadable = len(problems)
    _check_versions(file, rows)
    _check_blinding(file, rows, key, tuple(names))
    checked = _Checker(key, instances)
    found: list[Judgement] = []
    open_rows = bad = 0
    for place, cells in rows:
        try:
            judgement = checked.judgement(place, cells)
        except _RowError as fault:
            unit, number = place.split()
            line, row = (int(number), None) if unit == "line" else (None, int(number))
            problems.append(Problem(file.name, str(fault), line, fault.field, row=row))
            bad += 1
            continue
        if judgement is None:
            open_rows += 1
        else:
            found.append(judgement)
    problems.sort(key=lambda problem: problem.line or problem.row or 0)
    return Judgements(file, tuple(found), open_rows, tuple(problems), bad + unreadable)


def _rows(path: Path, problems: list[Problem]) -> Iterator[_Row]:
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    table = Table(path, REQUIRED, problems=problems)
    _check_columns(path, [column for column in table.columns if column])
    for row in table:
        yield f"line {row.line}", {column: row.text(column) for column in table.columns if column}


def _parquet_rows(path: Path) -> Iterator[_Row]:
    table = read_parquet(path)
    for column in REQUIRED:
        if column not in table.column_names:
            raise InputError(f"{path} has no column {column!r}. It has: {', '.join(table.column_names)}")
    _check_columns(path, table.column_names)
    for position, row in enumerate(table.to_pylist()):
        yield f"row {position}", {name: _cell(value) for name, value in row.items()}


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


def _check_versions(path: Path, rows: Iterable[_Row]) -> None:
    """Refuse a table of a version that is not known, or of several: which rule a row follows must be certain."""
    seen: dict[str, str] = {}
    for place, cells in rows:
        seen.setdefault(cells["version"] if "version" in cells else str(VERSION), place)
    if len(seen) > 1:
        said = ", ".join(f"{version or 'none'} ({place})" for version, place in seen.items())
        raise InputError(f"{path}, field version: rows of several versions are mixed: {said}; keep them in files apart")
    for version, place in seen.items():
        if version != str(VERSION):
            raise InputError(
                f"{path}, {place}, field version: the table is of version {version or 'none'!s}, and this program "
                f"reads version {VERSION}"
            )


def _check_blinding(path: Path, rows: Iterable[_Row], key: Key | None, names: tuple[str, ...]) -> None:
    """Refuse a table that names a model: whoever filled it in could know it, and no row of it is blinded."""
    for place, cells in rows:
        if cells["model"] and (fault := blinding_fault(cells["model"], key, names)):
            raise InputError(f"{path}, {place}, field model: {fault}")


class _Checker:
    """Makes judgements of rows, one after another: it remembers what has been judged."""

    def __init__(self, key: Key | None, instances: Mapping[tuple[str, str], JudgedInstance] | None) -> None:
        self._key, self._instances = key, instances
        self._studies = None if instances is None else {study for study, _ in instances}
        self._seen: dict[tuple[str, tuple[str, str], str], str] = {}

    def judgement(self, place: str, cells: Mapping[str, str]) -> Judgement | None:
        """Return the row's judgement, ``None`` where it is still to be made."""
        annotator, study, prompt, model = (_filled(cells, name) for name in ("annotator", "study", "prompt", "model"))
        if self._key is not None and model not in self._key.models:
            codes = ", ".join(self._key.codes)
            raise _RowError("model", f"has the code {model!r}, which the key does not have. It has: {codes}")
        phrase = _phrase(cells["phrase"])
        self._check_known(study, phrase, prompt)
        order, judged_at = _order(cells.get("order", "")), _moment(cells.get("judged_at", ""))
        ratings = _ratings(cells)
        question = study, phrase or same_words(prompt)
        first = self._seen.setdefault((annotator, question, model), place)
        if first != place:
            raise _RowError(None, f"{annotator!r} judges {model!r} on the same prompt on {first} already, which counts")
        if ratings is None:
            return None
        return Judgement(
            annotator, study, phrase, prompt, model, *ratings, cells.get("comment", ""), judged_at, order
        )  # fmt: skip

    def _check_known(self, study: str, phrase: str, prompt: str) -> None:
        if self._instances is None or self._studies is None:
            return
        if study not in self._studies:
            raise _RowError("study", f"the instances have no study {study!r}")
        if phrase == CUSTOM:
            return
        instance = self._instances.get((study, phrase))
        if instance is None:
            raise _RowError("phrase", f"the instances of study {study!r} have no {phrase!r}")
        if same_words(instance.text) != same_words(prompt):
            raise _RowError("prompt", f"{phrase!r} of study {study!r} is {instance.text!r}; got {prompt!r}")


def _filled(cells: Mapping[str, str], name: str) -> str:
    if not cells[name]:
        raise _RowError(name, "is empty; every row must have it")
    return cells[name]


def _phrase(text: str) -> str:
    """Return the query of a phrase given by its index or its query; empty for a custom prompt.

    >>> _phrase("3"), _phrase("phrase:3"), _phrase("")
    ('phrase:3', 'phrase:3', '')
    """
    if not text or PHRASE_QUERY.fullmatch(text):
        return text
    query = phrase_query(int(text)) if text.isascii() and text.isdecimal() else ""
    if query != f"phrase:{text}":
        raise _RowError(
            "phrase", f"must be an index such as 3 or 'phrase:3', or empty for a custom prompt; got {text!r}"
        )
    return query


def _ratings(cells: Mapping[str, str]) -> tuple[int, int, int] | None:
    texts = {name: cells[name] for name in RATINGS}
    missing = [name for name, text in texts.items() if not text]
    if len(missing) == len(RATINGS):
        return None
    if missing:
        given = ", ".join(name for name in RATINGS if name not in missing)
        raise _RowError(missing[0], f"is empty although {given} is given: half a judgement")
    recall, precision, intuitiveness = (_rating(name, text) for name, text in texts.items())
    return recall, precision, intuitiveness


def _rating(name: str, text: str) -> int:
    whole = text.removesuffix(".0")  # spreadsheets write whole numbers so
    if not (whole.isascii() and whole.isdecimal() and SCALE[0] <= int(whole) <= SCALE[1]):
        raise _RowError(name, f"must be a whole number from {SCALE[0]} to {SCALE[1]}; got {text!r}")
    return int(whole)


def _order(text: str) -> int | None:
    if not text:
        return None
    whole = text.removesuffix(".0")
    if not (whole.isascii() and whole.isdecimal()):
        raise _RowError("order", f"must be a whole number of at least 0; got {text!r}")
    return int(whole)


def _moment(text: str) -> str:
    if text:
        try:
            datetime.datetime.fromisoformat(text)
        except ValueError:
            raise _RowError("judged_at", f"must be a date and time such as 2024-05-17T09:30:00; got {text!r}") from None
    return text
