"""Locations of images and reports, shared by all data sets on MIMIC-CXR's images.

Images are ``files/p10/p10000032/s50414267/DICOM_ID.jpg`` (MIMIC-CXR-JPG) or ``.dcm`` (MIMIC-CXR); reports are
``files/p10/p10000032/s50414267.txt``, in a folder or in ``mimic-cxr-reports.zip``. ``files`` may be missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from rightlung.core import Image, InputError, Report, Size
from rightlung.studies.headers import read_header
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource
from rightlung.studies.storage import RandomAccessFile
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import FileImage, check_folder, find_optional, read_tree_file
from rightlung.studies.zips import Member, members, read_member

METADATA = "mimic-cxr-2.0.0-metadata.csv"
SPLIT = "mimic-cxr-2.0.0-split.csv"
REPORTS_ZIP = "mimic-cxr-reports.zip"
MAX_REPORT_BYTES = 2**20

_SUFFIXES = (".jpg", ".dcm", ".png")
_PATIENT_FOLDER = re.compile(r"p1[0-9]")
_REPORT_NAME = re.compile(r"s([0-9]+)\.txt")
MEMBER = pa.list_(pa.int64(), len(Member._fields))
"""The type of a column with the position of a file in an archive."""


def files_folder(root: Path) -> Path | None:
    """Return the folder with ``p10`` to ``p19``, ``root/files`` or ``root``; None if neither has them."""
    for folder in (root / "files", root):
        try:
            if any(_PATIENT_FOLDER.fullmatch(name) for name in os.listdir(folder)):  # noqa: PTH208
                return folder
        except OSError:
            continue
    return None


def find_metadata(files: Path) -> Path | None:
    """Return MIMIC's table with the sizes of the original images, next to or in the image folder."""
    return find_optional(files.parent, METADATA) or find_optional(files, METADATA)


@dataclass(frozen=True)
class MimicImage:
    """Loads an image of MIMIC-CXR that exists as JPEG, DICOM or PNG."""

    study_id: str
    root: str
    stem: str

    def file(self) -> FileImage:
        """Return the existing file, or the missing JPEG."""
        for suffix in _SUFFIXES:
            file = FileImage(self.study_id, self.root, self.stem + suffix)
            if os.path.exists(file.path):  # noqa: PTH110
                return file
        return FileImage(self.study_id, self.root, self.stem + _SUFFIXES[0])

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file().path

    def __call__(self) -> Image:
        """Read and decode the image."""
        return self.file()()

    def size(self) -> tuple[int, int]:
        """Return height and width in pixels, from the file's header."""
        file = self.file()
        what = f"study {self.study_id!r}: image {file.path}"
        check_folder(self.root, what)
        return read_header(file.path, what).size


class MimicBasedSource(DatasetSource):
    """A data set on MIMIC-CXR's images. A record's ``dicom``, else its ``id``, names its image."""

    def find_images(self, root: Path) -> Path:
        """Return the image folder of a data set that comes without images: in ``images=``, or below ``root``."""
        folder = files_folder(self.given("images") or root)
        if folder is not None:
            return folder
        if "images" not in self.options:
            raise InputError(
                f"{self.address} has no images of its own; "
                "add images=/path/to/mimic-cxr-jpg, the folder that has files/p10"
            )
        raise InputError(f"{self.address}: images={self.options['images']} has neither files/p10 nor p10")

    def find_reports(self, places: Iterable[Path]) -> MimicReports:
        """Return the reports in ``reports=``, else in these folders: the archive first, then text files."""
        given = self.given("reports")
        if given is not None and given.is_file():
            return MimicReports(None, given)
        looked = [given] if given is not None else [*places]
        for place in looked:
            if (place / REPORTS_ZIP).is_file():
                return MimicReports(None, place / REPORTS_ZIP)
        for place in looked:
            folder = files_folder(place)
            if folder is not None and _has_texts(folder):
                return MimicReports(folder, None)
        if given is not None:
            text = self.options["reports"]
            raise InputError(f"{self.address}: reports={text} has neither {REPORTS_ZIP} nor files/p10 with text files")
        return MimicReports(None, None)

    def image_of(self, record: Mapping[str, Any]) -> MimicImage:
        """Return the image of a record, in ``files/p10/p10000032/s50414267``."""
        patient, dicom = record["patient"], record.get("dicom") or record["id"]
        return MimicImage(record["id"], str(self.images), f"p{patient[:2]}/p{patient}/s{record['exam']}/{dicom}")

    def find_split_table(self) -> Path | None:
        """Return MIMIC's table of splits, next to or in the image folder, if ``splits=mimic`` asks for it."""
        if not self.option("splits", ("mimic",)):
            return None
        found = find_optional(self.images.parent, SPLIT) or find_optional(self.images, SPLIT)
        if found is None:
            raise InputError(f"{self.address}: splits=mimic needs {SPLIT}(.gz) in {self.images.parent}")
        return found

    def read_splits(self, log: BuildLog, table: Path | None, wanted: Container[str]) -> dict[str, str]:
        """Return MIMIC's split (``train``, ``validate``, ``test``) of each of the wanted images."""

        def parse(row: TableRow) -> tuple[str, str] | None:
            name = row.required("dicom_id")
            return (name, row.required("split")) if name in wanted else None

        return dict(self.read(log, table, ("dicom_id", "split"), parse))

    def read_sizes(self, log: BuildLog, wanted: Container[str] | None = None) -> dict[str, Size]:
        """Return height and width of the original images by id, from MIMIC's metadata."""
        return self.sizes(log, find_metadata(self.images), ("dicom_id", "Rows", "Columns"), wanted)


class MimicReports:
    """The free-text reports, in a folder of text files, in the archive, or missing."""

    def __init__(self, folder: Path | None, archive: Path | None) -> None:
        self.folder = folder
        self.archive = archive
        self._file = RandomAccessFile(str(archive)) if archive is not None else None

    def by_exam(self) -> dict[int, Member]:
        """Return the archive members by study number."""
        return {
            int(number[1]): member
            for name, member in (members(self.archive) if self.archive is not None else ())
            if (number := _REPORT_NAME.fullmatch(name.rpartition("/")[2]))
        }

    def read(self, record: Mapping[str, Any]) -> Report | None:
        """Return the report of a record's examination with its sections; None if there is none."""
        from rightlung.lexicon.sections import report_sections

        data, patient, file = b"", record["patient"], f"s{record['exam']}.txt"
        if self._file is not None and record["report"] is not None:
            data = read_member(self._file, Member(*record["report"]), f"report {file}", MAX_REPORT_BYTES)
        elif self.folder is not None:
            name = f"p{patient[:2]}/p{patient}/{file}"
            if (self.folder / name).exists() or not self.folder.is_dir():
                data = read_tree_file(str(self.folder), name, f"report {self.folder / name}", MAX_REPORT_BYTES)
        text = data.decode("utf-8", errors="replace")
        return Report(text, report_sections(text)) if text.strip() else None


def _has_texts(folder: Path) -> bool:
    """Whether the patients' folders contain text files, judging by the first few."""
    try:
        for group in sorted(folder.glob("p1?"))[:3]:
            with os.scandir(group) as patients:
                looked = [patient.path for patient in islice(patients, 20) if patient.is_dir()]
            if any(name.endswith(".txt") for patient in looked for name in os.listdir(patient)):  # noqa: PTH208
                return True
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be read: {error.strerror}") from error
    return False
