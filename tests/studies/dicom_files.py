"""Small DICOM files made on the fly with pydicom, and the real ones of the ``pydicom-data`` wheel."""

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.studies.dicom import read_dicom

pydicom = pytest.importorskip("pydicom")

RLE = "1.2.840.10008.1.2.5"
J2K_LOSSLESS = "1.2.840.10008.1.2.4.90"
JPEG_BASELINE = "1.2.840.10008.1.2.4.50"
JPEG_LOSSLESS = "1.2.840.10008.1.2.4.70"
SECRET = "ZZSECRET"
CHEST = {"Modality": "DX", "BodyPartExamined": "CHEST", "ViewPosition": "PA", "PatientOrientation": ["L", "F"]}


def real(name: str) -> Path:
    """Return the path of a file of the ``pydicom-data`` wheel, without importing or downloading anything."""
    found = importlib.util.find_spec("data_store")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "data"
    if folder is None or not (folder / name).exists():
        pytest.skip("pydicom-data is not installed")
    return folder / name


def refusal(source: bytes | Path, **options: Any) -> str:
    """Return the one sentence with which a file is refused."""
    with pytest.raises(InputError) as caught:
        read_dicom(source, name="file.dcm", **options)
    message = str(caught.value)
    assert message.startswith("file.dcm")
    assert "\n" not in message
    return message


def decoder_of(syntax: str) -> Any:
    """Return pydicom's decoder of a transfer syntax."""
    from pydicom.pixels.decoders.base import get_decoder

    return get_decoder(pydicom.uid.UID(syntax))


def item(**elements: Any) -> Any:
    """Return an item of a sequence."""
    dataset = pydicom.Dataset()
    for name, value in elements.items():
        setattr(dataset, name, value)
    return dataset


def lut(first: int, bits: int, entries: NDArray[Any], vr: str = "US") -> Any:
    """Return an item of a LUT sequence; the descriptor's second value is signed where it is negative."""
    dataset = pydicom.Dataset()
    dataset.add_new(0x00283002, "SS" if first < 0 else "US", [len(entries) % 65536, first, bits])
    dataset.add_new(0x00283006, "OW", entries.astype("<u2" if vr == "US" else "u1").tobytes())
    return dataset


def dataset_of(pixels: NDArray[Any], **elements: Any) -> Any:
    """Return a chest radiograph's data set that holds these stored values as they are."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    dataset.file_meta.MediaStorageSOPInstanceUID = "2.25.1"
    bits = 8 * pixels.dtype.itemsize
    values = {
        "SOPClassUID": "1.2.840.10008.5.1.4.1.1.1.1",
        "SOPInstanceUID": "2.25.1",
        **CHEST,
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
        "Rows": pixels.shape[0],
        "Columns": pixels.shape[1],
        "BitsAllocated": bits,
        "BitsStored": bits,
        "HighBit": bits - 1,
        "PixelRepresentation": int(pixels.dtype.kind == "i"),
        **elements,
    }
    for name, value in values.items():
        if value is not None:
            setattr(dataset, name, value)
    dataset.PixelData = pixels.tobytes() + b"\0" * (pixels.nbytes % 2)
    dataset["PixelData"].VR = "OW" if bits > 8 else "OB"
    return dataset


def saved(dataset: Any, syntax: str = "") -> bytes:
    """Return a data set as a file, in another transfer syntax where one is named."""
    if syntax:
        dataset.file_meta.TransferSyntaxUID = getattr(pydicom.uid, syntax)
    file = io.BytesIO()
    pydicom.dcmwrite(file, dataset, enforce_file_format=True)
    return file.getvalue()


def dicom(pixels: NDArray[Any], **elements: Any) -> bytes:
    """Return stored values as an uncompressed file; elements set to None are left out."""
    return saved(dataset_of(pixels, **elements))


def compressed(pixels: NDArray[Any], syntax: str, frame: Any = None, **elements: Any) -> bytes:
    """Return stored values as a compressed file, by pydicom's encoders or from a frame that is compressed already."""
    dataset = dataset_of(pixels, **elements)
    uid = pydicom.uid.UID(syntax)
    if frame is None:
        dataset.compress(uid, generate_instance_uid=False)
    else:
        dataset.PixelData = pydicom.encaps.encapsulate([frame])
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
        dataset.file_meta.TransferSyntaxUID = uid
    return saved(dataset)


def with_secrets(dataset: Any) -> Any:
    """Plant `SECRET` in every element of the dictionary that holds names, texts, dates or times, valid there or not."""
    from pydicom._dicom_dict import DicomDictionary
    from pydicom.dataelem import DataElement

    for tag, (vr, _, _, retired, _) in DicomDictionary.items():
        if vr in ("PN", "LO", "DA", "SH", "LT", "ST", "UC", "UT", "AE", "TM", "DT", "AS") and not retired:
            element = DataElement(tag, vr, SECRET, validation_mode=pydicom.config.IGNORE)
            if tag >> 16 not in (0, 2) and tag not in dataset:
                dataset.add(element)
    for name in ("PatientName", "PatientID", "PatientBirthDate", "StudyDate", "InstitutionName"):
        assert str(dataset[name].value) == SECRET
    dataset.ViewCodeSequence = [item(CodeValue="399348003", CodingSchemeDesignator="SCT", CodeMeaning=SECRET)]
    dataset.AnatomicRegionSequence = [item(CodeValue=SECRET, CodingSchemeDesignator="SCT", CodeMeaning=SECRET)]
    return dataset


def gradient(rows: int = 33, columns: int = 32, highest: int = 4095, kind: str = "<u2") -> NDArray[Any]:
    """Return stored values that differ at every pixel's row and column."""
    return np.rint(np.linspace(0, highest, rows * columns)).reshape(rows, columns).astype(kind)
