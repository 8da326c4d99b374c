"""Seeded byte mutations of image files behind a valid header, so that the decoders are reached."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.studies import open_source, read_image
from tests.studies.conftest import A, WriteData, encode, png_file, png_start
from tests.studies.dicom_files import J2K_LOSSLESS, JPEG_BASELINE, RLE, compressed, dicom, gradient

GREY = gradient(33, 34, 255, "u1")
MUTATIONS = 150
PNG, JPEG = encode(GREY), encode(GREY, "JPEG", quality=90)
PIXEL_DATA = b"\xe0\x7f\x10\x00"
DICOM = {
    "native": dicom(gradient()),
    "rle": compressed(gradient(), RLE),
    "jpeg-2000": compressed(gradient(), J2K_LOSSLESS),
    "jpeg": compressed(GREY, JPEG_BASELINE, JPEG + b"\0" * (len(JPEG) % 2)),
}


def mutated(data: bytes, begin: int, seed: int) -> bytes:
    """Return a file with one to four short stretches behind ``begin`` changed, removed or repeated."""
    rng = np.random.default_rng(seed)
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        place, length = int(rng.integers(begin, len(changed))), int(rng.integers(1, 5))
        kind = rng.integers(4)
        old = bytes(changed[place : place + length])
        changed[place : place + length] = rng.bytes(length) if kind < 2 else old * 2 if kind == 2 else b""
    return bytes(changed)


def outcome(data: bytes) -> bool:
    """Return whether a file is read; what is read is an image, and what is not is refused in one line."""
    message, image = None, None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            image = read_image(data, name="file", force=True, max_pixels=10**6)
        except InputError as error:
            message = str(error)
    if image is None:
        assert message is not None
        assert message.startswith("file ")
        assert "\n" not in message
        return False
    assert image.dtype == np.float32
    assert image.ndim == 2
    assert 0 <= image.min() <= image.max() <= 1  # neither NaN nor infinite
    return True


def test_a_mutated_png_is_refused() -> None:
    files = (mutated(PNG, 8, seed) for seed in range(MUTATIONS))
    assert not any(outcome(data) for data in files if data != PNG)


def test_mutated_rows_of_a_png_with_right_checksums_are_read_or_refused() -> None:
    rows = b"".join(b"\0" + row.tobytes() for row in GREY)
    files = [png_file(png_start(34, 33), mutated(rows, 0, seed)) for seed in range(MUTATIONS)]
    assert {outcome(data) for data in files} == {True, False}


def test_mutated_jpeg_scans_are_read_or_refused() -> None:
    begin = JPEG.index(b"\xff\xda") + 10
    assert {outcome(mutated(JPEG, begin, seed)) for seed in range(MUTATIONS)} == {True, False}
    for seed in range(MUTATIONS):
        outcome(mutated(JPEG, 2, seed))


@pytest.mark.parametrize("name", DICOM)
def test_mutated_dicom_pixels_are_read_or_refused(name: str) -> None:
    begin = DICOM[name].index(PIXEL_DATA) + 12 + (0 if name == "native" else 16)  # behind the offset table, too
    read = [outcome(mutated(DICOM[name], begin, seed)) for seed in range(MUTATIONS)]
    assert outcome(DICOM[name])
    assert any(read)  # the decoder was reached
    assert not all(read)


def test_no_mutated_name_leads_out_of_the_archive_or_the_folder(write_data: WriteData, tmp_path: Path) -> None:
    secret = np.full((6, 4), 77, dtype=np.uint8)
    (tmp_path / "secret.png").write_bytes(encode(secret))
    parts = ["..", ".", "", "images", "a.png", "secret.png", "~", "%2e%2e", "..\\", "\\", str(tmp_path), "…", "a\0b"]
    rng = np.random.default_rng(0)
    names = ["/".join(rng.choice(parts, rng.integers(1, 6))) for _ in range(300)]
    rows = [{"id": str(number), "file": name} for number, name in enumerate(names)]
    source = open_source(f"manifest:{write_data([A, *rows])}")
    assert source[0].image.shape == (6, 4)
    assert len(source.problems) > 100
    for position in range(1, len(source)):
        name = names[int(source.ids[position])]
        with contextlib.suppress(InputError):  # a file that does not exist
            assert source[position].image.max() * 255 < 77
            assert Path(name.replace("\\", "/")).name == "a.png"
