"""Files inside zip archives, located once and then read in place by any process.

Opening an archive of 227,000 reports with the standard library takes seconds and hundreds of megabytes in every worker.
An index needs four numbers per file instead.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rightlung.core import InputError
from rightlung.studies.files import MAX_BYTES, check_byte_count, relative_name
from rightlung.studies.storage import RandomAccessFile

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 0x1
# Names that `relative_name` returns unchanged, which is nearly all of them: 227,000 need not be parsed.
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class Member(NamedTuple):
    """A file in an archive: offset of its local header, compressed and uncompressed size, and compression method."""

    offset: int
    stored: int
    size: int
    method: int


def members(path: Path) -> Iterator[tuple[str, Member]]:
    """Yield the names and positions of the files of a zip archive; reject names that lead out of it."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.is_dir() or info.filename.startswith("__MACOSX/"):
                    continue
                try:
                    name = info.filename if _PLAIN.fullmatch(info.filename) else relative_name(info.filename)
                except InputError as error:
                    raise InputError(f"archive {path} is refused: {error}") from None
                if info.flag_bits & _ENCRYPTED:
                    raise InputError(f"archive {path} is refused: member {name!r} is encrypted")
                yield name, Member(info.header_offset, info.compress_size, info.file_size, info.compress_type)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"archive {path} cannot be read: {reason}") from error


def read_member(archive: RandomAccessFile, member: Member, what: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a member, if they are at most ``max_bytes``, without the archive's directory."""
    check_byte_count(member.size, max_bytes, what)
    header = _LOCAL_HEADER.unpack(archive.read(member.offset, _LOCAL_HEADER.size, what))
    if header[0] != b"PK\x03\x04":
        raise InputError(f"{what} is not at its place in the archive; the archive is damaged or was replaced")
    data = archive.read(member.offset + _LOCAL_HEADER.size + header[9] + header[10], member.stored, what)
    if member.method == zipfile.ZIP_STORED:
        return data
    if member.method != zipfile.ZIP_DEFLATED:
        raise InputError(f"{what} uses the unsupported compression method {member.method}; unpack the archive")
    try:
        plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, member.size + 1)
    except zlib.error as error:
        raise InputError(f"{what} is damaged: {error}") from error
    if len(plain) != member.size:
        raise InputError(f"{what} is damaged: it does not have the {member.size:,} bytes that the archive states")
    return plain
