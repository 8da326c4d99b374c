"""The `chestx-det` reader: ChestX-Det, 3,578 radiographs of NIH ChestX-ray14 with 13 findings outlined by radiologists.

Lian et al., arXiv:2104.10326. Boxes and outlines are in pixels of 1024 x 1024; the outline itself belongs to the mask.
Patients are not published, because the images have new numbers. The predecessor ChestX-Det10 (``train.json``, no
polygons) is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rightlung.core import Box, InputError, Mask, Study
from rightlung.core.checks import check_number
from rightlung.core.problem import Problem
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import NIH_SIZE, DatasetSource, columns, grouped, present
from rightlung.studies.readers.labelled import as_findings, finding_phrase, meanings, presence, read_json
from rightlung.studies.rows import Field, FieldError
from rightlung.studies.tables import box_kind, pixel_box
from rightlung.studies.trees import folder_images

LABEL_SET = "chestx-det-13"
_FILES = {"train": "ChestX_Det_train.json", "test": "ChestX_Det_test.json"}
Outline = list[list[float]]


def _draw(outlines: Sequence[Outline]) -> Mask:
    """Return the mask of one or more outlines, including the outlines themselves."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (NIH_SIZE[1], NIH_SIZE[0]))
    draw = ImageDraw.Draw(canvas)
    for outline in outlines:
        draw.polygon([(x, y) for x, y in outline], fill=1, outline=1)
    return Mask(np.asarray(canvas) != 0)


class ChestXDetSource(DatasetSource):
    """ChestX-Det, the training images first, in the files' order; parameters ``split`` and ``limit``."""

    columns: ClassVar[Mapping[str, Any]] = columns("marks")

    def _inputs(self) -> Sequence[Path]:
        paths = present(*(self.find(name) for name in _FILES.values()))
        if not paths:
            raise InputError(f"{self.root} has neither {' nor '.join(_FILES.values())}")
        return [*paths, *(self.root / name for split in _FILES for name in self._folders(split))]

    def _folders(self, split: str) -> list[str]:
        return self.folders(f"{split}_data/{split}", f"{split}_data", split)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        for split, file in _FILES.items():
            path = self.root / file
            if not path.exists():
                continue
            folders = self._folders(split)
            if not folders:
                raise InputError(f"{self.root} has no folder with the images of {file} ({split}_data or {split})")
            images = folder_images(self.root, folders)
            for number, value in enumerate(read_json(path, list, "a list of images"), start=1):
                entry = Field(value)
                try:
                    stem, marks = _marks(entry)
                    if stem not in images:
                        message = f"there is no image {stem}.png in {' or '.join(folders)}"
                        raise entry.at("file_name").error(message, "missing-image")
                except FieldError as error:
                    message = f"entry {number}: {error}"
                    log.problems.append(Problem(file, message, None, error.field, error.kind))
                    continue
                yield {"id": stem, "split": split, "file": file, "image": images[stem], "marks": json.dumps(marks)}

    def _build_study(self, record: dict[str, Any]) -> Study:
        marks = grouped((label, mark) for label, *mark in json.loads(record["marks"]))
        phrases = []
        for label, drawn in marks.items():
            outlines = [outline for _, outline in drawn if outline]
            mask = Mask.deferred(partial(_draw, outlines)) if outlines else None
            phrases.append(finding_phrase(meanings(LABEL_SET)[label], [Box(*edges) for edges, _ in drawn], mask))
        return self.as_study(
            record,
            phrases=tuple(phrases),
            findings=as_findings({label: presence(label in marks) for label in meanings(LABEL_SET)}, LABEL_SET),
            extra={"labels": list(marks)},
        )


def _marks(entry: Field) -> tuple[str, list[tuple[str, tuple[float, ...], Outline]]]:
    """Return an entry's image and its marks: label, box in fractions, outline in pixels (or none)."""
    name = entry.object().value.get("file_name")
    if not isinstance(name, str) or not name or "/" in name or "\\" in name:
        raise entry.at("file_name").error(f"must be the name of a file; got {name!r}")
    syms, boxes, polygons = ([*entry.at(field).entries()] for field in ("syms", "boxes", "polygons"))
    if len(syms) != len(boxes) or (polygons and len(polygons) != len(syms)):
        counts = f"{len(syms)} syms, {len(boxes)} boxes and {len(polygons)} polygons"
        raise entry.at("syms").error(f"must have equally many boxes and polygons; got {counts}")
    marks = []
    for place, label in enumerate(syms):
        if label.value not in meanings(LABEL_SET):
            raise label.error(f"{label.value!r} is not one of the 13 findings", "label-value")
        marks.append((label.value, _box(boxes[place]), _outline(polygons[place]) if polygons else []))
    return name.rpartition(".")[0] or name, marks


def _box(field: Field) -> tuple[float, ...]:
    if not isinstance(field.value, list) or len(field.value) != 4:
        raise field.error(f"must be [x1, y1, x2, y2]; got {str(field.value)[:60]}", "box-form")
    try:
        return pixel_box([check_number(edge, "an edge") for edge in field.value], NIH_SIZE).as_tuple()
    except InputError as error:
        raise field.error(str(error), box_kind(error)) from None


def _outline(field: Field) -> Outline:
    points = field.value if isinstance(field.value, list) else []
    if len(points) < 3 or not all(isinstance(point, list) and len(point) == 2 for point in points):
        raise field.error("must be a list of at least three points [x, y]")
    outline = field.checked(lambda _: [[check_number(x, "x"), check_number(y, "y")] for x, y in points])
    if not all(-2 <= x <= NIH_SIZE[1] + 2 and -2 <= y <= NIH_SIZE[0] + 2 for x, y in outline):
        raise field.error(f"leaves the image, which is {NIH_SIZE[1]} pixels wide and {NIH_SIZE[0]} high")
    return outline
