"""Shared by the readers of published data sets: options, tables to records, records to studies.

``docs/sources.md`` describes the files and parameters of each reader and how it converts annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rightlung.core import Box, Image, InputError, Study
from rightlung.core.checks import Size
from rightlung.core.errors import unknown_name
from rightlung.studies.files import file_identity
from rightlung.studies.headers import ImageHeader, image_kind, read_header
from rightlung.studies.index import BuildLog, IndexedSource
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box
from rightlung.studies.trees import FileImage, existing_path, find_file, find_optional

NIH_SIZE = (1024, 1024)
"""Height and width of NIH's published images, to whose pixels boxes and masks of four data sets refer."""
_FIELDS = ("patient", "exam", "view", "split", "age", "sex")
Key = TypeVar("Key")
Value = TypeVar("Value")


def columns(*texts: str, **others: Any) -> Mapping[str, Any]:
    """Return the columns of an index: a study's fields, additional texts, and additional columns with types."""
    fields: dict[str, Any] = dict.fromkeys(("image", "patient", "exam", "view", "sex", *texts), "string")
    return {**fields, "age": "float64", **others}


class ImageFile(Protocol):
    """Loads an image from a file."""

    @property
    def path(self) -> str:
        """The path of the file."""

    def __call__(self) -> Image:
        """Read and decode the image."""


class DatasetSource(IndexedSource):
    """A published data set. Its records name a study's fields as `Study` does, and the image file ``image``."""

    images: Path
    """The folder of the images, if it is not the data set's own."""

    def option(self, name: str, known: Iterable[str], default: str = "") -> str:
        """Return a parameter of the address, which must be one of ``known``, or the default."""
        value = self.options.get(name)
        if value is not None and value not in known:
            raise unknown_name(name, value, known)
        return default if value is None else value

    def given(self, name: str) -> Path | None:
        """Return the existing path in a parameter of the address; None without the parameter."""
        text = self.options.get(name)
        return None if text is None else existing_path(text, f"{self.address}: {name}={text}")

    def find(self, *names: str) -> Path | None:
        """Return the first of these names below the data set's folder that exists, also with ``.gz`` added."""
        return find_optional(self.root, *names)

    def needed(self, *names: str, what: str | None = None) -> Path:
        """Return the first of these names that exists; raise an error with the names if there is none."""
        return find_file(self.root, *names, what=what)

    def folders(self, *names: str) -> list[str]:
        """Return those of the relative names that are folders."""
        return [name for name in names if (self.root / name).is_dir()]

    def image_folders(self, *names: str) -> list[str]:
        """Return those of the relative names that are folders; raise an error if there is none."""
        folders = self.folders(*names)
        if not folders:
            raise InputError(f"{self.root} has no folder with images ({' or '.join(names)})")
        return folders

    def read(
        self,
        log: BuildLog,
        path: Path | None,
        required: Iterable[str],
        parse: Callable[[TableRow], Value | None],
        **how: Any,
    ) -> Iterator[Value]:
        """Yield what ``parse`` returns for each row of a table; nothing if ``path`` is None."""
        if path is not None:
            yield from CsvTable(path, required, problems=log.problems, **{"root": self.root, **how}).read(parse)

    def sizes(
        self, log: BuildLog, path: Path | None, names: Sequence[str], wanted: Container[str] | None = None
    ) -> dict[str, Size]:
        """Return height and width of images by id, from a table's columns for id, height and width."""

        def parse(row: TableRow) -> tuple[str, Size] | None:
            image = row.required(names[0])
            if wanted is not None and image not in wanted:
                return None
            return image, (int(row.required_number(names[1], 1)), int(row.required_number(names[2], 1)))

        return dict(self.read(log, path, names, parse))

    def header(self, record: Mapping[str, Any], field: str) -> ImageHeader:
        """Read the header of a record's image; ``field`` names the image in the table."""
        path = self.root / record["image"]
        try:
            return read_header(path, f"study {record['id']!r}: image {path}")
        except InputError as error:
            raise self.problem(record, field, str(error), image_kind(error)) from error

    def as_study(self, record: Mapping[str, Any], header: ImageHeader | None = None, **known: Any) -> Study:
        """Return a study with a record's fields, those of its image's header, and other known values."""
        fields = {name: record.get(name) for name in _FIELDS}
        if header is not None:
            fields |= {"view": header.view, "age": header.age, "sex": header.sex}
        known = {"id": record["id"], "source": self.address, "load": self.image_of(record), **fields, **known}
        return Study(**known)

    def image_of(self, record: Mapping[str, Any]) -> ImageFile:
        """Return what loads the image of a record."""
        return FileImage(record["id"], str(getattr(self, "images", self.root)), record["image"])

    def image_identity(self, position: int) -> str | None:
        """Return the size and modification time of a study's image file."""
        return file_identity(self.image_of(self.record(position)).path)


def origin(row: TableRow) -> dict[str, Any]:
    """Return the file and line of a row, for its record."""
    return {"file": row.file, "line": row.line}


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, in order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def present(*paths: Path | None) -> list[Path]:
    """Return the paths that exist."""
    return [path for path in paths if path is not None]


def corner_box(row: TableRow, names: Sequence[str], size: Size, field: str) -> Box:
    """Return the box from columns with left, top, width and height in pixels; errors name ``field``."""
    x, y, width, height = (row.required_number(name) for name in names)
    try:
        return pixel_box((x, y, x + width, y + height), size)
    except InputError as error:
        raise row.error(field, str(error), box_kind(error)) from None
