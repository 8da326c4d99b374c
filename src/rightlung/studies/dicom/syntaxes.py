"""Transfer syntaxes: how pixels are stored in a DICOM file, and which packages decode them (PS3.5).

The size of a compressed image is read from its own first markers before decoding, because a DICOM header may say 10 by
10 and the JPEG inside it 60,000 by 60,000.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

IMPLICIT = "1.2.840.10008.1.2"
DEFLATED = "1.2.840.10008.1.2.1.99"
EXPLICIT_BIG = "1.2.840.10008.1.2.2"

Packing = Literal["native", "rle", "jpeg", "jpeg-ls", "jpeg-2000"]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A transfer syntax: its name, how pixels are stored, and the package that decodes what we do not."""

    name: str
    packing: Packing
    needs: str = ""


_OPENJPEG = "pylibjpeg and pylibjpeg-openjpeg: pip install pylibjpeg pylibjpeg-openjpeg"
# pylibjpeg-libjpeg reads these, too, but is under the GPL, so it is mentioned and not required.
_LOSSLESS = "python-gdcm (or pylibjpeg-libjpeg, which is under the GPL)"

SYNTAXES = {
    "": Syntax("no transfer syntax", "native"),
    IMPLICIT: Syntax("Implicit VR Little Endian", "native"),
    "1.2.840.10008.1.2.1": Syntax("Explicit VR Little Endian", "native"),
    DEFLATED: Syntax("Deflated Explicit VR Little Endian", "native"),
    EXPLICIT_BIG: Syntax("Explicit VR Big Endian", "native"),
    "1.2.840.10008.1.2.5": Syntax("RLE Lossless", "rle"),
    "1.2.840.10008.1.2.4.50": Syntax("JPEG Baseline", "jpeg", _LOSSLESS),
    "1.2.840.10008.1.2.4.51": Syntax("JPEG Extended", "jpeg", _LOSSLESS),
    "1.2.840.10008.1.2.4.57": Syntax("JPEG Lossless", "jpeg", _LOSSLESS),
    "1.2.840.10008.1.2.4.70": Syntax("JPEG Lossless SV1", "jpeg", _LOSSLESS),
    "1.2.840.10008.1.2.4.80": Syntax("JPEG-LS Lossless", "jpeg-ls", "pyjpegls, or python-gdcm"),
    "1.2.840.10008.1.2.4.81": Syntax("JPEG-LS Near-lossless", "jpeg-ls", "pyjpegls, or python-gdcm"),
    "1.2.840.10008.1.2.4.90": Syntax("JPEG 2000 Lossless", "jpeg-2000", _OPENJPEG),
    "1.2.840.10008.1.2.4.91": Syntax("JPEG 2000", "jpeg-2000", _OPENJPEG),
    "1.2.840.10008.1.2.4.201": Syntax("High-Throughput JPEG 2000 Lossless", "jpeg-2000", _OPENJPEG),
    "1.2.840.10008.1.2.4.202": Syntax("High-Throughput JPEG 2000 Lossless RPCL", "jpeg-2000", _OPENJPEG),
    "1.2.840.10008.1.2.4.203": Syntax("High-Throughput JPEG 2000", "jpeg-2000", _OPENJPEG),
}

_FRAME_STARTS = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF, 0xF7}
_JPEG_LS = 0xF7
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD9)}
_JP2 = b"\0\0\0\x0cjP  \r\n\x87\n"


@dataclass(frozen=True, slots=True)
class CodestreamSize:
    """The size of a compressed image, its components, the bits of each, and the compression."""

    width: int
    height: int
    components: int
    bits: int
    packing: Packing


def codestream_size(frame: bytes) -> CodestreamSize | None:
    """Return the size in the header of a JPEG, JPEG-LS or JPEG 2000 stream; None if it cannot be read.

    >>> jpeg = bytes.fromhex("ffd8 ffc0 000b 08 0010 0020 01 01 11 00")
    >>> codestream_size(jpeg)
    CodestreamSize(width=32, height=16, components=1, bits=8, packing='jpeg')
    """
    try:
        if frame.startswith(_JP2):
            return _jpeg_2000(frame, frame.index(b"\xff\x4f\xff\x51"))
        if frame.startswith(b"\xff\x4f\xff\x51"):
            return _jpeg_2000(frame, 0)
        if frame.startswith(b"\xff\xd8"):
            return _jpeg(frame)
    except (struct.error, ValueError):
        return None
    return None


def _jpeg_2000(frame: bytes, start: int) -> CodestreamSize:
    # SIZ (ISO/IEC 15444-1, A.5.1): capabilities, grid size, grid offset, tiles, components, bits of the first.
    width, height, left, top = struct.unpack_from(">IIII", frame, start + 8)
    components, depth = struct.unpack_from(">HB", frame, start + 40)
    return CodestreamSize(width - left, height - top, components, (depth & 0x7F) + 1, "jpeg-2000")


def _jpeg(frame: bytes) -> CodestreamSize | None:
    position = 2
    while True:
        mark, kind = struct.unpack_from(">BB", frame, position)
        if mark != 0xFF:
            return None
        if kind == 0xFF:  # fill bytes
            position += 1
        elif kind in _WITHOUT_LENGTH:
            position += 2
        elif kind in _FRAME_STARTS:
            bits, height, width, components = struct.unpack_from(">BHHB", frame, position + 4)
            return CodestreamSize(width, height, components, bits, "jpeg-ls" if kind == _JPEG_LS else "jpeg")
        else:
            position += 2 + struct.unpack_from(">H", frame, position + 2)[0]
