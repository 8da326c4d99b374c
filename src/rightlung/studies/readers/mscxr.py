"""The `mscxr` reader: MS-CXR, phrases with radiologists' boxes for eight findings on images of MIMIC-CXR.

If a folder has both formats of a version, the CSV is read. A phrase is a text with all boxes of its category; the
finding that the category means goes to the phrase, the data set's word to ``extra``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, InputError, Phrase, Polarity, Study
from rightlung.core.checks import Size, check_number
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.files import read_regular
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import columns, present
from rightlung.studies.readers.labelled import meanings
from rightlung.studies.readers.mimic_files import MEMBER, MimicBasedSource
from rightlung.studies.tables import TableRow, box_kind, pixel_box

LABEL_SET = "ms-cxr-8"
_NAME = re.compile(r"MS_CXR_Local_Alignment_v([0-9.]+)\.(csv|json)")
_PLACE = re.compile(r"(?:files/)?p1[0-9]/p([0-9]+)/s([0-9]+)/([A-Za-z0-9_-]+)\.[a-z]+")
_COLUMNS = ("category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height")


@dataclass(frozen=True, slots=True)
class Annotation:
    """A text with its category and one box, in pixels, on one image: a line of the CSV or an entry of the JSON.

    ``fault`` takes a column, a message and a kind, and returns the error that names the annotation's place.
    """

    fault: Callable[[str, str, str | None], ProblemError]
    line: int | None
    path: str
    category: str | None
    text: str
    box: Sequence[float]
    size: Size
    split: str | None


class MscxrSource(MimicBasedSource):
    """The annotated images, in the order of the table."""

    version: ClassVar[int] = 2
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports", "splits")
    index_options: ClassVar[tuple[str, ...]] = ("splits",)
    columns: ClassVar[Mapping[str, Any]] = columns("phrases", rows="int32", columns="int32", report=MEMBER)

    def _inputs(self) -> Sequence[Path]:
        folder = self.root if self.root.is_dir() else self.root.parent
        self.images = files = self.find_images(folder)
        self._reports = self.find_reports((files, files.parent))
        self._table = self.root if self.root.is_file() else _newest(self.root)
        self._split_table = self.find_split_table()
        return present(self._table, self._split_table, self._reports.archive)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        reports = self._reports.by_exam()
        images: dict[str, dict[str, Any]] = {}
        is_json = self._table.name.endswith(".json")
        for annotation in self._read_json(log) if is_json else self._read_csv(log):
            try:
                self._add(images, annotation)
            except ProblemError as error:
                log.problems.append(error.problem)
        for record in self._with_splits(log, images).values():
            phrases = [
                {"category": category, "text": text, "boxes": boxes}
                for (category, text), boxes in record["phrases"].items()
            ]
            yield {**record, "phrases": json.dumps(phrases), "report": reports.get(int(record["exam"]))}

    def _with_splits(self, log: BuildLog, images: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """With ``splits=mimic``, replace the splits: ``train`` is MIMIC's, ``test`` its validation and test images."""
        if self._split_table is None:
            return images

        def parse(row: TableRow) -> tuple[str, str] | None:
            name = row.required("dicom_id")
            return (name, "train" if row.required("split") == "train" else "test") if name in images else None

        found = dict(self.read(log, self._split_table, ("dicom_id", "split"), parse))
        return {name: {**record, "split": found.get(name)} for name, record in images.items()}

    def _read_csv(self, log: BuildLog) -> Iterator[Annotation]:
        def parse(row: TableRow) -> Annotation:
            height, width = (int(row.required_number(name, low=1)) for name in ("image_height", "image_width"))
            box = [row.required_number(column) for column in ("x", "y", "w", "h")]
            path, category, text = (row.required(name) for name in ("path", "category_name", "label_text"))
            split = row.text("split") or None
            return Annotation(row.error, row.line, path, category, text, box, (height, width), split)

        return self.read(log, self._table, _COLUMNS, parse, root=self._table.parent)

    def _read_json(self, log: BuildLog) -> Iterator[Annotation]:
        try:
            tree = json.loads(read_regular(self._table, str(self._table)))
            images = {entry["id"]: entry for entry in tree["images"]}
            categories = {entry["id"]: entry["name"] for entry in tree["categories"]}
            entries = list(tree["annotations"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{self._table} is not in COCO format: images, categories and annotations are needed ({error!r})"
            ) from None
        for number, entry in enumerate(entries):
            place = f"annotations[{number}]"
            try:
                yield _coco_annotation(self._table.name, place, entry, images, categories)
            except (KeyError, TypeError, InputError) as error:
                message = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
                log.problems.append(Problem(self._table.name, message, None, place))

    def _add(self, images: dict[str, dict[str, Any]], one: Annotation) -> None:
        """Check an annotation and add it to its image."""
        if one.category not in meanings(LABEL_SET):
            message = str(unknown_name("category", str(one.category), meanings(LABEL_SET)))
            raise one.fault("category_name", message, "label-value")
        x, y, width, height = one.box
        try:
            box = pixel_box((x, y, x + width, y + height), one.size)
        except InputError as error:
            raise one.fault("x, y, w, h", str(error), box_kind(error)) from None
        place = _PLACE.fullmatch(one.path)
        if place is None:
            raise one.fault("path", f"must be files/p10/p…/s…/….jpg; got {one.path!r}", None)
        patient, exam, dicom = place.groups()
        about = {"id": dicom, "patient": patient, "exam": exam, "file": self._table.name, "line": one.line}
        sizes = {"rows": one.size[0], "columns": one.size[1]}
        image = images.setdefault(dicom, {**about, "split": one.split, **sizes, "phrases": {}})
        if (image["rows"], image["columns"]) != one.size:
            raise one.fault("image_width", f"image {dicom} has another size than on line {image['line']}", None)
        if image["split"] != one.split:
            raise one.fault("split", f"image {dicom} is in {image['split']!r} and in {one.split!r}", None)
        image["phrases"].setdefault((one.category, one.text), []).append(box.as_tuple())

    def _build_study(self, record: dict[str, Any]) -> Study:
        entries = json.loads(record["phrases"])
        phrases = [
            Phrase(
                entry["text"],
                tuple(Box.from_sequence(box) for box in entry["boxes"]),
                findings={meanings(LABEL_SET)[entry["category"]]: Polarity.POSITIVE},
            )
            for entry in entries
        ]
        return self.as_study(
            record,
            report=self._reports.read(record),
            phrases=tuple(phrases),
            findings={name: Polarity.POSITIVE for phrase in phrases for name in phrase.findings},
            extra={
                "categories": tuple(entry["category"] for entry in entries),
                "rows": record["rows"],
                "columns": record["columns"],
            },
        )


def _newest(folder: Path) -> Path:
    """Return the newest version of the table, preferring CSV."""
    names = [name for path in folder.iterdir() if (name := _NAME.fullmatch(path.name))]
    if not names:
        raise InputError(f"{folder} has no MS_CXR_Local_Alignment_v….csv or .json")
    newest = max(names, key=lambda name: ([int(part) for part in name[1].split(".") if part], name[2] == "csv"))
    return folder / newest[0]


def _coco_annotation(
    file: str, place: str, entry: Mapping[str, Any], images: Mapping[Any, Any], categories: Mapping[Any, str]
) -> Annotation:
    def fault(_: str, message: str, kind: str | None) -> ProblemError:
        return ProblemError(Problem(file, message, None, place, kind))

    image = images.get(entry["image_id"])
    if image is None:
        raise InputError(f"image_id {entry['image_id']!r} is not among the images")
    category = categories.get(entry["category_id"])
    box = [check_number(value, "bbox") for value in entry["bbox"]]
    if len(box) != 4:
        raise InputError(f"bbox must be [x, y, width, height]; got {len(box)} numbers")
    size = int(check_number(image["height"], "height")), int(check_number(image["width"], "width"))
    text = entry["label_text"]
    if not isinstance(text, str) or not text.strip():
        raise InputError("label_text must be a string")
    split = entry.get("split") or image.get("split")
    return Annotation(fault, None, str(image["path"]), category, text.strip(), box, size, str(split) if split else None)
