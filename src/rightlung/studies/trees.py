"""Files of a data set: found by their published names, walked without cycles, read on request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rightlung.core import Image, InputError
from rightlung.core.problem import Problem
from rightlung.studies.files import MAX_BYTES, read_regular, relative_name
from rightlung.studies.images import read_radiograph

IMAGE_SUFFIXES = (".dicom", ".dcm", ".png", ".jpg", ".jpeg")
"""Suffixes of images; the first of these wins if a folder has one image in two formats."""


def existing_path(text: str, what: str) -> Path:
    """Return an absolute path that must exist; ``what`` names it in messages."""
    try:
        path = Path(text).expanduser().absolute()
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{what} cannot be read: {error}") from None
    if not there:
        raise InputError(f"{what} does not exist")
    return path


def find_optional(root: Path, *names: str) -> Path | None:
    """Return the first of these relative names that exists, also with ``.gz`` added; None if there is none."""
    for name in names:
        for tried in (name, f"{name}.gz") if Path(name).suffix else (name,):
            path = root / tried
            try:
                if path.exists():
                    return path
            except OSError as error:
                raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return None


def find_file(root: Path, *names: str, what: str | None = None) -> Path:
    """Return the first of these relative names that exists; the error lists the names."""
    path = find_optional(root, *names)
    if path is None:
        looked = " or ".join(names)
        raise InputError(f"{root} has no {what + ' (' + looked + ')' if what else looked}")
    return path


def file_names(folder: Path) -> list[str]:
    """Return the sorted names in a folder."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (names, not Path objects)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from error


def folder_images(root: Path, folders: Iterable[str]) -> dict[str, str]:
    """Return the images in folders below ``root``: relative name by name without suffix."""
    found: dict[str, tuple[int, str]] = {}
    for folder in folders:
        for name in file_names(root / folder):
            stem, suffix = os.path.splitext(name)  # noqa: PTH122  (Path objects for 112,000 files take a second)
            if suffix.lower() in IMAGE_SUFFIXES:
                ranked = IMAGE_SUFFIXES.index(suffix.lower()), f"{folder}/{name}" if folder else name
                if stem not in found or ranked[0] < found[stem][0]:
                    found[stem] = ranked
    return {stem: name for stem, (_, name) in found.items()}


def walk_files(root: Path, suffixes: Iterable[str], problems: list[Problem]) -> Iterator[Path]:
    """Yield the files below a folder with these suffixes, in order, through symbolic links, each folder once.

    A link to a folder that was already visited, and an unreadable folder, are listed in ``problems``, or raised without
    such a list.
    """
    endings = tuple(suffix.lower() for suffix in suffixes)
    seen: dict[tuple[int, int], str] = {}
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)  # noqa: PTH116  (Path objects for 200,000 files take longer than the disk)
            first = seen.setdefault((status.st_dev, status.st_ino), folder)
            if first is not folder:
                raise InputError(f"{folder} leads to {first}, which was already read (a circular link?)")
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            folders = []
            for entry in found:
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.lower().endswith(endings):
                    yield Path(entry.path)
            waiting.extend(reversed(folders))
        except (OSError, InputError) as error:
            message = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            problems.append(Problem(folder, message))


@dataclass(frozen=True)
class FileImage:
    """Loads a study's image from a file below a folder; small, so that a study is cheap to pickle."""

    study_id: str
    root: str
    name: str

    def __call__(self) -> Image:
        """Read and decode the image."""
        what = f"study {self.study_id!r}: image {self.path}"
        return read_radiograph(read_tree_file(self.root, self.name, what), what)

    @property
    def path(self) -> str:
        """The path of the file."""
        return os.path.join(self.root, relative_name(self.name))  # noqa: PTH118


def read_tree_file(root: str, name: str, what: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file below a folder; the error distinguishes a missing file from a missing folder."""
    path = Path(root) / relative_name(name)
    try:
        return read_regular(path, what, max_bytes)
    except InputError:
        check_folder(root, what)
        raise


def check_folder(root: str, what: str) -> None:
    """Raise an error if a folder has disappeared since its source was opened; ``what`` was to be read from it."""
    if not os.path.isdir(root):  # noqa: PTH112
        raise InputError(f"{what} cannot be read: folder {root} no longer exists; is its disk mounted?")
