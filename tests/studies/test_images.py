import io
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageFile

from rightlung.core import InputError
from rightlung.studies import read_image
from rightlung.studies.images import decode_image, read_mask
from tests.studies.conftest import encode, peak_memory_below, png_file, png_start, refused_truncations

RNG = np.random.default_rng(0)


def saved(image: PillowImage.Image, image_format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def refusal(source: str | os.PathLike[str] | bytes, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_image(source, **options)
    return str(caught.value)


@pytest.fixture
def noise() -> NDArray[np.uint8]:
    return RNG.integers(0, 256, (13, 9), dtype=np.uint8)


def test_sixteen_bit_grey_keeps_every_level() -> None:
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    image = read_image(encode(levels))
    assert len(np.unique(image)) == 65536
    np.testing.assert_allclose(image, levels / 65535, atol=1e-7)
    assert image.max() == 1.0


def test_one_bit_is_black_and_white(noise: NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(read_image(encode(noise > 99)), noise > 99)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P"])
def test_eight_bit_grey_is_divided_by_255_in_every_mode(mode: str, noise: NDArray[np.uint8]) -> None:
    image = read_image(saved(PillowImage.fromarray(noise).convert(mode)))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image, np.float32(noise) / np.float32(255))


@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_colour_becomes_luma(mode: str) -> None:
    picture = PillowImage.new("RGB", (2, 3), (200, 100, 50))
    image = read_image(saved(picture if mode == "RGB" else picture.quantize(2)))
    assert image.shape == (3, 2)
    np.testing.assert_allclose(image, (0.299 * 200 + 0.587 * 100 + 0.114 * 50) / 255, atol=0.5 / 255)


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (255, 255, 255, 51)), ("LA", (255, 51))])
def test_transparency_lies_over_black(mode: str, colour: tuple[int, ...]) -> None:
    assert read_image(saved(PillowImage.new(mode, (1, 1), colour)))[0, 0] == pytest.approx(0.2)


@pytest.mark.parametrize(("mode", "transparency", "colour"), [("L", 200, 200), ("RGB", (9, 9, 9), (9, 9, 9))])
def test_a_transparent_colour_is_black(mode: str, transparency: object, colour: Any) -> None:
    picture = PillowImage.new(mode, (2, 1), colour)
    picture.putpixel((1, 0), 100 if mode == "L" else (100, 100, 100))
    image = read_image(saved(picture, transparency=transparency))
    np.testing.assert_allclose(image, [[0, 100 / 255]])


def test_sixteen_bit_colour_is_read_at_eight_bits() -> None:
    data = png_file(png_start(1, 1, 16, 2), b"\0" + b"\xff\x00" * 3)
    assert read_image(data)[0, 0] == pytest.approx(255 / 255)


def test_jpeg_is_read() -> None:
    smooth = np.linspace(0, 255, 64 * 48).reshape(64, 48).astype(np.uint8)
    np.testing.assert_allclose(read_image(encode(smooth, "JPEG", quality=95)), smooth / 255, atol=0.02)


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [(1, (0, 0)), (2, (0, -1)), (3, (-1, -1)), (4, (-1, 0)), (5, (0, 0)), (6, (0, -1)), (7, (-1, -1)), (8, (-1, 0))],
)
@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_exif_orientation_is_applied_and_said(image_format: str, orientation: int, corner: tuple[int, int]) -> None:
    # Where the stored top left corner belongs, by the table in the EXIF specification.
    stored = np.zeros((32, 64), dtype=np.uint8)
    stored[:8, :8] = 255
    exif = PillowImage.Exif()
    exif[0x0112] = orientation
    found = decode_image(encode(stored, image_format, exif=exif))
    image = found.image
    assert bool(found.notes) == (orientation != 1)
    assert all(f"according to its EXIF orientation ({orientation})" in note for note in found.notes)
    assert image.shape == ((32, 64) if orientation < 5 else (64, 32))
    corners = {(row, column): image[row, column] for row in (0, -1) for column in (0, -1)}
    assert max(corners, key=lambda place: corners[place]) == corner


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\x7f"])
@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_broken_exif_does_not_cost_the_image(noise: NDArray[np.uint8], exif: bytes, image_format: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_image(encode(noise, image_format, exif=exif)).shape == noise.shape


def huge_jpeg() -> bytes:
    data = bytearray(encode(np.eye(9, dtype=np.uint8), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = (60_000).to_bytes(2, "big") * 2
    return bytes(data)


@pytest.mark.parametrize("data", [png_start(60_000, 60_000), huge_jpeg()], ids=["PNG", "JPEG"])
def test_header_of_a_huge_image_is_refused_before_decoding(data: bytes) -> None:
    with peak_memory_below(2**20):
        message = refusal(data, name="big")
    assert "big has 60,000 x 60,000 pixels" in message
    assert "100,000,000" in message


def test_valid_bomb_is_refused_before_decoding(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_file(png_start(12_000, 12_000), bytes(12_001 * 12_000)))
    assert path.stat().st_size < 200_000
    with peak_memory_below(2**20):
        message = refusal(path)
    assert message.startswith(f"{path} has 12,000 x 12,000 pixels (144,000,000)")


def test_pillows_own_limit_neither_warns_nor_raises(noise: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PillowImage, "MAX_IMAGE_PIXELS", 10)
    assert read_image(encode(noise)).shape == noise.shape
    assert read_image(encode(noise, "JPEG")).shape == noise.shape


def test_limits_can_be_set(noise: NDArray[np.uint8]) -> None:
    data = encode(noise)
    assert read_image(data, max_pixels=noise.size).shape == noise.shape
    assert "more than the limit of 116" in refusal(data, max_pixels=noise.size - 1)
    assert "more than the limit of 10" in refusal(data, max_bytes=10)


def test_sparse_file_of_ten_gigabytes_is_refused_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "sparse.png"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)
    assert "10,737,418,240 bytes, more than the limit" in refusal(path)


@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_every_truncation_is_refused_or_loses_nothing(image_format: str) -> None:
    data = encode(RNG.integers(0, 256, (24, 24), dtype=np.uint8), image_format)
    assert refused_truncations(data) >= len(data) - 2


def test_png_with_half_its_rows_is_refused() -> None:
    # The stream ends in good order and every checksum is right; Pillow alone returns a half-black image.
    data = png_file(png_start(64, 64), (b"\0" + b"\xc8" * 64) * 32)
    assert np.asarray(PillowImage.open(io.BytesIO(data)))[-1].max() == 0
    assert "truncated: it holds 2,080 of 4,160 bytes" in refusal(data)


@given(st.data())
def test_a_png_with_a_changed_byte_is_refused(data: st.DataObject) -> None:
    whole = saved(PillowImage.fromarray(np.arange(144, dtype=np.uint8).reshape(12, 12)))
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InputError):
        read_image(bytes(changed))


DICOM = bytes(128) + b"DICM"
SYNTAX = b"\x02\0\x10\0UI\x14\x001.2.840.10008.1.2.1\0"


@pytest.mark.parametrize("start", [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", DICOM, DICOM + SYNTAX])
@given(rest=st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_input_errors(start: bytes, rest: bytes) -> None:
    with pytest.raises(InputError):
        read_image(start + rest)


def test_interlaced_png_is_read() -> None:
    # Adam7 of a 3 x 3 image by hand: passes 1, 4 (none wide enough), 5, 6, 7 with their pixels in row-major order.
    pixels = np.arange(1, 10, dtype=np.uint8).reshape(3, 3)
    passes = [[[1]], [[3]], [[7, 9]], [[2], [8]], [[4, 5, 6]]]
    body = b"".join(b"\0" + bytes(row) for rows in passes for row in rows)
    start = png_start(3, 3, interlaced=1)
    np.testing.assert_array_equal(read_image(png_file(start, body)), pixels / np.float32(255))
    assert "truncated" in refusal(png_file(start, body[:-1]))


def test_truncated_images_are_not_let_through_by_pillows_switch(
    noise: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert "LOAD_TRUNCATED_IMAGES" in refusal(encode(noise, "JPEG"))
    assert "truncated" in refusal(encode(noise)[:-30])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello, world", "is not an image in PNG, JPEG or DICOM format"),
        (b"GIF89a" + bytes(50), "is not an image in PNG, JPEG or DICOM format"),
        *((encode(np.eye(9, dtype=np.uint8), other), "is not an image in PNG, JPEG or DICOM format")
          for other in ("BMP", "GIF", "TIFF", "WEBP")),
        (bytes(128) + b"DICM" + bytes(50), "is a DICOM file without an image"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_image_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file.png"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith(f"{path} {reason}")
    assert "\n" not in message


def test_cmyk_is_refused() -> None:
    assert "colour mode CMYK" in refusal(saved(PillowImage.new("CMYK", (4, 4)), "JPEG"))


def test_a_folder_and_a_missing_file_and_a_strange_path_are_named(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is a folder, not a file"
    assert refusal(tmp_path / "no.png") == f"{tmp_path / 'no.png'} does not exist"
    assert "cannot be opened" in refusal("a\0b.png")
    with pytest.raises(InputError, match="a path or bytes; got int"):
        read_image(3)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(b"x")
    path.chmod(0)
    assert "Permission denied" in refusal(path)


def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "pipe.png"
    os.mkfifo(path)
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(refusal(path)), daemon=True)
    thread.start()
    thread.join(5)
    assert answers == [f"{path} is not a regular file"]


def test_mask_is_set_where_anything_is_neither_zero_nor_transparent() -> None:
    expected = np.array([[False, True], [True, False]])
    dark_blue = np.zeros((2, 2, 3), dtype=np.uint8)
    dark_blue[expected] = (0, 0, 1)
    for stored in (expected, expected.astype(np.uint8), expected.astype(np.uint16), dark_blue):
        assert np.array_equal(read_mask(encode(stored)).pixels, expected)
    assert not read_mask(saved(PillowImage.new("RGBA", (2, 2), (255, 0, 0, 0))))


def test_a_mask_is_turned_like_an_image() -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = 2
    stored = np.array([[True, False, False]])
    assert read_mask(encode(stored, exif=exif)).pixels.tolist() == [[False, False, True]]


def test_a_jpeg_mask_is_refused(noise: NDArray[np.uint8]) -> None:
    with pytest.raises(InputError, match="a mask must be PNG"):
        read_mask(encode(noise, "JPEG"))
