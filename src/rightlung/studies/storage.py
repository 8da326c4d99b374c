"""Storage of a manifest's files: a folder, or a tar archive that is indexed once and never unpacked.

Both find a file by its relative name and return a small `StoredFile` that reads the bytes later, in any thread or
process.
"""

from __future__ import annotations

import os
import tarfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rightlung.core import InputError
from rightlung.core.errors import MissingFileError
from rightlung.studies.files import (
    MAX_BYTES,
    check_byte_count,
    file_identity,
    open_regular,
    pread_exactly,
    read_regular,
    relative_name,
    resolved_inside,
)

MANIFEST = "manifest.jsonl"
_COMPRESSED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip",
}  # fmt: skip


class RandomAccessFile:
    """A file for reading at offsets, opened on first use and once per process.

    All studies of a source that are pickled into a process share one descriptor. The pickle contains the path and the
    file's size and modification time, to detect a file that was replaced after indexing.
    """

    def __init__(self, path: str, identity: tuple[int, int] | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._identity = identity
        self.size = self._open()[1] if identity is None else identity[0]

    def _open(self) -> tuple[int, int]:
        with self._lock:
            if self._descriptor is None or self._identity is None:
                descriptor, status = open_regular(self.path, self.path)
                identity = status.st_size, status.st_mtime_ns
                if self._identity not in (None, identity):
                    os.close(descriptor)
                    raise InputError(f"{self.path} has changed since it was opened as a source; open it again")
                self._descriptor, self._identity = descriptor, identity
                weakref.finalize(self, os.close, descriptor)
            return self._descriptor, self._identity[0]

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Return ``size`` bytes from ``offset``."""
        return pread_exactly(self._open()[0], offset, size, what)

    def __reduce__(self) -> tuple[Callable[..., RandomAccessFile], tuple[str, tuple[int, int] | None]]:
        return _in_this_process, (self.path, self._identity)


_open_files: weakref.WeakValueDictionary[tuple[str, tuple[int, int]], RandomAccessFile] = weakref.WeakValueDictionary()
_open_files_lock = threading.Lock()


def _in_this_process(path: str, identity: tuple[int, int]) -> RandomAccessFile:
    """Return this process's access to a pickled file."""
    with _open_files_lock:
        return _open_files.setdefault((path, identity), RandomAccessFile(path, identity))


@dataclass(frozen=True)
class FolderFile:
    """A file in a folder."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, what: str, max_bytes: int = MAX_BYTES) -> bytes:
        """Return its bytes."""
        return read_regular(self.path, what, max_bytes)

    def identity(self) -> str | None:
        """Return a text that changes whenever the file does."""
        return file_identity(self.path)


@dataclass(frozen=True)
class ArchiveFile:
    """A member of a tar archive, as a range of its bytes."""

    archive: RandomAccessFile
    name: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} in {self.archive.path}"

    def read(self, what: str, max_bytes: int = MAX_BYTES) -> bytes:
        """Return its bytes."""
        check_byte_count(self.size, max_bytes, what)
        return self.archive.read(self.offset, self.size, what)

    def identity(self) -> str | None:
        """Return a text that changes whenever the archive does."""
        return file_identity(self.archive.path)


StoredFile = FolderFile | ArchiveFile
"""A file inside a folder or an archive; ``str()`` names it in messages."""


class FolderStorage:
    """A folder with a ``manifest.jsonl``.

    Missing images are detected when they are read, because asking a network file system about 200,000 files would take
    longer than most runs.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.manifest_name = MANIFEST
        path = Path(root) / MANIFEST
        if not path.exists():
            raise InputError(f"folder {root} has no {MANIFEST}")
        self.manifest = RandomAccessFile(str(path))
        self.manifest_offset, self.manifest_size = 0, self.manifest.size

    def check(self, name: str) -> None:
        """Reject names that lead out of the folder."""
        relative_name(name)

    def find(self, name: str) -> StoredFile:
        """Return the file with this name; reject symbolic links that lead out of the folder."""
        return FolderFile(resolved_inside(self.root, relative_name(name)))


class ArchiveStorage:
    """A tar archive whose member headers were read once. File names are relative to its manifest's folder."""

    def __init__(self, path: str) -> None:
        self.manifest = RandomAccessFile(path)
        self._members = _index_members(path)
        nested = [name for name in self._members if name.endswith("/" + MANIFEST)]
        found = [MANIFEST] if MANIFEST in self._members else nested
        if not found:
            raise InputError(f"archive {path} has no {MANIFEST}")
        if len(found) > 1:
            raise InputError(f"archive {path} has several manifests, {found[0]} and {found[1]}; one is needed")
        self.manifest_name = found[0]
        self._folder = self.manifest_name.removesuffix(MANIFEST)
        self.manifest_offset, self.manifest_size = self._members[self.manifest_name]

    def check(self, name: str) -> None:
        """Reject names that lead out of the archive or are not in it."""
        self.find(name)

    def find(self, name: str) -> StoredFile:
        """Return the member with this name."""
        member = self._folder + relative_name(name)
        if member not in self._members:
            raise MissingFileError(f"file {name!r} is not in the archive")
        return ArchiveFile(self.manifest, member, *self._members[member])


Storage = FolderStorage | ArchiveStorage
"""A manifest and the files next to it."""


def open_storage(path: str) -> Storage:
    """Open the folder or tar archive at ``path``."""
    try:
        absolute = Path(path).expanduser().absolute()
    except RuntimeError as error:  # no such user
        raise InputError(f"{path}: {error}") from None
    if absolute.is_dir():
        return FolderStorage(str(absolute))
    if absolute.name == MANIFEST and absolute.is_file():
        raise InputError(f"{path} is the manifest itself; give its folder, {absolute.parent}")
    return ArchiveStorage(str(absolute))


def _index_members(path: str) -> dict[str, tuple[int, int]]:
    """Return the byte ranges of the regular files in a tar archive; reject an archive that could do harm.

    Nothing is ever unpacked here, so a hostile name or link is harmless; but the same archive may be unpacked
    elsewhere.
    """
    descriptor, _ = open_regular(path, path)
    members: dict[str, tuple[int, int]] = {}
    with os.fdopen(descriptor, "rb") as file:
        start = file.read(8)
        for magic, kind in _COMPRESSED.items():
            if start.startswith(magic):
                raise InputError(f"archive {path} is compressed ({kind}); decompress it to a plain tar first")
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                before = -1
                while (member := archive.next()) is not None:
                    archive.members.clear()  # type: ignore[attr-defined]  # else every header stays in memory
                    # A damaged size can send the reader backwards forever.
                    if member.offset_data <= before or member.size < 0:
                        raise InputError(f"archive {path} is damaged at member {member.name!r}")
                    before = member.offset_data
                    _add_member(members, member, path)
                end = archive.offset
            file.seek(end)
            last = file.read(tarfile.BLOCKSIZE)
        except InputError:
            raise
        except (tarfile.TarError, OSError, EOFError, OverflowError, ValueError) as error:
            kind = "truncated or damaged" if members else "not a tar archive, or truncated"
            raise InputError(f"archive {path} is {kind}: {error}") from error
    # tarfile stops silently at an invalid or truncated header; a complete archive ends with zeros.
    if last != bytes(tarfile.BLOCKSIZE):
        kind = "damaged" if len(last) == tarfile.BLOCKSIZE else "truncated"
        raise InputError(f"archive {path} is {kind}: it ends at byte {end:,}, after {len(members):,} files")
    return members


def _add_member(members: dict[str, tuple[int, int]], member: tarfile.TarInfo, path: str) -> None:
    refused = f"archive {path} is refused: member {member.name!r}"
    if member.issym() or member.islnk():
        raise InputError(f"{refused} is a link")
    if not (member.isdir() or member.isreg()) or member.issparse():
        kind = "a device or pipe" if member.isdev() else "neither a file nor a folder"
        raise InputError(f"{refused} is {'a sparse file' if member.issparse() else kind}")
    if member.isdir() and member.name == ".":
        return  # the archive's own folder
    try:
        name = relative_name(member.name)
    except InputError as error:
        raise InputError(f"archive {path} is refused: {error}") from None
    if member.isdir():
        return
    if name in members:
        raise InputError(f"{refused} is in the archive twice")
    members[name] = member.offset_data, member.size
