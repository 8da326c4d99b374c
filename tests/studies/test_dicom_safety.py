"""Hostile DICOM files and patients' identifiers: nothing but an `InputError` comes out, and nobody's name."""

import logging
import struct
import threading
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightlung.core import InputError
from rightlung.studies import read_image
from rightlung.studies.dicom import DicomImage, read_dicom
from rightlung.studies.dicom.frames import _unpacked_bits
from tests.studies.conftest import encode, peak_memory_below, refused_truncations
from tests.studies.dicom_files import (
    J2K_LOSSLESS,
    JPEG_BASELINE,
    JPEG_LOSSLESS,
    RLE,
    SECRET,
    compressed,
    dataset_of,
    dicom,
    gradient,
    lut,
    pydicom,
    refusal,
    saved,
    with_secrets,
)


def syntax_element(uid: str) -> bytes:
    """Return the header's element that names the transfer syntax."""
    value = uid.encode() + b"\0" * (len(uid) % 2)
    return b"\x02\0\x10\0UI" + len(value).to_bytes(2, "little") + value


# Hostile files


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.1", RLE, J2K_LOSSLESS, JPEG_BASELINE, JPEG_LOSSLESS])
def test_huge_declared_sizes_are_refused_before_decoding(syntax: str) -> None:
    dataset = dataset_of(gradient(), Rows=65000, Columns=65000)
    dataset.PixelData = pydicom.encaps.encapsulate([b"\xff\x4f\xff\x51" + bytes(60)])
    if syntax != "1.2.840.10008.1.2.1":
        dataset["PixelData"].VR, dataset["PixelData"].is_undefined_length = "OB", True
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    data = saved(dataset)
    with peak_memory_below(4 * 2**20):
        message = refusal(data)
    assert "65,000 x 65,000 pixels (4,225,000,000), more than the limit of 100,000,000" in message


def test_a_codestream_larger_than_its_header_is_refused_before_decoding() -> None:
    frames = {J2K_LOSSLESS: (b"\xff\x4f\xff\x51", 8, ">II"), JPEG_BASELINE: (b"\xff\xc0", 5, ">HH")}
    for syntax, (marker, offset, layout) in frames.items():
        pixels = gradient(highest=255, kind="u1")
        data = bytearray(compressed(pixels, syntax, encode(pixels, "JPEG") if syntax == JPEG_BASELINE else None))
        struct.pack_into(layout, data, data.index(marker) + offset, 60_000, 60_000)
        assert "60,000 x 60,000" in refusal(bytes(data))


def test_a_deflated_bomb_is_not_inflated() -> None:
    plain = saved(dataset_of(gradient()))
    start = plain.index(b"\x08\x00\x16\x00")
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    body = b"".join(compressor.compress(bytes(2**20)) for _ in range(64)) + compressor.flush()
    data = plain[:start].replace(syntax_element("1.2.840.10008.1.2.1"), syntax_element("1.2.840.10008.1.2.1.99"))
    with peak_memory_below(16 * 2**20):
        message = refusal(data + body, max_bytes=2**20, max_pixels=2**18)
    assert "inflates to more than 1,048,576 bytes" in message


def test_a_run_length_bomb_stops_at_the_pictures_size() -> None:
    segment = b"\x81\x00" * 100_000
    with peak_memory_below(2**20):
        assert len(_unpacked_bits(segment, 1000, "file")) == 1000


@pytest.mark.parametrize(
    ("syntax", "reason"),
    [
        ("1.2.840.10008.1.2.4.90", "transfer syntax is JPEG 2000 Lossless, but its pixel data is not compressed"),
        ("1.2.840.10008.1.2.4.103", "an unsupported transfer syntax 1.2.840.10008.1.2.4.103"),
        ("1.2.3.4", "has an unsupported transfer syntax"),
        ("1.2.840.10008.1.2.2", "file.dcm"),
    ],
)
def test_a_wrong_transfer_syntax_is_refused(syntax: str, reason: str) -> None:
    data, old = dicom(gradient()), syntax_element("1.2.840.10008.1.2.1")
    assert old in data
    assert reason in refusal(data.replace(old, syntax_element(syntax)))


def test_one_compression_called_another_is_refused() -> None:
    for made, called in ((J2K_LOSSLESS, JPEG_BASELINE), (RLE, J2K_LOSSLESS), (J2K_LOSSLESS, RLE)):
        data = compressed(gradient(), made)
        assert syntax_element(made) in data
        assert "damaged" in refusal(data.replace(syntax_element(made), syntax_element(called)))


FILES = {
    "native": dicom(gradient(6, 8), WindowCenter=2048, WindowWidth=4096, VOILUTSequence=[lut(0, 8, np.arange(9))]),
    "rle": compressed(gradient(6, 8), RLE),
    "j2k": compressed(gradient(33, 34, 255), J2K_LOSSLESS),
}


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_is_refused(name: str) -> None:
    assert refused_truncations(FILES[name]) >= len(FILES[name]) - 8  # only what follows the picture may be missing


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=120)
@given(data=st.data())
def test_damaged_files_raise_nothing_but_input_errors(name: str, data: st.DataObject) -> None:
    changed = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(128, len(changed) - 1))
        stretch = data.draw(st.binary(min_size=1, max_size=4))
        changed[place : place + len(stretch)] = stretch
    trouble: InputError | None = None
    try:
        image = read_image(bytes(changed), force=True, max_pixels=10**6)
    except InputError as error:
        trouble = error
    if trouble is not None:
        assert "\n" not in str(trouble)
        assert trouble.__cause__ is None
        assert trouble.__context__ is None
    else:
        assert image.dtype == np.float32
        assert np.isfinite(image).all()
        assert 0 <= image.min() <= image.max() <= 1


def test_deeply_nested_sequences_are_refused_or_skipped() -> None:
    nest = b"\x08\0\x18\x22SQ\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\xff\xff\xff\xff" * 5000
    start = bytes(128) + b"DICM" + syntax_element("1.2.840.10008.1.2.1")
    assert "file.dcm" in refusal(start + nest)


# Patients


def files_with_secrets() -> dict[str, tuple[bytes, str]]:
    """One file for each way of going wrong, and what is said of it."""
    pixels = gradient(highest=4000)

    def plant(**elements: Any) -> bytes:
        return saved(with_secrets(dataset_of(pixels, **elements)))

    whole = plant()
    spoilt = bytearray(whole)
    spoilt[spoilt.index(b"\x28\0\x10\0US") + 6 : spoilt.index(b"\x28\0\x10\0US") + 8] = b"\xff\x7f"
    stream = with_secrets(dataset_of(pixels))
    stream.compress(pydicom.uid.JPEG2000Lossless, generate_instance_uid=False)
    broken = bytearray(saved(stream))
    place = broken.index(b"\xff\x93")
    broken[place : place + 20] = b"\xff" * 20
    return {
        "read": (whole, ""),
        "character set": (
            whole.replace(b"\x08\0\x16\0UI", b"\x08\0\x05\0CS\x08\0" + SECRET.encode() + b"\x08\0\x16\0UI", 1),
            "",
        ),
        "lateral": (plant(ViewPosition="LL"), "a lateral view"),
        "knee": (plant(BodyPartExamined="KNEE"), "KNEE"),
        "named part": (plant(BodyPartExamined=SECRET), "its Body Part Examined is not the chest"),
        "ct": (plant(Modality="CT"), "a CT slice"),
        "named modality": (plant(Modality=SECRET), "its Modality is not"),
        "mirrored": (plant(PatientOrientation=["R", "F"]), "mirrored"),
        "frames": (plant(NumberOfFrames=3), "3 frames"),
        "spoilt frames": (
            plant().replace(b"\x28\0\x10\0US", b"\x28\0\x08\0IS\x08\0" + SECRET.encode() + b"\x28\0\x10\0US"),
            "unreadable",
        ),
        "colour": (plant(PhotometricInterpretation="RGB"), "not a grey image"),
        "truncated": (whole[:-100], "truncated"),
        "cut in the header": (whole[: whole.index(SECRET.encode()) + 3], "without an image"),
        "spoilt": (bytes(spoilt), "file.dcm"),
        "broken stream": (bytes(broken), "file.dcm"),
        "huge": (plant(Rows=60000, Columns=60000), "more than the limit"),
    }


@pytest.mark.filterwarnings("default")
def test_no_identifier_reaches_a_message_a_log_a_warning_or_a_result(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's, about what is planted here
        files = files_with_secrets()
    assert files["read"][0].count(SECRET.encode()) > 500
    caplog.set_level(logging.DEBUG)
    for name, (data, expected) in files.items():
        for force in (False, True):
            found: DicomImage | InputError
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                try:
                    found = read_dicom(data, name="file.dcm", force=force)
                except InputError as error:
                    found = error
            said = str(found)
            assert SECRET not in said, name
            assert not isinstance(found, InputError) or (found.__cause__ is None and found.__context__ is None), name
            assert not heard, name
            if not force:
                assert expected in said, name
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err + caplog.text


def test_threads_read_at_the_same_time_and_leave_warnings_as_they_were() -> None:
    data, filters = compressed(gradient(), J2K_LOSSLESS), list(warnings.filters)
    expected = read_image(data)
    found: list[bool] = []

    def read() -> None:
        found.extend(np.array_equal(read_image(data), expected) for _ in range(10))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 40
    assert warnings.filters == filters
