"""Small manifests, folders and archives, made anew for each test."""

import io
import json
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as PillowImage

from rightlung.core import InputError
from rightlung.studies import read_image

Row = Mapping[str, Any]
WriteData = Callable[..., str]
A, B = ({"id": name, "file": f"images/{name}.png"} for name in "ab")
T = TypeVar("T")


def there(value: T | None) -> T:
    """Return a value that must not be None."""
    assert value is not None
    return value


def encode(pixels: NDArray[Any], image_format: str = "PNG", **options: Any) -> bytes:
    """Return an array of grey values, or a boolean one, as a file."""
    buffer = io.BytesIO()
    PillowImage.fromarray(pixels).save(buffer, image_format, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk with its right checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_start(width: int, height: int, depth: int = 8, colour_type: int = 0, interlaced: int = 0) -> bytes:
    """Return the signature and header of a PNG file, and nothing else."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)


def png_file(start: bytes, body: bytes) -> bytes:
    """Return a PNG file with this start and these rows, not yet compressed."""
    return start + png_chunk(b"IDAT", zlib.compress(body)) + png_chunk(b"IEND", b"")


def manifest_bytes(rows: Iterable[Row | str | bytes]) -> bytes:
    """Return rows as lines; text and bytes stand as they are."""
    texts = (row if isinstance(row, str | bytes) else json.dumps(row) for row in rows)
    return b"".join((text if isinstance(text, bytes) else text.encode()) + b"\n" for text in texts)


@contextmanager
def peak_memory_below(limit: float) -> Iterator[None]:
    """Assert that what is done inside takes less memory than ``limit`` bytes at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


def refused_truncations(data: bytes) -> int:
    """Count the truncations of a file that are refused, with its name; those that are read must lose nothing."""
    whole, messages = read_image(data), []
    for length in range(len(data)):
        try:
            np.testing.assert_array_equal(read_image(data[:length], name="cut"), whole)
        except InputError as error:
            messages.append(str(error))
    assert all(message.startswith("cut ") for message in messages)
    return len(messages)


@pytest.fixture
def files() -> dict[str, bytes]:
    """Two images and two masks, 6 rows by 4 columns."""
    ramp = np.arange(24, dtype=np.uint8).reshape(6, 4)
    left, right = np.zeros((6, 4), dtype=bool), np.zeros((6, 4), dtype=bool)
    left[:, 0], right[:, 3] = True, True
    return {
        "images/a.png": encode(ramp),
        "images/b.png": encode(ramp * 10),
        "masks/left.png": encode(left),
        "masks/right.png": encode(right),
    }


@pytest.fixture
def write_folder(tmp_path: Path, files: dict[str, bytes]) -> WriteData:
    """Write a manifest's rows, and files beside it, to a folder; returns the folder."""

    def write(rows: Iterable[Row | str | bytes], more: Mapping[str, bytes] | None = None) -> str:
        folder = tmp_path / "folder"
        for name, content in {"manifest.jsonl": manifest_bytes(rows), **files, **(more or {})}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return str(folder)

    return write


@pytest.fixture
def write_tar(tmp_path: Path, files: dict[str, bytes]) -> WriteData:
    """Write a manifest's rows, files and further members to a tar archive, the manifest last; returns its path."""

    def write(
        rows: Iterable[Row | str | bytes],
        more: Mapping[str, bytes] | None = None,
        members: Iterable[tarfile.TarInfo] = (),
        prefix: str = "",
        mode: str = "w",
    ) -> str:
        path = tmp_path / "archive.tar"
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for member in members:
                archive.addfile(member)
            for name, content in {**files, **(more or {}), "manifest.jsonl": manifest_bytes(rows)}.items():
                member = tarfile.TarInfo(prefix + name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return str(path)

    return write


@pytest.fixture(params=["folder", "tar"])
def write_data(request: pytest.FixtureRequest, write_folder: WriteData, write_tar: WriteData) -> WriteData:
    """Either of the two ways to store data, which must read the same."""
    return write_folder if request.param == "folder" else write_tar
