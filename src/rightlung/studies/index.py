"""Sources backed by tables on disk: indexed once, then memory-mapped, so that 227,000 studies open instantly.

A reader returns the files that its index is made from (`IndexedSource._inputs`), yields a record per study
(`IndexedSource._records`) and makes a study from a record (`IndexedSource._build_study`). This module does the rest:
cache, ``split`` and ``limit``, ids, lookup by id, pickling. Data-loader workers receive only the path of the index and
share the pages of one Arrow file.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Study
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.core.progress import ProgressBars
from rightlung.studies.cache import STUDIES, entry_folder, note, read_about, store
from rightlung.studies.sources import Address, Source
from rightlung.studies.trees import existing_path

BATCH_ROWS = 8192
"""Records per batch while an index is built and stored."""
PATIENCE_SECONDS = 2.0
"""How long an index may take before progress is shown."""
_STEPS_BETWEEN_LOOKS = 500
_SAME_SPLITS = ({"val", "valid", "validate", "validation"}, {"train", "train_val"})
"""Names of one split; an address may use any of them."""
_OWN = {"id": "string", "split": "string", "file": "string", "line": "int64"}


class BuildLog:
    """Collects problems and skipped images of an index, and shows progress on standard error."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.problems: list[Problem] = []
        self.left_out_by_reason: Counter[str] = Counter()
        self._done = 0
        self._began = monotonic()
        self._bars = ProgressBars(note)

    def left_out(self, reason: str, count: int = 1) -> None:
        """Count images that are skipped on purpose, such as lateral views."""
        self.left_out_by_reason[reason] += count
        self.step(count)

    def step(self, count: int = 1) -> None:
        """Count rows or files that have been processed."""
        before = self._done // _STEPS_BETWEEN_LOOKS
        self._done += count
        is_time = self._done // _STEPS_BETWEEN_LOOKS != before
        if is_time and monotonic() - self._began > PATIENCE_SECONDS:
            self._bars(f"indexing {self.what} (first time only)", self._done, None)

    def __enter__(self) -> BuildLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.close()


class IndexedSource(Source):
    """Studies with indexed records. See the head of this module for what a reader implements."""

    version: ClassVar[int] = 1
    """Increase when the same inputs give another index."""
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit")
    index_options: ClassVar[tuple[str, ...]] = ()
    """Parameters that change the index, besides the inputs."""
    columns: ClassVar[Mapping[str, Any]] = {}
    """Columns of a record besides ``id``, ``split``, ``file`` and ``line``: Arrow types, or their names."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        self.reader = address.scheme
        address.check_parameters(self.parameters)
        self._limit = address.whole_number("limit", minimum=1)
        self._split = address.parameters.get("split")
        self.options = {name: text for name, text in address.parameters.items() if name not in ("split", "limit")}
        if not address.path:
            raise InputError(f"address {address} needs a path: {self.reader}:/path/to/data")
        self.root = existing_path(address.path, address.path)
        self._index = _open_index(self)
        self.left_out: Mapping[str, int] = self._index.about["left_out"]
        """Images that were skipped on purpose, counted by reason."""
        self.problems = [Problem(*parts) for parts in self._index.about["problems"]]
        self._check_some()

    # Implemented by readers.

    @abstractmethod
    def _inputs(self) -> Sequence[Path]:
        """Return the files and folders that the index is made from; raise `InputError` if one is missing."""

    @abstractmethod
    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        """Yield one record per study, in the data set's order; missing keys are null."""

    @abstractmethod
    def _build_study(self, record: dict[str, Any]) -> Study:
        """Return the study of a record."""

    # Provided to readers.

    def problem(
        self, record: Mapping[str, Any], field: str | None, message: str, kind: str | None = None
    ) -> ProblemError:
        """Return the error for a fault of a record, with its file and line."""
        return ProblemError(
            Problem(record.get("file") or f"study {record['id']!r}", message, record.get("line"), field, kind)
        )

    def place(self, study_id: str) -> tuple[str, int | None] | None:
        """Return the file and line of a study's record."""
        position = self._position(study_id)
        record = {} if position is None else self.record(position)
        return (record["file"], record.get("line")) if record.get("file") else None

    @cached_property
    def _rows(self) -> Sequence[int]:
        """The rows of the requested split, up to the limit, in order."""
        rows: Sequence[int] = range(self._index.count)
        if self._split is not None:
            splits = self._index.column("split")
            same = (names for names in _SAME_SPLITS if self._split in names and self._split not in splits)
            wanted = next(same, {self._split})
            rows = array("L", (row for row, name in enumerate(splits) if name in wanted))
        return rows[: self._limit]

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        every = self._index.column("id")
        return [every[row] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def record(self, position: int) -> dict[str, Any]:
        """Return the record of the study at a position."""
        return self._index.record(self._rows[position])

    def _build(self, position: int) -> Study:
        return self._build_study(self.record(position))

    def _check_some(self) -> None:
        first = f"; {len(self.problems):,} rows have problems, the first: {self.problems[0]}" if self.problems else ""
        if not self._index.count:
            counted = ", ".join(f"{count:,} skipped ({reason})" for reason, count in self.left_out.items())
            raise InputError(f"{self.address} has no usable study" + (f"; {counted}" if counted else "") + first)
        if not self._rows:
            splits = {name for name in self._index.column("split") if name is not None}
            if not splits:
                raise InputError(f"{self.address} has no splits; remove split={self._split}")
            raise unknown_name("split", str(self._split), splits)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be recomputed from the index."""
        return {name: value for name, value in super().__getstate__().items() if name not in ("_rows", "ids")}


class Index:
    """An open index: an Arrow table, memory-mapped or in memory, and its description."""

    def __init__(self, about: dict[str, Any], folder: Path | None, table: Any = None) -> None:
        self.about, self.folder = about, folder
        if folder is not None:
            try:
                table = pa.ipc.open_file(pa.memory_map(str(folder / STUDIES))).read_all()
            except (OSError, pa.ArrowException) as error:
                trouble = f"index {folder} cannot be read ({error}); delete it and open the source again"
                raise InputError(trouble) from error
        self.table = table
        self.count: int = table.num_rows
        self._batches = table.to_batches()

    def record(self, row: int) -> dict[str, Any]:
        """Return a row as Python values."""
        batch, place = divmod(row, self._batches[0].num_rows)  # all have as many rows but the last
        found: dict[str, Any] = self._batches[batch].slice(place, 1).to_pylist()[0]
        return found

    def column(self, name: str) -> list[Any]:
        """Return all values of a column."""
        values: list[Any] = self.table[name].to_pylist()
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return Index, (self.about, self.folder, self.table if self.folder is None else None)


def _open_index(source: IndexedSource) -> Index:
    """Return the index of a source, building it if it is not in the cache."""
    inputs = [*source._inputs()]
    options = {name: source.options[name] for name in source.index_options if name in source.options}
    entry = entry_folder(source.reader, source.version, source.root, options, inputs)
    about = read_about(entry)
    if about is not None:
        try:
            return Index(about, entry)
        except InputError:
            note(f"index {entry} is damaged and is rebuilt")
            shutil.rmtree(entry, ignore_errors=True)
    types = {**_OWN, **source.columns}
    schema = pa.schema(
        [(name, pa.type_for_alias(kind) if isinstance(kind, str) else kind) for name, kind in types.items()]
    )
    with BuildLog(source.address) as log:
        table = pa.Table.from_batches(_batches(source, log, schema), schema)
    problems = [[one.file, one.message, one.line, one.field, one.kind] for one in log.problems]
    left_out = dict(log.left_out_by_reason)
    about = {"reader": source.reader, "root": str(source.root), "left_out": left_out, "problems": problems}
    return Index(about, store(entry, table, about), table)


def _batches(source: IndexedSource, log: BuildLog, schema: Any) -> Iterator[Any]:
    """Yield the records in batches, without duplicate ids."""
    seen: set[str] = set()
    rows: list[Mapping[str, Any]] = []
    try:
        for record in source._records(log):
            study_id = record["id"]
            log.step()
            if study_id in seen:
                file, message = record.get("file") or source.reader, f"{study_id!r} is a duplicate"
                log.problems.append(Problem(file, message, record.get("line"), "id", "duplicate-id"))
                continue
            seen.add(study_id)
            rows.append(record)
            if len(rows) == BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema)
                rows.clear()
    except OSError as error:  # such as a disk that was unplugged
        raise InputError(f"{error.filename or source.root} cannot be read: {error.strerror or error}") from error
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)
