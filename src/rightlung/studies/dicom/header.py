"""The elements of a DICOM file that are needed to show it (PS3.5, PS3.6, PS3.10).

pydicom finds the elements but converts nothing: values are read here from the raw bytes. Elements that are not in
`WANTED` are skipped, so no patient's name, number, date or free text can end up in a message, a log or an output.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rightlung.core import InputError
from rightlung.studies.dicom.quiet import quiet
from rightlung.studies.dicom.syntaxes import DEFLATED, EXPLICIT_BIG, IMPLICIT

WANTED = (
    "SOPClassUID", "Modality", "PresentationIntentType", "AnatomicRegionSequence", "BodyPartExamined",
    "ImagerPixelSpacing", "ViewPosition", "PatientOrientation", "Laterality", "ImageLaterality", "SamplesPerPixel",
    "PhotometricInterpretation", "NumberOfFrames", "Rows", "Columns", "PixelSpacing", "PixelAspectRatio",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PixelPaddingValue", "PixelPaddingRangeLimit",
    "WindowCenter", "WindowWidth", "RescaleIntercept", "RescaleSlope", "VOILUTFunction", "ModalityLUTSequence",
    "VOILUTSequence", "ViewCodeSequence", "FloatPixelData", "DoubleFloatPixelData", "PixelData",
)  # fmt: skip
"""The elements that are read at the top level of the data set, by DICOM keyword."""

_IN_ITEMS = ("CodeValue", "CodingSchemeDesignator", "LUTDescriptor", "LUTData")
_UNDEFINED = 0xFFFFFFFF
_MOST_ITEMS = 8
_FIRST_ELEMENTS = (0x0000, 0x0001, 0x0005, 0x0008, 0x0016, 0x0018)


@dataclass(frozen=True)
class DicomHeader:
    """Wanted elements of a data set or of a sequence item: raw bytes by name, and sequences by name."""

    values: Mapping[str, bytes]
    items: Mapping[str, tuple[DicomHeader, ...]] = field(default_factory=dict)
    little_endian: bool = True
    syntax: str = ""
    encapsulated: bool = False
    pixels_are_words: bool = True

    def has(self, name: str) -> bool:
        """Whether the element exists and is not empty."""
        return bool(self.values.get(name))

    def words(self, name: str) -> list[int]:
        """Return the unsigned 16-bit words of an element; none if it is missing or has another length."""
        raw = self.values.get(name, b"")
        if len(raw) % 2:
            return []
        return list(struct.unpack(f"{'<' if self.little_endian else '>'}{len(raw) // 2}H", raw))

    def word(self, name: str) -> int | None:
        """Return the only 16-bit word of an element, unsigned."""
        words = self.words(name)
        return words[0] if len(words) == 1 else None

    def texts(self, name: str) -> list[str]:
        """Return the values of a text element, stripped."""
        raw = self.values.get(name, b"")[:1024]
        return [text.strip(" \0") for text in raw.decode("ascii", "replace").split("\\")] if raw else []

    def text(self, name: str) -> str:
        """Return the first value of a text element in upper case; empty if there is none."""
        return (self.texts(name) or [""])[0].upper()

    def numbers(self, name: str) -> list[float]:
        """Return the values of a decimal text element; none if any of them is not a finite number."""
        try:
            numbers = [float(text) for text in self.texts(name)]
        except ValueError:
            return []
        return numbers if all(abs(number) < 1e30 for number in numbers) else []


def is_dicom(data: bytes) -> bool:
    """Whether bytes begin like a DICOM file, with its preamble or (like old files) without."""
    if data[128:132] == b"DICM" or data[:8] == b"\x02\0\0\0UL\x04\0":
        return True
    if len(data) < 8 or data[:2] != b"\x08\0":
        return False
    (element,) = struct.unpack("<H", data[2:4])
    explicit = data[4:6] in (b"UL", b"CS", b"UI", b"SH")
    (length,) = struct.unpack("<I", data[4:8])
    return element in _FIRST_ELEMENTS and (explicit or length <= 64)


def read_header(data: bytes, what: str, max_inflated: int) -> DicomHeader:
    """Return the wanted elements; ``max_inflated`` limits the size of an inflated deflated file."""
    try:
        with quiet():
            import pydicom.filereader  # noqa: F401
    except ImportError:
        raise InputError(f"{what} is a DICOM file; reading it needs pydicom: pip install pydicom") from None
    trouble: str | None = None
    try:
        with quiet():
            return _read(data, max_inflated)
    except MemoryError:
        trouble = "does not fit into memory"
    except _UnreadableError as error:
        trouble = str(error)
    except Exception:  # on hostile bytes the parser raises errors of every kind, and some quote the bytes
        trouble = "is not a readable DICOM file: its header is damaged"
    # Raised here and not above, so that the parser's own error is not attached.
    raise InputError(f"{what} {trouble}")


class _UnreadableError(Exception):
    """The message is one of ours and quotes nothing of the file."""


_TRUNCATED = "is truncated, or damaged: an element is longer than the rest of the file"


def _read(data: bytes, max_inflated: int) -> DicomHeader:
    from pydicom.filereader import read_dataset

    stream = io.BytesIO(data)
    stream.seek(132 if data[128:132] == b"DICM" else 0)
    syntax = ""
    if data[stream.tell() : stream.tell() + 2] == b"\x02\0":
        meta = read_dataset(stream, False, True, stop_when=lambda tag, vr, length: tag.group != 2)
        syntax = _raw(meta, ["TransferSyntaxUID"]).get("TransferSyntaxUID", b"").decode("ascii", "replace").strip(" \0")
    little_endian = syntax != EXPLICIT_BIG
    if syntax == DEFLATED:
        stream = io.BytesIO(_inflated(data[stream.tell() :], max_inflated))
    tags = [_tag(name) for name in WANTED]
    dataset = read_dataset(stream, syntax in ("", IMPLICIT), little_endian, specific_tags=tags)
    # Values first: on the way into a sequence pydicom converts some of the elements outside it.
    values = _raw(dataset, [name for name in WANTED if not name.endswith("Sequence")])
    pixels: Any = dataset.get_item(_tag("PixelData")) if "PixelData" in values else None
    items = {
        name: tuple(
            DicomHeader(_raw(item, _IN_ITEMS), {}, little_endian) for item in dataset[_tag(name)].value[:_MOST_ITEMS]
        )
        for name in WANTED
        if name.endswith("Sequence") and _tag(name) in dataset
    }
    return DicomHeader(
        values,
        items,
        little_endian,
        syntax,
        encapsulated=pixels is not None and pixels.length == _UNDEFINED,
        pixels_are_words=pixels is not None and pixels.VR in (None, "OW"),
    )


def _tag(name: str) -> int:
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(name)
    assert tag is not None
    return tag


def _raw(dataset: Any, names: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of those elements that a data set has."""
    values = {}
    for name in names:
        if _tag(name) not in dataset:
            continue
        element: Any = dataset.get_item(_tag(name))
        value = b"" if element.value is None else element.value
        if not isinstance(value, bytes):
            raise TypeError("an element is unexpectedly a sequence")
        if element.length != _UNDEFINED and len(value) < element.length:
            raise _UnreadableError(_TRUNCATED)
        values[name] = value
    return values


def _inflated(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    inflated = inflater.decompress(data, limit + 1)
    if len(inflated) > limit:
        raise _UnreadableError(f"inflates to more than {limit:,} bytes")
    if not inflater.eof:
        raise _UnreadableError(_TRUNCATED)
    return inflated
