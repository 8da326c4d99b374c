"""MS-CXR: phrases with boxes by radiologists, for eight findings on images of MIMIC-CXR.

``mscxr:/data/ms-cxr?images=/data/mimic-cxr-jpg`` expects what PhysioNet distributes (credentialed access, PhysioNet
Credentialed Health Data License 1.5.0), https://physionet.org/content/ms-cxr/1.1.0/ ::

    MS_CXR_Local_Alignment_v1.1.0.csv     dicom_id, category_name, label_text, path, x, y, w, h, image_width,
                                          image_height, split
    MS_CXR_Local_Alignment_v1.1.0.json    the same in COCO's form

The path may also name one of the files. In a folder, the newest version is read, the CSV if both are there. Version
1.0.0 has no ``split``. Boxes are left, top, width and height in pixels of the original image.

A study is an image; a phrase is a text with all boxes that the table gives for it and its category. The finding that
the category means stands in the phrase, the data set's word in ``extra``. Several test sets of MS-CXR are in use: name
the split with any number. Images come from MIMIC-CXR (``images=``), reports, where they are there, too (``reports=``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import Box, InputError, Phrase, Polarity, Study
from rightlung.core.checks import check_number
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.lexicon.labels import label_map, label_set
from rightlung.studies.building import Building
from rightlung.studies.files import read_regular
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.mimic_files import (
    REPORT_COLUMNS,
    MimicImage,
    MimicReports,
    needed_files_folder,
    report_record,
)
from rightlung.studies.rows import FieldError
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box

_NAME = re.compile(r"MS_CXR_Local_Alignment_v([0-9.]+)\.(csv|json)")
_PLACE = re.compile(r"(?:files/)?p1[0-9]/p([0-9]+)/s([0-9]+)/([A-Za-z0-9_-]+)\.[a-z]+")
_COLUMNS = ("category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One box with its text and category, on one image; from a line of the CSV or an entry of the JSON."""

    file: str
    line: int | None
    field: str | None
    path: str
    category: str
    text: str
    box: Box
    size: tuple[int, int]
    split: str | None


@dataclass(slots=True)
class _Image:
    record: dict[str, Any]
    phrases: dict[tuple[str, str], list[Box]] = field(default_factory=dict)


def open_mscxr(address: Address) -> MscxrSource:
    """Open ``mscxr:PATH?images=MIMIC``, PATH the folder of MS-CXR or one of its two files."""
    return MscxrSource(address)


class MscxrSource(IndexedSource):
    """The annotated images, in the order of the table."""

    reader: ClassVar[str] = "mscxr"
    version: ClassVar[int] = 1
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports")
    split_aliases: ClassVar[Mapping[str, str]] = dict.fromkeys(("valid", "validate", "validation"), "val")
    columns: ClassVar[Mapping[str, Any]] = {
        "patient": "string",
        "exam": "string",
        "stem": "string",
        "rows": "int32",
        "columns": "int32",
        "phrases": pa.list_(
            pa.struct([
                ("category", pa.string()), ("text", pa.string()), ("boxes", pa.list_(pa.list_(pa.float64()))),
            ])
        ),
        **REPORT_COLUMNS,
    }  # fmt: skip

    def inputs(self) -> Sequence[Path]:
        """Return the table."""
        folder = self.root if self.root.is_dir() else self.root.parent
        files = needed_files_folder(self.address, folder, self.options.get("images"))
        self._images = str(files)
        self._reports = MimicReports.find(self.address, self.options.get("reports"), (files, files.parent))
        self._table = self.root if self.root.is_file() else _newest(self.root)
        return [self._table, *self._reports.inputs()]

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Gather the boxes of each image."""
        reports = self._reports.by_exam()
        images: dict[str, _Image] = {}
        is_json = self._table.name.endswith(".json")
        for annotation in self._read_json(building) if is_json else self._read_csv(building):
            try:
                _add(images, annotation)
            except ProblemError as error:
                building.problems.append(error.problem)
        for image in images.values():
            record = image.record
            phrases = [
                {"category": category, "text": text, "boxes": [box.as_tuple() for box in boxes]}
                for (category, text), boxes in image.phrases.items()
            ]
            yield {**record, "phrases": phrases, **report_record(reports.get(int(record["exam"])))}

    def _read_csv(self, building: Building) -> Iterator[Annotation]:
        table = CsvTable(self._table, _COLUMNS, problems=building.problems, root=self._table.parent)

        def parse(row: TableRow) -> Annotation:
            sides = row.whole("image_height", low=1), row.whole("image_width", low=1)
            if sides[0] is None or sides[1] is None:
                raise row.error("image_height" if sides[0] is None else "image_width", "is empty")
            x, y, w, h = (row.required_number(column) for column in ("x", "y", "w", "h"))
            size = sides[0], sides[1]
            try:
                box = pixel_box((x, y, x + w, y + h), size)
            except InputError as error:
                raise row.error("x, y, w, h", str(error), box_kind(error)) from None
            category = row.required("category_name")
            if category not in label_set("ms-cxr-8").labels:
                message = str(unknown_name("category", category, label_set("ms-cxr-8").labels))
                raise row.error("category_name", message, "label-value")
            text, split = row.required("label_text"), row.text("split") or None
            return Annotation(row.file, row.line, "path", row.required("path"), category, text, box, size, split)

        yield from table.read(parse)

    def _read_json(self, building: Building) -> Iterator[Annotation]:
        name = self._table.name
        try:
            tree = json.loads(read_regular(self._table, str(self._table)))
            images = {entry["id"]: entry for entry in tree["images"]}
            categories = {entry["id"]: entry["name"] for entry in tree["categories"]}
            entries = list(tree["annotations"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{self._table} is not in COCO's form: images, categories and annotations are needed ({error!r})"
            ) from None
        for number, entry in enumerate(entries):
            place = f"annotations[{number}]"
            try:
                yield _coco_annotation(name, place, entry, images, categories)
            except (KeyError, TypeError, InputError) as error:
                message = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                kind = error.kind if isinstance(error, FieldError) else None
                building.problems.append(Problem(name, message, None, place, kind))

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record; the report is read now, the image later."""
        names = label_map("ms-cxr-8", "findings")
        phrases = []
        found: dict[str, Polarity] = {}
        for entry in record["phrases"]:
            findings = dict.fromkeys(names.apply(entry["category"]) or (), Polarity.POSITIVE)
            boxes = tuple(Box.from_sequence(box) for box in entry["boxes"])
            phrases.append(Phrase(entry["text"], boxes, findings=findings))
            found.update(findings)
        categories = tuple(entry["category"] for entry in record["phrases"])
        return Study(
            id=record["id"],
            load=MimicImage(record["id"], self._images, record["stem"]),
            patient=record["patient"],
            exam=record["exam"],
            split=record["split"],
            report=self._reports.read(record, record["patient"], record["exam"]),
            phrases=tuple(phrases),
            findings=found,
            source=self.address,
            extra={"categories": categories, "rows": record["rows"], "columns": record["columns"]},
        )


def _newest(folder: Path) -> Path:
    """Return the newest version of the table, the CSV where there are both."""
    found = []
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is not None:
            version = tuple(int(part) for part in name[1].split(".") if part)
            found.append((version, name[2] == "csv", path))
    if not found:
        raise InputError(f"{folder} has no MS_CXR_Local_Alignment_v….csv or .json")
    return max(found)[2]


def _add(images: dict[str, _Image], annotation: Annotation) -> None:
    def fault(name: str | None, message: str) -> ProblemError:
        return ProblemError(Problem(annotation.file, message, annotation.line, name))

    place = _PLACE.fullmatch(annotation.path)
    if place is None:
        raise fault(annotation.field, f"must be files/p10/p…/s…/….jpg; got {annotation.path!r}")
    patient, exam, dicom = place.groups()
    if dicom not in images:
        stem = str(PurePosixPath(annotation.path.removeprefix("files/")).with_suffix(""))
        record = {"id": dicom, "split": annotation.split, "file": annotation.file, "line": annotation.line}
        record |= {"patient": patient, "exam": exam, "stem": stem}
        images[dicom] = _Image({**record, "rows": annotation.size[0], "columns": annotation.size[1]})
    image = images[dicom]
    if (image.record["rows"], image.record["columns"]) != annotation.size:
        raise fault("image_width", f"image {dicom} has another size than on line {image.record['line']}")
    if image.record["split"] != annotation.split:
        raise fault("split", f"image {dicom} is in {image.record['split']!r} and in {annotation.split!r}")
    image.phrases.setdefault((annotation.category, annotation.text), []).append(annotation.box)


def _coco_annotation(
    file: str, place: str, entry: Mapping[str, Any], images: Mapping[Any, Any], categories: Mapping[Any, str]
) -> Annotation:
    image = images.get(entry["image_id"])
    if image is None:
        raise InputError(f"image_id {entry['image_id']!r} is not among the images")
    category = categories.get(entry["category_id"])
    if category not in label_set("ms-cxr-8").labels:
        message = str(unknown_name("category", str(category), label_set("ms-cxr-8").labels))
        raise FieldError(place, message, "label-value")
    x, y, w, h = (check_number(value, "bbox") for value in entry["bbox"])
    size = int(check_number(image["height"], "height")), int(check_number(image["width"], "width"))
    text = entry["label_text"]
    if not isinstance(text, str) or not text.strip():
        raise InputError("label_text must be a text")
    split = entry.get("split") or image.get("split") or None
    try:
        box = pixel_box((x, y, x + w, y + h), size)
    except InputError as error:
        raise FieldError(place, str(error), box_kind(error)) from None
    return Annotation(
        file, None, f"{place}: path", str(image["path"]), category, text.strip(), box, size,
        str(split) if split is not None else None,
    )  # fmt: skip
