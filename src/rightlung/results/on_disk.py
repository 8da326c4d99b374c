"""An instances table on disk, of which only the columns that are asked for are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray


class TableOnDisk:
    """Reads the columns and rows of a Parquet file as a ``pyarrow.Table`` gives them.

    Whatever else a table can do reads all of it.
    """

    def __init__(self, path: str | Path, names: Mapping[str, str] | None = None) -> None:
        """Open a file; with ``names`` it has these columns only, each under the name in the file that follows it."""
        self.path = path
        with pq.ParquetFile(path) as file:
            whole, self.num_rows = file.schema_arrow, file.metadata.num_rows
        self._names = {name: name for name in whole.names} if names is None else dict(names)
        fields = [whole.field(stored).with_name(name) for name, stored in self._names.items()]
        self.schema = pa.schema(fields, whole.metadata)

    def __len__(self) -> int:
        return int(self.num_rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(), name)

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""
        return [*self._names]

    def column(self, name: str) -> Any:
        """Return one column."""
        return self.select([name]).column(0)

    def __getitem__(self, name: str) -> Any:
        return self.column(name)

    def select(self, names: Sequence[str]) -> Any:
        """Return some columns as a table."""
        stored = [self._names[name] for name in names]
        found = pq.read_table(self.path, columns=[*dict.fromkeys(stored)], memory_map=True)
        return pa.table({name: found.column(one) for name, one in zip(names, stored, strict=True)}).combine_chunks()

    def read(self) -> Any:
        """Return the whole table."""
        return self.select(self.column_names).replace_schema_metadata(self.schema.metadata)

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Any:
        """Return some rows, in the order given."""
        wanted, order = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
        stored, parts, begin = [*self._names.values()], [], 0
        with pq.ParquetFile(self.path, memory_map=True) as file:
            for group in range(file.num_row_groups):
                end = begin + file.metadata.row_group(group).num_rows
                some = wanted[(wanted >= begin) & (wanted < end)] - begin
                if len(some):
                    parts.append(file.read_row_group(group, columns=stored).take(some))
                begin = end
        found = pa.concat_tables(parts).select(stored).rename_columns(self.column_names) if parts else self.read()
        return found.take(order)

    def view(self, names: Mapping[str, str]) -> TableOnDisk:
        """Return some columns under other names, ``{name: column}``."""
        return TableOnDisk(self.path, {name: self._names[stored] for name, stored in names.items()})

    def pieces(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield some columns as tables, one for each row group."""
        with pq.ParquetFile(self.path, memory_map=True) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=[self._names[name] for name in names])

    def combine_chunks(self) -> Self:
        """Return itself: every column comes in one piece."""
        return self
