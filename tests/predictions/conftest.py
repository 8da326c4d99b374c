"""Values that the tests of the predictions file share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rightlung

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WriteTable = Callable[..., Path]


@pytest.fixture
def run_python() -> Run:
    """Run a script in a process of its own, with this rightlung."""

    def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        source = str(Path(str(rightlung.__file__)).parents[1])
        return subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def write_table(tmp_path: Path) -> WriteTable:
    """Write rows as a stranger's tool would: two good rows of 2 × 2 maps, changed or extended by keyword."""

    def write(name: str = "file.parquet", metadata: dict[str, str] | None = None, **changed: Any) -> Path:
        columns: dict[str, Any] = {
            "study": ["a", "b"], "query": ["phrase:0"] * 2, "condition": ["none"] * 2,
            "phrase": ["left effusion", "right effusion"], "map": [[0.0, 0.25, 0.5, 1.0], [1.0, 0.0, 0.0, 0.0]],
            "map_rows": [2, 2], "map_cols": [2, 2], **changed,
        }  # fmt: skip
        table = pa.table({name: values for name, values in columns.items() if values is not None})
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table.replace_schema_metadata(metadata), path)
        return path

    return write
