"""An index in use: an Arrow table mapped into memory, its ids as a sequence, and finding a row by its id.

Nothing here grows with the number of studies but what the operating system shares between processes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.keyed import key_number
from rightlung.studies.cache import PLACES, STUDIES

BATCH_ROWS = 8192
"""How many records are in memory while an index is built, and lie together in it."""


class Ids(Sequence[str]):
    """The ids of a source as a sequence that keeps no text of its own."""

    def __init__(self, index: Index, rows: NDArray[np.uint32] | None) -> None:
        self._index = index
        self._rows = rows

    def __len__(self) -> int:
        return self._index.count if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> list[str]: ...
    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return self._texts(range(*position.indices(len(self))))
        place = position + len(self) if position < 0 else position
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} ids; none at position {position}")
        return self._texts([place])[0]

    def _texts(self, positions: Sequence[int]) -> list[str]:
        wanted = np.asarray(positions, dtype=np.uint32)
        rows = np.ascontiguousarray(wanted if self._rows is None else self._rows[wanted])
        # pa.array(rows) does the same and imports pandas, where it is installed, into every worker.
        chosen = pa.Array.from_buffers(pa.uint32(), len(rows), [None, pa.py_buffer(rows)])
        texts: list[str] = self._index.table["id"].take(chosen).to_pylist()
        return texts

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BATCH_ROWS):
            yield from self._texts(range(start, min(start + BATCH_ROWS, len(self))))

    def __contains__(self, study_id: object) -> bool:
        row = self._index.row_of(study_id) if isinstance(study_id, str) else None
        return row is not None and (self._rows is None or bool((self._rows == row).any()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ids) or (isinstance(other, Sequence) and not isinstance(other, str)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self):,} ids>"


class Index:
    """An index as it is used: an Arrow table and the order of its ids' hashes, mapped from a folder or in memory."""

    def __init__(self, about: dict[str, Any], folder: Path | None, table: Any = None, places: Any = None) -> None:
        self.about = about
        self.folder = folder
        if folder is not None:
            table, places = _map(folder)
        self.table = table
        self._places: NDArray[np.uint64] = places
        self._batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._starts = [0]
        for batch in self._batches:
            self._starts.append(self._starts[-1] + batch.num_rows)
        self._splits: list[str] | None = None

    @property
    def count(self) -> int:
        """How many studies it has."""
        return self._starts[-1]

    def record(self, row: int) -> dict[str, Any]:
        """Return a row as Python values."""
        batch = bisect.bisect_right(self._starts, row) - 1
        found: dict[str, Any] = self._batches[batch].slice(row - self._starts[batch], 1).to_pylist()[0]
        return found

    def row_of(self, study_id: str) -> int | None:
        """Return the row of an id; ``None`` where there is none."""
        wanted = np.uint64(id_hash(study_id))
        hashes, rows = self._places
        place = int(np.searchsorted(hashes, wanted))
        while place < len(hashes) and hashes[place] == wanted:
            row = int(rows[place])
            if self.table["id"][row].as_py() == study_id:
                return row
            place += 1
        return None

    def rows_of_split(self, split: str) -> NDArray[np.uint32]:
        """Return the rows of a split, in order. (Arrow's own comparison would import pandas.)"""
        chosen = [np.zeros(0, dtype=np.bool_)]
        for chunk in self.table["split"].chunks:
            encoded = chunk.dictionary_encode("encode")  # nulls, too, have a code then
            names = encoded.dictionary.to_pylist()
            codes = np.frombuffer(encoded.indices.buffers()[1], np.int32, len(chunk), 4 * encoded.indices.offset)
            chosen.append(codes == (names.index(split) if split in names else -1))
        return np.flatnonzero(np.concatenate(chosen)).astype(np.uint32)

    def splits(self) -> list[str]:
        """Return the names of the splits there are."""
        if self._splits is None:
            self._splits = sorted(name for name in pc.unique(self.table["split"]).to_pylist() if name is not None)
        return self._splits

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is not None:
            return Index, (self.about, self.folder)
        return Index, (self.about, None, self.table, self._places)


def id_hash(study_id: str) -> int:
    """Return 64 bits that tell ids apart, the same in every process (Python's own hash is not)."""
    return key_number(study_id)


def _map(folder: Path) -> tuple[Any, NDArray[np.uint64]]:
    try:
        table = pa.ipc.open_file(pa.memory_map(str(folder / STUDIES))).read_all()
        return table, np.load(folder / PLACES, mmap_mode="r")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"index {folder} cannot be read ({error}); delete it and open the source again") from error


def id_places(hashes: list[int]) -> NDArray[np.uint64]:
    """Return the hashes in order, and the row that each belongs to."""
    values = np.array(hashes, dtype=np.uint64)
    order = np.argsort(values, kind="stable")
    return np.stack([values[order], order.astype(np.uint64)])
