"""Write predictions so that a kill loses at most one part, and a rerun continues.

A part is written under a hidden temporary name, synced and then renamed, so that every ``.parquet`` file is complete.
One writer at a time locks the folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from rightlung.core import InputError, OutputError
from rightlung.core.files import folder_lock, not_written, temporary_path, write_whole
from rightlung.core.problem import ProblemError
from rightlung.predictions.batch import to_table
from rightlung.predictions.parts import Part, inspect_part, read_rows
from rightlung.predictions.prediction import Prediction, check_text, digest
from rightlung.predictions.reader import read_keys
from rightlung.predictions.schema import IMAGES_KEY, MODEL_KEY, RUN_KEY, SCHEMA_VERSION, SOURCE_KEY, VERSION_KEY

CELLS_PER_PART = 1 << 24
"""Map cells per part: 64 MiB."""

OTHERWISE = "choose another folder, or replace these answers with --overwrite"
_PART = re.compile(r"part-(\d{5,})\.parquet")
_UNFINISHED = temporary_path(Path("part-*.parquet")).name


class DoneKeys:
    """The keys of finished rows. Stores 16 bytes per key."""

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._digests = frozenset(digests)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and len(key) == 3 and digest(*key) in self._digests

    def __len__(self) -> int:
        return len(self._digests)


class PredictionWriter(AbstractContextManager["PredictionWriter"]):
    """Writes parts ``part-00000.parquet``, ``part-00001.parquet``, … into ``folder``, continuing an earlier run.

    ``done`` holds the keys that were answered when the writer opened; `write` skips them. A key given twice to one
    writer is an error. A new row replaces an earlier one with an error. With ``overwrite`` the first new part replaces
    all earlier ones. The next part records ``images``, the identities of image files by study.

    A part is written after ``rows_per_part`` rows, when its first row is ``seconds_per_part`` old (checked by `write`),
    at `flush`, and at the end of the ``with`` block, also after an exception. If a part cannot be written
    (`OutputError`), its rows stay here and a later `flush` writes them.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        source: str,
        model: str,
        rows_per_part: int = 1000,
        seconds_per_part: float = 60.0,
        run: Mapping[str, object] | None = None,
        overwrite: bool = False,
    ) -> None:
        if rows_per_part < 1:
            raise InputError(f"rows_per_part must be at least 1; got {rows_per_part}")
        if not seconds_per_part > 0:
            raise InputError(f"seconds_per_part must be positive; got {seconds_per_part}")
        self.folder = Path(folder)
        texts = {SOURCE_KEY: check_text(source, "source"), MODEL_KEY: check_text(model, "model")}
        self._metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode()} | {
            key: text.encode() for key, text in texts.items()
        }
        if run is not None:
            try:
                self._metadata[RUN_KEY] = json.dumps(dict(run), sort_keys=True, allow_nan=False).encode()
            except (TypeError, ValueError) as error:
                raise InputError(f"run must be serialisable as JSON: {error}") from None
        self._rows_per_part, self._seconds_per_part = rows_per_part, seconds_per_part
        self.images: dict[str, str] = {}
        self._rows: list[Prediction] = []
        self._cells = 0
        self._oldest = 0.0
        self._renamed: tuple[Path, list[Prediction], int] | None = None
        self._given: set[bytes] = set()
        busy = f"{self.folder}: another run is writing here; wait for it, or choose another folder"
        self._lock = folder_lock(self.folder, busy)  # not inherited by forked processes
        try:
            files = _part_files(self.folder)
            self._outdated = files if overwrite else []
            self.parts = [] if overwrite else [_checked(path, source, model) for path in files]
            self._failed: list[tuple[Part, set[bytes]]] = []
            self.done = DoneKeys(self._answered())
        except BaseException:
            self._lock.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except OutputError as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # keep the first cause visible

    def __contains__(self, key: object) -> bool:
        return key in self.done or (isinstance(key, tuple) and len(key) == 3 and digest(*key) in self._given)

    def write(self, prediction: Prediction) -> None:
        """Add a prediction; write a part if it is due. If that fails, the prediction is kept."""
        if not self._lock.held:
            raise OutputError(f"{self.folder}: this writer is closed")
        if not isinstance(prediction, Prediction):
            raise InputError(f"a PredictionWriter writes Prediction values; got {prediction!r}")
        if prediction.key in self.done:
            return
        mark = digest(*prediction.key)
        if mark in self._given:
            raise InputError(f"{self.folder}: a prediction for {prediction.key} was already written in this run")
        if not self._rows:
            self._oldest, self._cells = time.monotonic(), 0
        self._rows.append(prediction)
        self._given.add(mark)
        self._cells += prediction.cells
        waited = time.monotonic() - self._oldest
        if len(self._rows) >= self._rows_per_part or self._cells >= CELLS_PER_PART or waited >= self._seconds_per_part:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows as one part and sync it."""
        if not self._lock.held:
            return
        self._forget_renamed()
        rows = self._rows
        if not rows:
            return
        metadata = self._metadata | ({IMAGES_KEY: json.dumps(self.images).encode()} if self.images else {})
        table = to_table(rows, metadata)
        self._remove_replaced({digest(*row.key) for row in rows})
        numbers = [int(match[1]) for file in self.folder.iterdir() if (match := _PART.fullmatch(file.name))]
        part = self.folder / f"part-{max(numbers, default=-1) + 1:05d}.parquet"
        self._renamed = (part, rows, len(rows))
        try:
            _write_part(part, table)
        finally:
            self._forget_renamed()

    def close(self) -> None:
        """Write the waiting rows and unlock the folder, even if writing fails."""
        try:
            self.flush()
        finally:
            self._lock.release()

    def _forget_renamed(self) -> None:
        """Drop the rows of a part that is complete.

        Checks the disk instead of a flag, so that an interrupt right after renaming does not write the rows twice.
        """
        if self._renamed is not None:
            part, rows, count = self._renamed
            if self._rows is rows and part.exists():
                self._rows = rows[count:]
                self.images.clear()

    def _answered(self) -> Iterator[bytes]:
        """Yield the keys of earlier rows with an answer, and note those with an error."""
        for part in self.parts:
            failed: set[bytes] = set()
            for mark, error in _keys_and_errors(part):
                if error is None:
                    yield mark
                else:
                    failed.add(mark)
            self._failed.append((part, failed))

    def _remove_replaced(self, marks: set[bytes]) -> None:
        """Remove earlier rows with an error that new rows replace, and outdated parts. A kill here loses no answer."""
        try:
            for path in self._outdated:
                path.unlink(missing_ok=True)
            self._outdated = []
            for part, failed in self._failed:
                if gone := failed & marks:
                    kept = [error is None or mark not in gone for mark, error in _keys_and_errors(part)]
                    if any(kept):
                        with pq.ParquetFile(part.path, page_checksum_verification=True) as file:
                            table = file.read().filter(pa.array(kept))
                        _write_part(part.path, table)
                    else:
                        part.path.unlink()
                    failed -= gone
        except OSError as error:
            raise not_written(self.folder, error) from None


def _write_part(path: Path, table: pa.Table) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table, buffer, compression="zstd", write_page_checksum=True,
        use_dictionary=["study", "query", "condition", "phrase", "error"], row_group_size=len(table),
    )  # fmt: skip
    write_whole(path, memoryview(buffer.getvalue()), durable=True)


def _keys_and_errors(part: Part) -> Iterator[tuple[bytes, str | None]]:
    errors = (error for _, rows in read_rows(part, ["error"]) for error in rows.column(0).to_pylist())
    for (_, key), error in zip(read_keys(part), errors, strict=True):
        yield digest(*key), error


def _part_files(folder: Path) -> list[Path]:
    """Remove unfinished files of a killed run and return the complete parts; other files are an error."""
    try:
        for leftover in folder.glob(_UNFINISHED):
            leftover.unlink()
        files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    except OSError as error:
        raise not_written(folder, error) from None
    for file in files:
        if not _PART.fullmatch(file.name):
            raise OutputError(f"{folder}: holds {file.name!r}, which is not a predictions part; choose an empty folder")
    return files


def _checked(path: Path, source: str, model: str) -> Part:
    """Return a part of this model and source; any other is an error."""
    part, problems = inspect_part(path)
    if part is None:
        raise ProblemError(problems[0])
    for what, before, now in (("model", part.model, model), ("source", part.source, source)):
        if before != now:
            raise InputError(f"{path}: holds predictions of {what} {before!r}, not {now!r}; {OTHERWISE}")
    return part
