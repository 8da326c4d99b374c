"""DICOM as pictures: real files, greys and packings, against pydicom's own LUT code and by hand."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.studies import open_source, read_image
from rightlung.studies.dicom import read_dicom
from rightlung.studies.dicom.frames import _unpacked_bits
from tests.studies.conftest import encode
from tests.studies.dicom_files import (
    J2K_LOSSLESS,
    JPEG_BASELINE,
    JPEG_LOSSLESS,
    RLE,
    compressed,
    dataset_of,
    decoder_of,
    dicom,
    gradient,
    lut,
    pydicom,
    real,
    refusal,
    saved,
)

RNG = np.random.default_rng(6)
EXTREMITY = "does not show the chest (Body Part Examined EXTREMITY)"
FULL = {"BitsStored": 12, "HighBit": 11, "WindowCenter": 2048, "WindowWidth": 4096}  # shows all twelve bits


def reference(dataset: Any) -> NDArray[np.float64]:
    """What pydicom's own LUT functions make of a data set, brought to 0–1."""
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(dataset.pixel_array, dataset)
    shown = apply_voi_lut(values, dataset).astype(np.float64)
    sequence = dataset.get("VOILUTSequence")
    low, high = 0.0, float(2**dataset.BitsStored - 1)
    if sequence:
        high = 2.0 ** sequence[0].LUTDescriptor[2] - 1
    elif "RescaleSlope" in dataset:
        ends = np.array([0.0, 2**dataset.BitsStored - 1]) * dataset.RescaleSlope + dataset.RescaleIntercept
        low, high = ends.min(), ends.max()
    elif dataset.PixelRepresentation:
        low, high = -(2.0 ** (dataset.BitsStored - 1)), 2.0 ** (dataset.BitsStored - 1) - 1
    fractions = (shown - low) / (high - low)
    return 1.0 - fractions if dataset.PhotometricInterpretation == "MONOCHROME1" else fractions


# Real files


@pytest.mark.parametrize("name", ["RG1_UNCR.dcm", "RG1_J2KR.dcm", "RG1_J2KI.dcm", "RG1_UNCI.dcm"])
def test_a_real_chest_radiograph_is_read_with_bright_bone_and_the_heart_on_the_images_right(name: str) -> None:
    found = read_dicom(real(name))
    assert (found.modality, found.view, found.body_part, found.grey) == ("CR", "PA", "CHEST", "window")
    assert found.image.shape == found.stored_shape == (1955, 1841)
    assert found.image.dtype == np.float32
    assert found.notes == ()
    image = found.image[::5, ::5]
    assert image.min() >= 0
    assert image.max() <= 1
    # By eye: the spine is bright, the upper lungs dark; the apex of the heart lies in the picture's right half.
    spine, right_lung, left_lung = image[80:120, 170:195], image[50:70, 95:115], image[50:70, 250:270]
    assert spine.mean() > right_lung.mean() + 0.2
    assert spine.mean() > left_lung.mean() + 0.2
    row = image[240:260].mean(axis=0)
    assert row[215:240].mean() > row[130:145].mean() + 0.05


def test_lossless_compression_gives_the_same_picture_and_window_and_inversion_are_pydicoms() -> None:
    plain = read_image(real("RG1_UNCR.dcm"))
    np.testing.assert_array_equal(plain, read_image(real("RG1_J2KR.dcm")))
    np.testing.assert_allclose(read_image(real("RG1_J2KI.dcm")), plain, atol=0.02)
    dataset = pydicom.dcmread(real("RG1_UNCR.dcm"))
    np.testing.assert_allclose(plain, reference(dataset), atol=1e-6)


def test_the_forced_extremity_is_turned_as_its_header_says() -> None:
    # Its marker, an R, stands mirrored in the stored pixels and can be read once they are turned.
    found = read_dicom(real("RG3_UNCR.dcm"), force=True)
    dataset = pydicom.dcmread(real("RG3_UNCR.dcm"))
    np.testing.assert_allclose(found.image, reference(dataset)[:, ::-1], atol=1e-6)
    assert (found.body_part, found.laterality, found.view) == ("EXTREMITY", "R", "AP")
    assert "EXTREMITY" in found.notes[0]
    assert "turned according to its Patient Orientation" in found.notes[1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("693_UNCR.dcm", "it is a CT slice, not a radiograph (Modality CT)"),
        ("MR2_J2KR.dcm", "it is an MR slice"),
        ("JPEG-LL.dcm", "it is a nuclear medicine image"),
        ("US1_UNCR.dcm", "it is an ultrasound image"),
        ("vlut_04.dcm", "screen capture"),
        *((f"RG3_{kind}.dcm", EXTREMITY) for kind in ("UNCR", "J2KR", "UNCI", "J2KI")),
    ],
)
def test_real_files_of_other_kinds_are_refused_with_their_kind(name: str, reason: str) -> None:
    assert reason in refusal(real(name))


def test_real_tables_give_what_pydicom_gives() -> None:
    found = read_dicom(real("vlut_04.dcm"), force=True)
    assert found.grey == "voi-lut"
    np.testing.assert_allclose(found.image, reference(pydicom.dcmread(real("vlut_04.dcm"))), atol=1e-6)
    dataset = pydicom.dcmread(real("mlut_18.dcm"))  # a modality LUT and nothing else: a window has to show its output
    dataset.WindowCenter, dataset.WindowWidth = 128, 256
    values = pydicom.pixels.processing.apply_modality_lut(dataset.pixel_array, dataset)
    expected = np.clip((values - 127.5) / 255 + 0.5, 0, 1)
    np.testing.assert_allclose(read_dicom(saved(dataset), force=True).image, expected, atol=1e-6)


def test_sixteen_bit_lossless_jpeg_says_which_package_is_missing() -> None:
    if decoder_of(JPEG_LOSSLESS).is_available:
        pytest.skip("a decoder of lossless JPEG is installed")
    assert "JPEG Lossless SV1 (16 bits); to read it, install python-gdcm" in refusal(real("JPEG-LL.dcm"), force=True)


def test_eight_bit_lossless_jpeg_is_read_without_a_plugin() -> None:
    dataset = pydicom.dcmread(real("JPGLosslessP14SV1_1s_1f_8b.dcm"))
    dataset.Modality = "CR"
    found = read_dicom(saved(dataset))
    assert found.image.shape == (768, 1024)
    assert found.image.std() > 0.1


# Greys


def test_the_phantoms_dicom_files_show_the_phantoms_pictures(tmp_path: Path) -> None:
    from rightlung.phantom.config import default_config
    from rightlung.phantom.write import PhantomJob, write_phantom

    write_phantom(PhantomJob(tmp_path, default_config(), 2, 1, 64, dicom=True))
    for study in open_source(f"manifest:{tmp_path}"):
        found = read_dicom(tmp_path / study.extra["dicom"])
        assert np.abs(found.image - study.image).max() <= 0.5 / 255 + 0.5 / 4095 + 1e-6
        assert (found.view, found.body_part, found.laterality) == (study.view, "CHEST", "U")


def test_manifest_rows_may_name_dicom_files(tmp_path: Path) -> None:
    pixels = gradient()
    (tmp_path / "one.dcm").write_bytes(dicom(pixels, **FULL))
    (tmp_path / "side.dcm").write_bytes(dicom(pixels, ViewPosition="LL"))
    rows = ['{"id": "a", "file": "one.dcm"}', '{"id": "b", "file": "side.dcm"}']
    (tmp_path / "manifest.jsonl").write_text("\n".join(rows))
    source = open_source(f"manifest:{tmp_path}")
    np.testing.assert_allclose(source.study("a").image, pixels / 4095, atol=1e-6)
    with pytest.raises(InputError, match=r"study 'b': image .*side\.dcm is not read: it is a lateral view"):
        _ = source.study("b").image


@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("kind", ["<u2", "<i2"])
def test_windows_equal_pydicoms(function: str | None, photometric: str, kind: str) -> None:
    pixels = (gradient(highest=65535, kind="<u4").astype(np.int64) - (32768 if kind == "<i2" else 0)).astype(kind)
    elements = {
        "WindowCenter": [1000, 7], "WindowWidth": [9000.5, 9], "VOILUTFunction": function,
        "PhotometricInterpretation": photometric,
    }  # fmt: skip
    dataset = dataset_of(pixels, **elements)
    np.testing.assert_allclose(read_dicom(saved(dataset)).image, reference(dataset), atol=1e-6)


@pytest.mark.parametrize(("bits", "packed"), [(8, "u1"), (12, "US"), (16, "US")])
def test_a_voi_table_is_used_before_a_window_and_holds_its_ends(bits: int, packed: str) -> None:
    entries = np.rint((np.arange(100) / 99) ** 2 * (2**bits - 1)).astype(np.uint16)
    pixels = np.arange(200, dtype="<u2").reshape(10, 20)
    data = dicom(pixels, VOILUTSequence=[lut(50, bits, entries, packed)], WindowCenter=1, WindowWidth=2)
    found = read_dicom(data)
    assert found.grey == "voi-lut"
    expected = [entries[min(max(value - 50, 0), 99)] / (2**bits - 1) for value in range(200)]
    np.testing.assert_allclose(found.image.reshape(-1), expected, atol=1e-6)


VALUES = gradient()
STORED = np.arange(12, dtype="<u2").reshape(3, 4) * 300
DEEP = gradient(highest=65535, kind="<u4")


@pytest.mark.parametrize(
    ("pixels", "elements", "expected"),
    [
        pytest.param(
            VALUES, {"RescaleSlope": 2.5, "RescaleIntercept": -1000, "WindowCenter": 2000, "WindowWidth": 5000},
            np.clip((2.5 * VALUES - 1000.0 - 1999.5) / 4999 + 0.5, 0, 1), id="window after slope and intercept",
        ),
        pytest.param(
            np.arange(-4, 8, dtype="<i2")[None],
            {"ModalityLUTSequence": [lut(-2, 16, np.array([10, 20, 40, 80, 100]))],
             "WindowCenter": 50.5, "WindowWidth": 101},
            np.array([[10, 10, 10, 20, 40, 80, 100, 100, 100, 100, 100, 100]]) / 100,
            id="modality table with a negative first value",
        ),
        pytest.param(
            np.array([[-2000, -2000, 5, 10, 15]], "<i2"), {"PixelPaddingValue": -2000}, [[0, 0, 0, 0.5, 1]],
            id="signed padding",
        ),
        pytest.param(  # an overlay's bit above, and one below
            (STORED << 2) | 0x8001, {**FULL, "HighBit": 13}, STORED / 4095, id="only the stored bits count",
        ),
        pytest.param(  # two's complement: 0xFFF is -1, whatever stands above
            np.array([[0x0FFF, 0x0000, 0x0001, 0x0800, 0x07FF]], "<u2"),
            {**FULL, "WindowCenter": 0, "PixelRepresentation": 1},
            (np.array([[-1, 0, 1, -2048, 2047]]) + 0.5) / 4095 + 0.5, id="the sign is the highest stored bit",
        ),
        pytest.param(
            DEEP, {"BitsStored": 16, "HighBit": 15, "WindowCenter": 32768, "WindowWidth": 65536}, DEEP / 65535,
            id="thirty-two bits with sixteen stored",
        ),
    ],
)  # fmt: skip
def test_stored_values_become_greys(pixels: NDArray[Any], elements: dict[str, Any], expected: Any) -> None:
    np.testing.assert_allclose(read_dicom(dicom(pixels, **elements)).image, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("pixels", "elements", "expected"),
    [
        ([[9, 10, 11]], {"WindowCenter": 10, "WindowWidth": 1}, [[0, 1, 1]]),
        ([[0, 1, 2]], {"VOILUTSequence": [lut(0, 8, np.array([0, 512, 1024]))]}, [[0, 0.5, 1]]),
        ([[9, 9], [9, 9]], {}, [[0, 0], [0, 0]]),
    ],
    ids=["a window one wide is a threshold", "a table beyond its bits ends at its highest entry", "a constant image"],
)
def test_stored_values_become_exact_greys(pixels: Any, elements: dict[str, Any], expected: Any) -> None:
    assert read_dicom(dicom(np.array(pixels, "<u2"), **elements)).image.tolist() == expected


def test_without_a_window_eight_bits_keep_their_range() -> None:
    pixels = RNG.integers(40, 200, (6, 8), dtype=np.uint8)
    found = read_dicom(dicom(pixels))
    assert found.grey == "bits"
    np.testing.assert_allclose(found.image, pixels / 255, atol=1e-6)


def test_without_a_window_deep_pixels_are_spread_between_percentiles() -> None:
    pixels = np.rint(RNG.normal(3000, 300, (60, 50))).astype("<u2")
    pixels[0, :5], pixels[1, :3] = 60000, 0
    found = read_dicom(dicom(pixels))
    low, high = np.percentile(pixels, [0.5, 99.5], method="inverted_cdf")
    assert found.grey == "percentiles"
    np.testing.assert_allclose(found.image, np.clip((pixels - float(low)) / (high - low), 0, 1), atol=1e-6)


@pytest.mark.parametrize(
    "elements",
    [
        {"WindowCenter": 50000, "WindowWidth": 10},
        {"VOILUTSequence": [lut(30000, 8, np.arange(3))]},
        {"WindowCenter": 100, "WindowWidth": 0},
        {"WindowCenter": 100, "WindowWidth": 10, "VOILUTFunction": "CUBIC"},
    ],
)
def test_a_window_that_shows_nothing_is_not_used(elements: dict[str, Any]) -> None:
    pixels = gradient(highest=400)
    found = read_dicom(dicom(pixels, **elements))
    np.testing.assert_array_equal(found.image, read_dicom(dicom(pixels)).image)
    assert found.grey == "percentiles"


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_padding_is_black_and_does_not_move_the_percentiles(photometric: str) -> None:
    picture = np.rint(RNG.normal(2000, 200, (40, 40))).astype("<u2")
    padded = np.full((40, 60), 65000, "<u2")
    padded[:, :40] = picture
    padded[::2, 40:] = 64000
    elements = {"PhotometricInterpretation": photometric}
    found = read_dicom(dicom(padded, PixelPaddingValue=64000, PixelPaddingRangeLimit=65000, **elements))
    np.testing.assert_array_equal(found.image[:, :40], read_dicom(dicom(picture, **elements)).image)
    assert not found.image[:, 40:].any()


# Packings


def test_every_way_of_packing_without_loss_gives_the_same_picture() -> None:
    pixels = RNG.integers(0, 4096, (34, 33)).astype("<u2")
    files = {"rle": compressed(pixels, RLE, **FULL), "j2k": compressed(pixels, J2K_LOSSLESS, **FULL)}
    for syntax in ("ExplicitVRLittleEndian", "ImplicitVRLittleEndian", "DeflatedExplicitVRLittleEndian"):
        files[syntax] = saved(dataset_of(pixels, **FULL), syntax)
    files["big endian"] = saved(dataset_of(pixels.astype(">u2"), **FULL), "ExplicitVRBigEndian")
    files["without preamble"] = files["ExplicitVRLittleEndian"][132:]
    bare, dataset = io.BytesIO(), dataset_of(pixels, **FULL)
    del dataset.file_meta
    pydicom.dcmwrite(bare, dataset, implicit_vr=True, little_endian=True)
    files["without preamble and meta information"] = bare.getvalue()
    for name, data in files.items():
        np.testing.assert_allclose(read_image(data), pixels / np.float64(4095), atol=1e-6, err_msg=name)


@pytest.mark.parametrize("syntax", [RLE, J2K_LOSSLESS])
def test_signed_values_come_through_compression(syntax: str) -> None:
    pixels = RNG.integers(-2048, 2048, (34, 33)).astype("<i2")
    data = compressed(pixels, syntax, **{**FULL, "WindowCenter": 0})
    np.testing.assert_allclose(read_image(data), np.clip((pixels + 0.5) / 4095 + 0.5, 0, 1), atol=1e-6)


def test_eight_bits_in_big_endian_words_are_swapped_back() -> None:
    pixels = np.arange(15, dtype=np.uint8).reshape(3, 5)
    dataset = dataset_of(pixels)
    dataset.PixelData = np.frombuffer(pixels.tobytes() + b"\0", ">u2").astype("<u2").tobytes()
    dataset["PixelData"].VR = "OW"
    np.testing.assert_allclose(read_image(saved(dataset, "ExplicitVRBigEndian")), pixels / 255, atol=1e-6)


def test_baseline_jpeg_is_read() -> None:
    pixels = np.linspace(0, 255, 48 * 64).reshape(48, 64).astype(np.uint8)
    found = read_image(compressed(pixels, JPEG_BASELINE, encode(pixels, "JPEG", quality=95)))
    np.testing.assert_allclose(found, pixels / 255, atol=0.02)


def test_lossy_jpeg_2000_is_read() -> None:
    pixels = gradient(64, 64)
    dataset = dataset_of(pixels, **FULL)
    dataset.compress(pydicom.uid.JPEG2000, j2k_psnr=[60], generate_instance_uid=False)
    np.testing.assert_allclose(read_image(saved(dataset)), pixels / 4095, atol=0.02)


@given(st.binary(max_size=40), st.integers(1, 60))
def test_run_lengths_decode_as_pydicom_decodes_them(segment: bytes, count: int) -> None:
    from pydicom.pixels.decoders.rle import _rle_decode_segment

    expected = bytes(_rle_decode_segment(segment))
    try:
        found = bytes(_unpacked_bits(segment, count, "file"))
    except InputError:
        assert len(expected) < count
    else:
        assert found == expected[:count]


def test_a_missing_decoder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = compressed(gradient(), J2K_LOSSLESS)
    monkeypatch.setattr(decoder_of(J2K_LOSSLESS), "_available", {})
    message = refusal(data)
    assert "compressed with JPEG 2000 Lossless (16 bits)" in message
    assert "pylibjpeg-openjpeg: pip install pylibjpeg pylibjpeg-openjpeg" in message


def test_without_pydicom_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dicom(gradient())
    monkeypatch.setitem(sys.modules, "pydicom", None)
    monkeypatch.setitem(sys.modules, "pydicom.filereader", None)
    assert refusal(data) == ("file.dcm is a DICOM file; reading it needs pydicom: pip install pydicom")
