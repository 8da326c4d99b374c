"""Fixture trees of data sets, and a cache of its own for each test."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

WriteTable = Callable[..., Path]
WriteImage = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which indexes are kept during a test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RIGHTLUNG_CACHE", str(folder))
    return folder


@pytest.fixture
def write_table(tmp_path: Path) -> WriteTable:
    """Write a CSV file below the test's folder: a header and rows, each a line of text or a list of cells."""

    def write(name: str, header: str, rows: Sequence[str | Sequence[object]], line_end: str = "\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [header, *(row if isinstance(row, str) else ",".join(map(str, row)) for row in rows)]
        data = "".join(line + line_end for line in lines).encode()
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def write_image(tmp_path: Path) -> WriteImage:
    """Write a small grey image below the test's folder, each name with its own grey value."""

    def write(name: str, size: tuple[int, int] = (6, 4), value: int = 100) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full(size, value, dtype=np.uint8)
        buffer = io.BytesIO()
        PillowImage.fromarray(pixels).save(buffer, "JPEG" if path.suffix == ".jpg" else "PNG")
        path.write_bytes(buffer.getvalue())
        return path

    return write


@pytest.fixture
def write_text(tmp_path: Path) -> Callable[[Mapping[str, str]], None]:
    """Write text files below the test's folder."""

    def write(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    return write
