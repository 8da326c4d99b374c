"""The `nih` reader: NIH ChestX-ray14, 112,120 frontal radiographs of 30,805 patients, 984 of their findings boxed.

::

    nih:/data/nih
        Data_Entry_2017_v2020.csv   or Data_Entry_2017.csv, the first release
        BBox_List_2017.csv          optional: boxes of 8 findings in 880 images
        train_val_list.txt          optional: the official split, both files or none
        test_list.txt
        images_001/images/*.png     … images_012/images/*.png; or all in images/

From https://nihcc.app.box.com/v/ChestXray-NIHCC (also https://www.kaggle.com/datasets/nih-chest-xrays/data): no
restriction on use, with attribution (Wang et al., ChestX-ray8, CVPR 2017; NIH Clinical Center).

- Labels are mined from reports. Those named are positive, the others **unknown**; where it says "No Finding", all 14
  are negative. ``extra["labels"]`` has them as written.
- One phrase for each boxed finding of an image, with its boxes. Boxes are in pixels of the released 1024 x 1024 images.
- Splits ``train`` (``train_val_list.txt``) and ``test``. All boxed images are test images.
- Ages above 130 (the first release has some) are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, InputError, Polarity, Study
from rightlung.core.problem import Problem
from rightlung.studies.building import Building
from rightlung.studies.files import read_regular
from rightlung.studies.headers import years
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.labelled import as_findings, finding_phrase, first_folders, folder_images, meanings
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box
from rightlung.studies.trees import FileImage, find_file, find_optional

SIZE = (1024, 1024)
"""Height and width of the released images, in whose pixels the boxes are."""
NO_FINDING = "No Finding"
_BOX_COLUMNS = ("Bbox [x", "y", "w", "h]")
_SPLIT_FILES = {"train_val_list.txt": "train", "test_list.txt": "test"}


class NihSource(IndexedSource):
    """NIH ChestX-ray14, in the table's order."""

    reader: ClassVar[str] = "nih"
    split_aliases: ClassVar[Mapping[str, str]] = {"train_val": "train"}
    columns: ClassVar[Mapping[str, Any]] = {
        "image": "string",
        "patient": "string",
        "view": "string",
        "age": "float64",
        "sex": "string",
        "follow_up": "int32",
        "labels": "string",
        "boxes": "string",
    }

    def inputs(self) -> Sequence[Path]:
        """Return the tables and the folders with images."""
        table = find_file(self.root, "Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv", what="table of images")
        optional = [find_optional(self.root, name) for name in ("BBox_List_2017.csv", *_SPLIT_FILES)]
        return [
            table,
            *(path for path in optional if path is not None),
            *(self.root / name for name in self._folders()),
        ]

    def _folders(self) -> list[str]:
        parts = [f"images_{number:03d}" for number in range(1, 13)]
        folders = first_folders(self.root, *(f"{part}/images" for part in parts), "images")
        if not folders:
            raise InputError(f"{self.root} has no folder with images (images_001/images … or images)")
        return folders

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each row of the table whose image is there."""
        path = find_file(self.root, "Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
        required = ("Image Index", "Finding Labels", "Patient ID", "View Position")
        table = CsvTable(path, required, problems=building.problems, root=self.root)
        boxes = self._read_boxes(building)
        splits = self._read_splits()
        images = folder_images(self.root, self._folders())
        named: set[str] = set()

        def parse(row: TableRow) -> Mapping[str, Any]:
            name = row.identifier("Image Index")
            if name in boxes:
                named.add(name)
            stem = name.rpartition(".")[0] or name
            if stem not in images:
                raise row.error("Image Index", f"there is no image {name}", "missing-image")
            labels = row.required("Finding Labels").split("|")
            for label in labels:
                if label != NO_FINDING and label not in meanings("nih-14"):
                    raise row.error("Finding Labels", f"{label!r} is not one of the 14 labels", "label-value")
            return {
                "id": stem,
                "split": splits.get(name),
                "file": row.file,
                "line": row.line,
                "image": images[stem],
                "patient": row.required("Patient ID"),
                "view": row.text("View Position") or None,
                "age": years(row.text("Patient Age")),
                "sex": row.text("Patient Gender") or None,
                "follow_up": row.whole("Follow-up #"),
                "labels": "|".join(labels),
                "boxes": json.dumps([(label, box) for _, label, box in boxes[name]]) if name in boxes else None,
            }

        yield from table.read(parse)
        for name, rows in boxes.items():
            if name not in named:
                message = f"{name} is not in {table.name}"
                building.problems.append(Problem("BBox_List_2017.csv", message, rows[0][0], "Image Index"))

    def _read_boxes(self, building: Building) -> dict[str, list[tuple[int, str, list[float]]]]:
        """Read the boxes, whose header names four columns with one pair of brackets: ``Bbox [x,y,w,h]``."""
        path = find_optional(self.root, "BBox_List_2017.csv")
        boxes: dict[str, list[tuple[int, str, list[float]]]] = {}
        if path is None:
            return boxes
        table = CsvTable(
            path, ("Image Index", "Finding Label", *_BOX_COLUMNS), problems=building.problems, root=self.root
        )

        def parse(row: TableRow) -> tuple[str, tuple[int, str, list[float]]]:
            label = row.required("Finding Label")
            if label not in meanings("nih-8-boxed"):
                raise row.error("Finding Label", f"{label!r} is not one of the 8 boxed findings", "label-value")
            x, y, width, height = (row.required_number(column) for column in _BOX_COLUMNS)
            try:
                box = pixel_box((x, y, x + width, y + height), SIZE)
            except InputError as error:
                raise row.error(_BOX_COLUMNS[0], str(error), box_kind(error)) from None
            return row.identifier("Image Index"), (row.line, label, list(box.as_tuple()))

        for name, drawn in table.read(parse):
            boxes.setdefault(name, []).append(drawn)
        return boxes

    def _read_splits(self) -> dict[str, str]:
        splits: dict[str, str] = {}
        for file, split in _SPLIT_FILES.items():
            path = find_optional(self.root, file)
            if path is not None:
                names = read_regular(path, str(path)).decode("utf-8-sig", errors="replace").split()
                splits.update(dict.fromkeys(names, split))
        return splits

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record."""
        labels = record["labels"].split("|")
        boxes: dict[str, list[Box]] = {}
        for label, edges in json.loads(record["boxes"] or "[]"):
            boxes.setdefault(meanings("nih-8-boxed")[label], []).append(Box(*edges))
        findings = as_findings({label: Polarity.POSITIVE for label in labels if label != NO_FINDING}, "nih-14")
        if labels == [NO_FINDING] and not boxes:
            findings = {"no finding": Polarity.POSITIVE} | dict.fromkeys(meanings("nih-14").values(), Polarity.NEGATIVE)
        # A radiologist's box is stronger than a label mined from the report.
        findings |= dict.fromkeys(boxes, Polarity.POSITIVE)
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.root), record["image"]),
            patient=record["patient"],
            view=record["view"],
            split=record["split"],
            age=record["age"],
            sex=record["sex"],
            phrases=tuple(finding_phrase(finding, drawn) for finding, drawn in boxes.items()),
            findings=findings,
            source=self.address,
            extra={"labels": labels, "follow_up": record["follow_up"]},
        )


def open_nih(address: Address) -> NihSource:
    """Open ``nih:PATH``; parameters ``split`` and ``limit``."""
    return NihSource(address)
