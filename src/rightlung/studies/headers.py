"""Read the header of an image file: its size, and for DICOM also age, sex and view.

Published boxes are often in pixels of an image whose size is given nowhere else. Reading a header takes a millisecond,
decoding the image a hundred. Only the DICOM elements listed here are read; none of them identifies the patient.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Any

from rightlung.core import InputError, Size
from rightlung.core.errors import MissingFileError
from rightlung.studies import png
from rightlung.studies.dicom import is_dicom
from rightlung.studies.dicom.quiet import quiet
from rightlung.studies.dicom.terms import view_of
from rightlung.studies.files import open_regular
from rightlung.studies.images import orientation_of
from rightlung.studies.plausibility import ImplausibleImageError

_ELEMENTS = ["Rows", "Columns", "PatientAge", "PatientSex", "ViewPosition"]
_AGE = re.compile(r"([0-9]{1,3})([YMWD]?)")
_YEARS = {"": 1.0, "Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
_TURNED = {5, 6, 7, 8}


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Facts from a file's header; everything but the size is None if it is not stated.

    ``size`` is ``(height, width)`` of the stored pixels (a PNG or JPEG turned upright), to which published boxes refer.
    The decoded image has the same size, except for DICOM images with non-square pixels.
    """

    size: Size
    age: float | None = None
    sex: str | None = None
    view: str | None = None


def read_header(path: str | os.PathLike[str], what: str) -> ImageHeader:
    """Read the header of a DICOM, PNG or JPEG file; ``what`` names the file in messages."""
    descriptor, _ = open_regular(path, what)
    with os.fdopen(descriptor, "rb") as file:
        start = file.read(132)
        file.seek(0)
        if start.startswith(png.SIGNATURE):
            return _png_header(file, start, what)
        if start.startswith(b"\xff\xd8\xff"):
            return _jpeg_header(file, what)
        if is_dicom(start):
            return _dicom_header(file, what)
    raise InputError(f"{what} is not an image in DICOM, PNG or JPEG format")


def _png_header(file: Any, start: bytes, what: str) -> ImageHeader:
    header = png.read_header(start, what)
    turned = False
    if png.may_hold_exif(file):
        from PIL.PngImagePlugin import PngImageFile

        file.seek(0)
        with contextlib.suppress(Exception):  # damaged after its header, which decoding reports
            turned = orientation_of(PngImageFile(file)) in _TURNED
    return ImageHeader((header.width, header.height) if turned else (header.height, header.width))


def _jpeg_header(file: Any, what: str) -> ImageHeader:
    from PIL.JpegImagePlugin import JpegImageFile

    try:
        image = JpegImageFile(file)
        width, height = image.size
        turned = orientation_of(image) in _TURNED
    except Exception as error:  # on hostile bytes the parser raises errors of every kind
        raise InputError(f"{what} is not a readable JPEG image: {error}") from error
    return ImageHeader((width, height) if turned else (height, width))


def _dicom_header(file: Any, what: str) -> ImageHeader:
    try:
        from pydicom import dcmread
    except ImportError:
        raise InputError(f"{what} is a DICOM file; reading it needs pydicom: pip install pydicom") from None
    trouble: str | None = None
    height = width = 0
    texts: dict[str, str] = {}
    try:
        with quiet():  # force, because old files have no preamble
            found = dcmread(file, stop_before_pixels=True, specific_tags=_ELEMENTS, force=True)
            height, width = int(found.Rows), int(found.Columns)
            texts = {name: str(found.get(name) or "").strip() for name in _ELEMENTS[2:]}
    except Exception as error:  # its message may quote the file's values
        trouble = type(error).__name__
    if trouble is not None:  # raised here and not above, so that the parser's own error is not attached
        raise InputError(f"{what} is not a readable DICOM file ({trouble})")
    if height < 1 or width < 1:
        raise InputError(f"{what} is not a readable DICOM file: it has {width} columns and {height} rows")
    sex = texts["PatientSex"].upper()
    return ImageHeader(
        size=(height, width),
        age=years(texts["PatientAge"]),
        sex=sex if sex in ("F", "M", "O") else None,
        view=view_of(texts["ViewPosition"]),  # only known words: others may be a name
    )


def years(text: str) -> float | None:
    """Return an age in years from DICOM's ``043Y``, ``011M`` or a plain number.

    Impossible ages are unknown, and so is ``000Y``, which de-identified files contain instead of the age.

    >>> years("043Y"), years("006M"), years("0"), years("000Y"), years("411Y")
    (43.0, 0.5, 0.0, None, None)
    """
    found = _AGE.fullmatch(text.strip().upper())
    if found is None:
        return None
    age = int(found[1]) * _YEARS[found[2]]
    return None if age > 130 or (age == 0 and found[2] == "Y") else age


def image_kind(error: InputError) -> str:
    """Return the check for an image that cannot be used."""
    if isinstance(error, ImplausibleImageError):
        return "odd-image"
    return "missing-image" if isinstance(error, MissingFileError) else "unreadable-image"
