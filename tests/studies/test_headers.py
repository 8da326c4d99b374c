"""Sizes and header facts of image files against what the files were written with."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rightlung.core import InputError
from rightlung.studies.headers import read_header, years
from rightlung.studies.images import read_image
from tests.studies.conftest import encode
from tests.studies.readers.published import write_dicom

BROKEN = b"\0" * 128 + b"DICM" + b"\xff" * 50


@pytest.mark.parametrize(
    ("suffix", "turn", "size"),
    [("png", 1, (7, 5)), ("png", 8, (5, 7)), ("png", 2, (7, 5)), ("jpg", 1, (7, 5)), ("jpg", 6, (5, 7))],
)
def test_size_is_height_and_width_of_the_upright_image(
    tmp_path: Path, suffix: str, turn: int, size: tuple[int, int]
) -> None:
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(np.zeros((7, 5), dtype=np.uint8)).save(path, exif=exif)
    assert read_header(path, "a").size == size == read_image(path).shape


def test_dicom_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_dicom(path, (7, 5), PatientAge="006M", PatientSex="o", ViewPosition="pa", PatientID="secret")
    header = read_header(path, "a")
    assert (header.size, header.age, header.sex, header.view) == ((7, 5), 0.5, "O", "PA")
    assert "secret" not in repr(header)


@pytest.mark.parametrize(("written", "view"), [("AP", "AP"), ("lateral", "lateral"), ("SMITH JANE", None), ("", None)])
def test_only_known_views_are_repeated(tmp_path: Path, written: str, view: str | None) -> None:
    path = tmp_path / "a.dcm"
    write_dicom(path, ViewPosition=written)
    header = read_header(path, "a")
    assert header.view == view
    assert "SMITH" not in repr(header).upper()


def test_a_dicom_file_without_preamble_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_dicom(path, (7, 5), ViewPosition="PA")
    path.write_bytes(path.read_bytes()[132:])
    assert read_header(path, "a").size == (7, 5) == read_image(path).shape


def test_the_parsers_error_is_not_attached(tmp_path: Path) -> None:
    """It may quote what stands in the header, and a traceback would print it."""
    path = tmp_path / "a.dcm"
    path.write_bytes(BROKEN)
    with pytest.raises(InputError) as caught:
        read_header(path, "a")
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_the_size_is_of_the_stored_pixels_where_they_are_not_square(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    write_dicom(path, (10, 10), PixelSpacing=["0.2", "0.1"])
    assert read_header(path, "a").size == (10, 10)
    assert read_image(path).shape == (20, 10)


@pytest.mark.parametrize(
    ("text", "age"),
    [("043Y", 43.0), ("43", 43.0), ("", None), ("000Y", None), ("0", 0.0), ("052W", 52 * 7 / 365.25), ("x", None),
     ("999Y", None)],
)  # fmt: skip
def test_ages(text: str, age: float | None) -> None:
    assert years(text) == (None if age is None else pytest.approx(age))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"GIF89a", "not an image in DICOM, PNG or JPEG format"),
        (BROKEN, "not a readable DICOM file"),
        (encode(np.zeros((7, 5), np.uint8), "JPEG")[:30], "not a readable JPEG"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^that file is {sentence}"):
        read_header(path, "that file")
    with pytest.raises(InputError, match="does not exist"):
        read_header(tmp_path / "b.png", "that file")
