"""What a DICOM header says of an image, and what is refused for it."""

from typing import Any

import numpy as np
import pytest

from rightlung.core import InputError
from rightlung.studies import read_image
from rightlung.studies.dicom import read_dicom
from rightlung.studies.images import read_mask
from tests.studies.dicom_files import dataset_of, dicom, gradient, item, refusal, saved


def code(value: str, scheme: str = "SCT", **elements: str) -> Any:
    return item(CodeValue=value, CodingSchemeDesignator=scheme, **elements)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"ViewPosition": "LATERAL"}, "it is a lateral view, not a frontal one (according to its View Position)"),
        ({"ViewPosition": "LL"}, "a lateral view"),
        ({"ViewPosition": "RL"}, "a lateral view"),
        ({"ViewPosition": "LAO"}, "an oblique view"),
        ({"ViewPosition": "AP LLD"}, "a decubitus view"),
        ({"ViewPosition": "", "PatientOrientation": ["A", "F"]}, "a lateral view, not a frontal one (Patient Orient"),
        ({"ViewCodeSequence": [code("399173006", CodeMeaning="x")]},
         "a lateral view, not a frontal one (according to its View Code Sequence)"),
        ({"ViewPosition": None, "ViewCodeSequence": [code("R-10236", "SRT")]}, "a lateral view"),
        ({"BodyPartExamined": "KNEE"}, "does not show the chest (Body Part Examined KNEE)"),
        ({"BodyPartExamined": "T-SPINE"}, "(Body Part Examined TSPINE)"),
        ({"BodyPartExamined": "MUELLER"}, "its Body Part Examined is not the chest"),
        ({"BodyPartExamined": "", "AnatomicRegionSequence": [code("72696002")]},
         "does not show the chest (code in its Anatomic Region Sequence)"),
        ({"Modality": "CT"}, "it is a CT slice"),
        ({"Modality": "RF"}, "a fluoroscopic image"),
        ({"Modality": None, "SOPClassUID": "1.2.840.10008.5.1.4.1.1.2"}, "it is a CT slice"),
        ({"PresentationIntentType": "FOR PROCESSING"}, "raw detector values"),
        ({"PatientOrientation": ["R", "F"]}, "it is mirrored: its Patient Orientation is R\\F instead of L\\F"),
        ({"PatientOrientation": ["R", "H"]}, "it is turned"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
def test_what_is_no_frontal_chest_radiograph_is_refused_unless_forced(elements: dict[str, Any], reason: str) -> None:
    data = dicom(gradient(), **elements)
    message = refusal(data)
    assert reason in message
    assert "--force reads it anyway" in message
    assert "MUELLER" not in message
    with pytest.raises(InputError, match="is not read"):
        read_image(data)
    assert read_image(data, force=True).shape == (33, 32)
    assert read_dicom(data, force=True).notes


@pytest.mark.parametrize(
    ("elements", "view", "body_part"),
    [
        ({}, "PA", "CHEST"),
        ({"ViewPosition": "AP"}, "AP", "CHEST"),
        ({"ViewPosition": "", "PatientOrientation": ""}, None, "CHEST"),
        ({"ViewPosition": "SWIMMERS"}, None, "CHEST"),
        ({"BodyPartExamined": "Thorax pa"}, "PA", "CHEST"),
        ({"BodyPartExamined": "LUNGS"}, "PA", "LUNG"),
        ({"BodyPartExamined": ""}, "PA", None),
        ({"BodyPartExamined": None, "Modality": None, "ViewPosition": None, "PatientOrientation": None}, None, None),
        ({"ViewPosition": None, "ViewCodeSequence": [code("R-10206", "SRT")],
          "BodyPartExamined": None, "AnatomicRegionSequence": [code("T-D3000", "SRT")]}, "AP", "CHEST"),
        ({"ViewPosition": "PA", "PatientOrientation": ["P", "F"]}, "PA", "CHEST"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
def test_frontal_chest_radiographs_and_silent_headers_pass(
    elements: dict[str, Any], view: str | None, body_part: str | None
) -> None:
    found = read_dicom(dicom(gradient(), **elements))
    assert (found.view, found.body_part) == (view, body_part)


def test_laterality_is_the_images_else_the_series() -> None:
    assert read_dicom(dicom(gradient(), ImageLaterality="U", Laterality="L")).laterality == "U"
    assert read_dicom(dicom(gradient(), Laterality="L")).laterality == "L"
    assert read_dicom(dicom(gradient())).laterality is None


@pytest.mark.parametrize("across", ["L", "R"])
@pytest.mark.parametrize("down", ["F", "H"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_turned_picture_is_brought_upright_when_forced(across: str, down: str, swapped: bool) -> None:
    # A picture of where things are: brighter to the patient's left by 1, to the feet by 100.
    upright = np.add.outer(100 * np.arange(5), np.arange(7)).astype("<u2")
    stored = upright[:: 1 if down == "F" else -1, :: 1 if across == "L" else -1]
    orientation = [across, down]
    if swapped:
        stored, orientation = stored.T, orientation[::-1]
    window = {"WindowCenter": 256, "WindowWidth": 512}
    data = dicom(np.ascontiguousarray(stored), PatientOrientation=orientation, **window)
    expected = read_dicom(dicom(upright, **window)).image
    np.testing.assert_array_equal(read_dicom(data, force=True).image, expected)
    if orientation != ["L", "F"]:
        assert "the patient's left must be on the image's right" in refusal(data)


def test_pixels_that_are_not_square_are_made_so() -> None:
    pixels = gradient(20, 30)
    found = read_dicom(dicom(pixels, PixelSpacing=[0.4, 0.2]))
    assert found.image.shape == (40, 30)
    assert found.stored_shape == (20, 30)
    assert "2 times as high as wide" in found.notes[0]
    assert read_dicom(dicom(pixels, ImagerPixelSpacing=[0.2, 0.3])).image.shape == (20, 45)
    assert read_dicom(dicom(pixels, PixelAspectRatio=[3, 2])).image.shape == (30, 30)
    assert read_dicom(dicom(pixels, PixelSpacing=[0, 0])).image.shape == (20, 30)
    assert read_dicom(dicom(pixels, PixelSpacing=[0.2001, 0.2])).notes == ()
    assert "is implausible" in refusal(dicom(pixels, PixelSpacing=[40, 0.2]))
    assert "more than the limit of 700" in refusal(dicom(pixels, PixelSpacing=[0.4, 0.2]), max_pixels=700)


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"NumberOfFrames": 2}, "file.dcm has 2 frames; a radiograph has one"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "is not a grey image"),
        ({"SamplesPerPixel": 3}, "is not a grey image"),
        ({"BitsAllocated": 12}, "Bits Allocated 12"),
        ({"BitsStored": 17}, "Bits Stored 17"),
        ({"BitsStored": 12, "HighBit": 5}, "High Bit 5"),
        ({"Rows": 0}, "without an image"),
        ({"Rows": None}, "without an image"),
        ({"Rows": 500}, "truncated: it holds 2,112 of 32,000 bytes of pixel data"),
        ({"RescaleSlope": 0}, "RescaleSlope"),
        ({"VOILUTSequence": [item(LUTDescriptor=[5, 0])]}, "VOI LUT Sequence: its LUT Descriptor"),
        ({"ModalityLUTSequence": [item(LUTDescriptor=[5, 0, 16])]}, "its LUT Data has 0 bytes for 5 entries"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
def test_what_cannot_be_shown_is_said(elements: dict[str, Any], reason: str) -> None:
    for force in (False, True):
        assert reason in refusal(dicom(gradient(), **elements), force=force)


def test_a_file_without_pixels_a_dicomdir_and_other_files_are_named() -> None:
    dataset = dataset_of(gradient())
    del dataset.PixelData
    assert "has no pixel data" in refusal(saved(dataset))
    assert "is not a DICOM file" in refusal(b"\x89PNG\r\n\x1a\n" + bytes(50))
    with pytest.raises(InputError, match="a mask must be PNG"):
        read_mask(saved(dataset))
