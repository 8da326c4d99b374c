"""Files written as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.files import read_json, write_json, write_whole

__all__ = ["read_json", "read_table", "rounded", "write_json", "write_table"]

DECIMALS = 5
"""Decimals that measures are kept with: less than any interval is wide, and small on the disk."""


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]], schema: Any) -> None:
    """Write a Parquet file with these columns; floats come rounded from `rounded`."""
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    plain = [field.name for field in schema if field.name not in floats]

    def write(beside: Path) -> None:
        pq.write_table(
            table, beside, compression="zstd", compression_level=12, use_dictionary=plain, use_byte_stream_split=floats
        )

    write_whole(path, write)


def read_table(path: Path) -> dict[str, list[Any]]:
    """Read a Parquet file as columns."""
    try:
        columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error})") from None
    return columns


def rounded(values: NDArray[Any] | Sequence[float]) -> NDArray[np.float32]:
    """Return numbers as they are kept."""
    return np.round(np.asarray(values, dtype=np.float64), DECIMALS).astype(np.float32)
