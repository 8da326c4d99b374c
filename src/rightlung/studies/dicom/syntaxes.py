"""Transfer syntaxes: how the pixels of a DICOM file are packed, and what is needed to unpack them (PS3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

IMPLICIT = "1.2.840.10008.1.2"
DEFLATED = "1.2.840.10008.1.2.1.99"
EXPLICIT_BIG = "1.2.840.10008.1.2.2"

Packing = Literal["native", "rle", "jpeg", "jpeg-ls", "jpeg-2000"]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A transfer syntax: its name for people, how pixels are packed, and which package unpacks what we do not."""

    name: str
    packing: Packing
    needs: str = ""


_OPENJPEG = "pylibjpeg and pylibjpeg-openjpeg: pip install 'rightlung[dicom]'"
# pylibjpeg-libjpeg reads these, too, but is under the GPL, so it is named and not required.
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
