"""Check a PNG file before it is decoded (PNG specification, third edition).

Pillow ignores the checksums of pixel data and returns an image with a black lower part if a stream ends early but
cleanly. A radiograph that is silently half black is worse than none, so checksums and the amount of pixel data are
checked here.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rightlung.core import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Adam7: first column, first row, column step, row step of each of the seven passes.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_PIECE = 2**20


@dataclass(frozen=True, slots=True)
class PngHeader:
    """The image header: size, bits per channel, colour type, and whether rows are interlaced."""

    width: int
    height: int
    depth: int
    colour_type: int
    interlaced: bool

    def pixel_bytes(self) -> int:
        """Return how many bytes of (filtered) pixel data the file must contain."""
        passes = _PASSES if self.interlaced else ((0, 0, 1, 1),)
        bits = self.depth * _CHANNELS[self.colour_type]
        total = 0
        for left, top, across, down in passes:
            columns = -(-(self.width - left) // across)
            rows = -(-(self.height - top) // down)
            if columns > 0 and rows > 0:
                total += rows * (1 + -(-columns * bits // 8))
        return total


def read_header(data: bytes, what: str) -> PngHeader:
    """Read the image header, the first 33 bytes of a PNG file."""
    if len(data) < 33:
        raise InputError(f"{what} is truncated: a PNG file has at least 33 bytes, this one {len(data)}")
    length, kind = struct.unpack(">I4s", data[8:16])
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", data[16:29])
    (checksum,) = struct.unpack(">I", data[29:33])
    if kind != b"IHDR" or length != 13 or checksum != zlib.crc32(data[12:29]):
        raise InputError(f"{what} is damaged: its PNG header is not valid")
    if not (width and height) or depth not in (1, 2, 4, 8, 16) or colour_type not in _CHANNELS or interlace > 1:
        raise InputError(f"{what} is damaged: its PNG header has impossible values")
    return PngHeader(width, height, depth, colour_type, interlace == 1)


def may_hold_exif(file: BinaryIO) -> bool:
    """Whether a PNG file has a chunk that may hold EXIF data; pixel data is skipped, not read."""
    file.seek(len(SIGNATURE))
    while len(start := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", start)
        if kind in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"):
            return True
        file.seek(length + 4, os.SEEK_CUR)
    return False


def check_whole(data: bytes, header: PngHeader, what: str) -> None:
    """Check every chunk's checksum, the end of the file, and that no pixel data is missing."""
    expected = header.pixel_bytes()
    inflater, found = zlib.decompressobj(), 0
    for kind, content in _chunks(data, what):
        pending: bytes | memoryview = content if kind == b"IDAT" else b""
        # In pieces, so that a small file that inflates to gigabytes never fills the memory.
        while found < expected and not inflater.eof:
            try:
                piece = inflater.decompress(pending, _PIECE)
            except zlib.error as error:
                raise InputError(f"{what} is damaged: its pixel data does not decompress ({error})") from None
            found += len(piece)
            pending = inflater.unconsumed_tail
            if not pending and len(piece) < _PIECE:
                break
    if found < expected:
        raise InputError(f"{what} is truncated: it holds {found:,} of {expected:,} bytes of pixel data")


def _chunks(data: bytes, what: str) -> Iterator[tuple[bytes, memoryview]]:
    view, position = memoryview(data), len(SIGNATURE)
    while True:
        if position + 12 > len(data):
            raise InputError(f"{what} is truncated: the PNG file has no end")
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data):
            raise InputError(f"{what} is truncated: {end - len(data):,} or more bytes are missing at the end")
        (checksum,) = struct.unpack_from(">I", data, end - 4)
        if checksum != zlib.crc32(view[position + 4 : end - 4]):
            raise InputError(f"{what} is damaged: the checksum of the part at byte {position:,} is wrong")
        if kind == b"IEND":
            return
        yield kind, view[position + 8 : end - 4]
        position = end
