"""The files of a predictions data set: their footers, and their rows in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.core import FrozenMapping, InputError
from rightlung.core.problem import Problem, ProblemError
from rightlung.predictions.schema import (
    ANSWER_COLUMNS,
    IMAGES_KEY,
    MAP_COLUMNS,
    MODEL_KEY,
    REQUIRED_COLUMNS,
    RUN_KEY,
    SCHEMA,
    SOURCE_KEY,
    VERSION_KEY,
    UnreadableTypeError,
    check_version,
    conform,
)  # fmt: skip

CELLS_PER_BATCH = 1 << 22
ROWS_PER_BATCH = 4096
"""Limits of a batch: 16 MiB of map cells, or this many rows."""

_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of the data set, as described by its footer."""

    path: Path
    rows: int
    version: int
    source: str | None
    model: str | None
    run: FrozenMapping[str, object] | None
    images: FrozenMapping[str, object]
    """The identities of image files by study (`Source.image_identity`), as they were when asked."""
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file name."""
        return self.path.name


def part_paths(path: Path) -> list[Path]:
    """Return the files of the data set at ``path``: ``*.parquet`` files that are not hidden."""
    try:
        if path.is_dir():
            parts = sorted(file for file in path.glob("*.parquet") if file.is_file() and file.name[0] not in "._")
            if not parts:
                raise InputError(f"{path}: the folder holds no predictions (no complete *.parquet part)")
            return parts
        if path.is_file():
            return [path]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    raise InputError(f"{path}: there is no such file or folder of predictions")


def inspect_part(path: Path) -> tuple[Part | None, list[Problem]]:
    """Read a part's footer; return its description and everything wrong with its version, columns and types."""
    try:
        with _open(path) as file:
            footer, schema = file.metadata, file.schema_arrow
    except _UNREADABLE as error:
        return None, [Problem(path.name, _broken(error))]
    metadata = footer.metadata or {}
    try:
        version = check_version(metadata.get(VERSION_KEY))
        run, images = (_json_object(metadata, key) for key in (RUN_KEY, IMAGES_KEY))
    except InputError as error:
        return None, [Problem(path.name, str(error))]
    problems = [*_column_problems(path.name, schema.names), *_type_problems(path.name, schema)]
    if problems:
        return None, problems
    said = {key: text.decode(errors="replace") for key, text in metadata.items()}
    columns = tuple(name for name in SCHEMA.names if name in schema.names)
    named = said.get(SOURCE_KEY), said.get(MODEL_KEY)
    return Part(path, footer.num_rows, version, *named, run, images or FrozenMapping(), columns), []


def read_rows(
    part: Part,
    columns: Sequence[str] = SCHEMA.names,
    problems: list[Problem] | None = None,
    only: NDArray[np.int64] | None = None,
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield row numbers and record batches of ``columns`` in the schema's types; missing columns are null.

    ``only`` are the numbers of the rows to read, sorted; row groups without any of them are skipped. A value that
    cannot be converted raises an error or, if ``problems`` is a list, is added to it and its row left out.
    """
    fields = [SCHEMA.field(name) for name in columns]
    start = 0
    try:
        with _open(part.path) as file:
            wanted = [name for name in columns if name in part.columns]
            for start, groups in _stretches(file, only):
                for given in file.iter_batches(_batch_rows(file, wanted, groups), groups, wanted):
                    rows = np.arange(start, start + given.num_rows)
                    start += given.num_rows
                    if only is not None:
                        there = np.isin(rows, only)
                        given, rows = given.filter(pa.array(there)), rows[there]
                    kept, arrays = _conform_rows(part, fields, given, rows, problems)
                    yield kept, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    except _UNREADABLE as error:
        problem = Problem(part.name, f"after row {start - 1}: {_broken(error)}" if start else _broken(error))
        if problems is None:
            raise ProblemError(problem) from None
        problems.append(problem)


def _stretches(file: Any, only: NDArray[np.int64] | None) -> Iterator[tuple[int, list[int]]]:
    """Yield the first row and the row groups of each stretch to read."""
    groups = [*range(file.num_row_groups)]
    if only is None:
        yield 0, groups
        return
    first = np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in groups)])
    for group in groups:
        begin, end = np.searchsorted(only, first[group : group + 2])
        if begin < end:
            yield int(first[group]), [group]


def _conform_rows(
    part: Part, fields: Sequence[Any], given: Any, rows: NDArray[np.int64], problems: list[Problem] | None
) -> tuple[NDArray[np.int64], list[Any]]:
    names = given.schema.names
    try:
        return rows, [
            conform(given.column(field.name), field.type) if field.name in names else pa.nulls(len(rows), field.type)
            for field in fields
        ]
    except UnreadableTypeError:
        pass
    # Find the faulty rows one by one.
    good = np.ones(len(rows), dtype=bool)
    for field in fields:
        for index in range(len(rows) if field.name in names else 0):
            try:
                conform(given.column(field.name).slice(index, 1), field.type)
            except UnreadableTypeError as error:
                problem = Problem(part.name, str(error), row=int(rows[index]), column=field.name)
                if problems is None:
                    raise ProblemError(problem) from None
                problems.append(problem)
                good[index] = False
    return _conform_rows(part, fields, given.filter(pa.array(good)), rows[good], problems)


def _open(path: Path) -> Any:
    # Without pre_buffer, which would load a file of one huge row group into memory.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)


def _batch_rows(file: Any, columns: Sequence[str], groups: Sequence[int]) -> int:
    """Return how many rows to read at once, given the number of map cells in each row group."""
    most = 1.0
    leaves = [index for index in range(len(file.schema)) if file.schema.column(index).path.split(".")[0] == "map"]
    for number in groups if "map" in columns else ():
        # Reading first: Arrow raises on a damaged footer then, but crashes if only metadata is accessed.
        next(file.iter_batches(1, row_groups=[number], columns=["map"]), None)
        group = file.metadata.row_group(number)
        most = max([most, *(group.column(index).num_values / max(group.num_rows, 1) for index in leaves)])
    return max(1, min(ROWS_PER_BATCH, int(CELLS_PER_BATCH / most)))


def _column_problems(part: str, names: Sequence[str]) -> Iterator[Problem]:
    for name in SCHEMA.names:
        if names.count(name) > 1:
            yield Problem(part, "the file has this column more than once", column=name)
    found = f"the file has: {', '.join(names) or 'no columns'}"
    for name in REQUIRED_COLUMNS:
        if name not in names:
            yield Problem(
                part, f"missing; a predictions file needs {', '.join(REQUIRED_COLUMNS)} ({found})", column=name
            )
    for name in MAP_COLUMNS:
        if name not in names and any(other in names for other in MAP_COLUMNS):
            yield Problem(part, f"missing; {', '.join(MAP_COLUMNS)} come together ({found})", column=name)
    if not any(name in names for name in ANSWER_COLUMNS):
        yield Problem(part, f"no column with answers; at least one of {', '.join(ANSWER_COLUMNS)} is needed ({found})")


def _type_problems(part: str, schema: Any) -> Iterator[Problem]:
    for field in SCHEMA:
        if schema.names.count(field.name) == 1:
            kind = schema.field(field.name).type
            try:
                conform(pa.array([], kind), field.type)
            except UnreadableTypeError as error:
                inner = "" if str(error) == f"{kind} cannot be read as {field.type}" else f" ({error})"
                yield Problem(part, f"type {kind} cannot be read as {field.type}{inner}", column=field.name)


def _json_object(metadata: Mapping[bytes, bytes], key: bytes) -> FrozenMapping[str, object] | None:
    if (written := metadata.get(key)) is None:
        return None
    what = f"the metadata under {key.decode()!r} must be"
    try:
        found = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{what} a JSON object; got {type(found).__name__}")
    return FrozenMapping(found)


def _broken(error: BaseException) -> str:
    reason = " ".join(str(error).split())
    return f"cannot be read as Parquet (damaged, truncated or of another format): {reason}"
