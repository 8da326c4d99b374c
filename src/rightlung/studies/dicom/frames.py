"""Stored pixel values of a DICOM image with one frame; sizes are checked first (PS3.3 C.7.6.3, PS3.5 section 8)."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.studies.dicom.header import DicomHeader
from rightlung.studies.dicom.quiet import quiet
from rightlung.studies.dicom.syntaxes import SYNTAXES, Syntax, codestream_size
from rightlung.studies.files import check_pixel_count

_ITEM = b"\xfe\xff\x00\xe0"
_UNSIGNED = {8: "u1", 16: "u2", 32: "u4"}


@dataclass(frozen=True, slots=True)
class Layout:
    """How pixels are stored: size, bits, sign, and whether the lowest value is white (MONOCHROME1)."""

    rows: int
    columns: int
    allocated: int
    bits: int
    high_bit: int
    signed: bool
    inverted: bool

    @property
    def lowest(self) -> int:
        """The lowest possible value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def levels(self) -> int:
        """The number of possible values."""
        return 1 << self.bits


def read_layout(header: DicomHeader, what: str, max_pixels: int) -> Layout:
    """Read and check the layout, before anything is decoded."""
    if header.has("FloatPixelData") or header.has("DoubleFloatPixelData"):
        raise InputError(f"{what} has floating-point pixels, which no radiograph has")
    rows, columns = header.word("Rows"), header.word("Columns")
    if not rows or not columns:
        raise InputError(f"{what} is a DICOM file without an image: its header gives no Rows and Columns")
    check_pixel_count(columns, rows, max_pixels, what)
    frames = header.numbers("NumberOfFrames")
    if header.has("NumberOfFrames") and (not frames or frames[0] > 1):
        how_many = f"{frames[0]:,.0f} frames" if frames else "an unreadable number of frames"
        raise InputError(f"{what} has {how_many}; a radiograph has one")
    photometric = header.text("PhotometricInterpretation")
    samples = header.word("SamplesPerPixel")
    if samples not in (None, 1) or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise InputError(
            f"{what} is not a grey image: its Photometric Interpretation must be MONOCHROME1 or MONOCHROME2; "
            "export colour images as PNG"
        )
    allocated, bits = header.word("BitsAllocated"), header.word("BitsStored")
    if allocated not in _UNSIGNED:
        raise InputError(f"{what} has Bits Allocated {allocated}; only 8, 16 and 32 are supported")
    bits = allocated if bits is None else bits
    high_bit = header.word("HighBit")
    high_bit = bits - 1 if high_bit is None else high_bit
    if not 1 <= bits <= 16 or not bits - 1 <= high_bit < allocated:
        raise InputError(
            f"{what} has Bits Stored {bits} with High Bit {high_bit} in {allocated} bits; at most 16 that fit are read"
        )
    return Layout(
        rows, columns, allocated, bits, high_bit, header.word("PixelRepresentation") == 1, photometric == "MONOCHROME1"
    )


def read_levels(header: DicomHeader, layout: Layout, what: str) -> NDArray[np.uint16]:
    """Return stored values ``(rows, columns)``, counted from the lowest possible one, as table indices."""
    syntax = SYNTAXES.get(header.syntax)
    if syntax is None:
        known = header.syntax.startswith("1.2.840.10008.1.2.") and set(header.syntax) <= set("0123456789.")
        name = f" {header.syntax}" if known else ""
        raise InputError(f"{what} has an unsupported transfer syntax{name}")
    data = header.values.get("PixelData", b"")
    if not data:
        raise InputError(f"{what} has no pixel data, or is truncated before it")
    if header.encapsulated != (syntax.packing != "native"):
        really = "is compressed" if header.encapsulated else "is not compressed"
        raise InputError(f"{what} is damaged: its transfer syntax is {syntax.name}, but its pixel data {really}")
    if syntax.packing == "native":
        return _counted(_native(data, header, layout, what), layout)
    fragments = _fragments(data, what)
    if syntax.packing == "rle":
        return _counted(_run_lengths(fragments[0], layout, what), layout)
    return _decoded(b"".join(fragments), header, layout, syntax, what)


def _native(data: bytes, header: DicomHeader, layout: Layout, what: str) -> NDArray[np.unsignedinteger]:
    count = layout.rows * layout.columns
    needed = count * layout.allocated // 8
    if len(data) < needed:
        raise InputError(f"{what} is truncated: it holds {len(data):,} of {needed:,} bytes of pixel data")
    order = "<" if header.little_endian else ">"
    if layout.allocated == 8 and not header.little_endian and header.pixels_are_words:
        whole = data[: needed + needed % 2]
        if len(whole) % 2:
            raise InputError(f"{what} is truncated: it holds {len(data):,} of {needed + 1:,} bytes of pixel data")
        return np.frombuffer(np.frombuffer(whole, ">u2").astype("<u2").tobytes(), "u1", count)
    return np.frombuffer(data, f"{order}{_UNSIGNED[layout.allocated]}", count)


def _counted(stored: NDArray[np.unsignedinteger], layout: Layout) -> NDArray[np.uint16]:
    """Extract the stored bits from the allocated ones (others may hold overlays) and count from the lowest value."""
    values = (stored >> (layout.high_bit + 1 - layout.bits)).astype(np.uint16)
    if layout.bits < 16:
        values &= np.uint16(layout.levels - 1)
    if layout.signed:  # two's complement: inverting the sign bit counts from the lowest value
        values ^= np.uint16(1 << (layout.bits - 1))
    return values.reshape(layout.rows, layout.columns)


def _fragments(data: bytes, what: str) -> list[bytes]:
    """Return the fragments of compressed pixel data without the offset table (PS3.5 A.4)."""
    fragments, position = [], 0
    while position + 8 <= len(data) and data[position : position + 4] == _ITEM:
        (length,) = struct.unpack_from("<I", data, position + 4)
        if position + 8 + length > len(data):
            raise InputError(f"{what} is truncated: its compressed pixel data ends too soon")
        fragments.append(data[position + 8 : position + 8 + length])
        position += 8 + length
    if len(fragments) < 2:
        raise InputError(f"{what} is damaged: its compressed pixel data contains no image")
    return fragments[1:]


def _run_lengths(frame: bytes, layout: Layout, what: str) -> NDArray[np.unsignedinteger]:
    """Decode RLE Lossless (PS3.5 annex G): one segment per byte of a pixel, the highest first."""
    count, width = layout.rows * layout.columns, layout.allocated // 8
    starts = struct.unpack("<16I", frame[:64]) if len(frame) >= 64 else (0,)
    if starts[0] != width:
        raise InputError(f"{what} is damaged: its RLE data should have {width} segments, one for each byte of a pixel")
    values = np.zeros((count, width), dtype=np.uint8)
    for index in range(width):
        start = starts[1 + index]
        end = starts[2 + index] if index + 1 < width else len(frame)
        if not 64 <= start <= end <= len(frame):
            raise InputError(f"{what} is damaged: an RLE segment lies outside the pixel data")
        values[:, width - 1 - index] = _unpacked_bits(frame[start:end], count, what)
    return values.reshape(-1).view(f"<{_UNSIGNED[layout.allocated]}")


def _unpacked_bits(segment: bytes, count: int, what: str) -> NDArray[np.uint8]:
    """Decode one segment, never to more than ``count`` bytes."""
    pieces: list[bytes] = []
    position = found = 0
    while found < count:
        if position + 1 >= len(segment):
            raise InputError(f"{what} is truncated: its RLE data gives {found:,} of {count:,} bytes")
        head = segment[position]
        if head == 128:
            position += 1
            continue
        if head < 128:
            piece = segment[position + 1 : position + 2 + head]
            position += 2 + head
        else:
            piece = segment[position + 1 : position + 2] * (257 - head)
            position += 2
        pieces.append(piece)
        found += len(piece)
    return np.frombuffer(b"".join(pieces), np.uint8, count)


def _decoded(frame: bytes, header: DicomHeader, layout: Layout, syntax: Syntax, what: str) -> NDArray[np.uint16]:
    """Decode JPEG, JPEG-LS or JPEG 2000 after checking that the stream's own size matches the header."""
    size = codestream_size(frame)
    if size is None or size.packing != syntax.packing:
        raise InputError(f"{what} is damaged: its pixel data is not {syntax.name}, as its header says")
    if (size.width, size.height, size.components) != (layout.columns, layout.rows, 1):
        raise InputError(
            f"{what} is damaged: its header says {layout.columns:,} x {layout.rows:,} pixels in one channel, but the "
            f"{syntax.name} image has {size.width:,} x {size.height:,} in {size.components}"
        )
    trouble: str
    values: NDArray[Any] | None
    try:
        if syntax.packing == "jpeg" and size.bits == 8:
            values = _pillow_jpeg(frame)
        else:
            with quiet():
                values = _plugin(frame, header, layout, size.bits)
        if values is not None:
            signed = values.astype(np.int64).reshape(layout.rows, layout.columns)
            if layout.signed and values.dtype.kind == "u":
                signed = np.where(signed >= layout.levels // 2, signed - layout.levels, signed)
            return np.clip(signed - layout.lowest, 0, layout.levels - 1).astype(np.uint16)
        trouble = f"is compressed with {syntax.name} ({size.bits} bits); to read it, install {syntax.needs}"
    except MemoryError:
        trouble = "does not fit into memory"
    except Exception:  # on hostile bytes the decoders raise errors of every kind
        trouble = f"is truncated or damaged: its {syntax.name} pixel data cannot be decoded"
    raise InputError(f"{what} {trouble}")


def _pillow_jpeg(frame: bytes) -> NDArray[Any]:
    from PIL import ImageFile
    from PIL.JpegImagePlugin import JpegImageFile

    image = JpegImageFile(io.BytesIO(frame))
    if image.mode != "L" or ImageFile.LOAD_TRUNCATED_IMAGES:  # the option hides missing pixels
        raise ValueError
    image.load()
    return np.asarray(image)


def _plugin(frame: bytes, header: DicomHeader, layout: Layout, bits: int) -> NDArray[Any] | None:
    """Decode with an installed pydicom plugin; return None if there is none."""
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    decoder = get_decoder(header.syntax)
    # Pillow rescales JPEG 2000 of more than eight bits, and does not read JPEG of more than eight.
    plugins = [name for name in decoder.available_plugins if name != "pillow" or bits <= 8]
    if not plugins:
        return None
    options: dict[str, Any] = {
        "rows": layout.rows,
        "columns": layout.columns,
        "number_of_frames": 1,
        "samples_per_pixel": 1,
        "photometric_interpretation": "MONOCHROME2",
        "pixel_representation": int(layout.signed),
        "bits_allocated": layout.allocated,
        "bits_stored": layout.bits,
        "pixel_keyword": "PixelData",
    }
    values, _ = decoder.as_array(encapsulate([frame]), index=0, raw=True, decoding_plugin=plugins[0], **options)
    return values
