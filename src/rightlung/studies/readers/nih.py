"""The `nih` reader: NIH ChestX-ray14, 112,120 frontal radiographs of 30,805 patients, with 984 boxes.

No restriction on use, with attribution (Wang et al., ChestX-ray8, CVPR 2017; NIH Clinical Center); also at
https://www.kaggle.com/datasets/nih-chest-xrays/data. ``extra["labels"]`` has the labels as written. All images with
boxes are test images. Ages above 130 (in the first release) are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, Polarity, Study
from rightlung.core.problem import Problem
from rightlung.studies.files import read_regular
from rightlung.studies.headers import years
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import NIH_SIZE, DatasetSource, columns, corner_box, grouped, origin, present
from rightlung.studies.readers.labelled import as_findings, finding_phrase, meanings
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import folder_images

NO_FINDING = "No Finding"
_TABLES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
_BOXES = "BBox_List_2017.csv"
_BOX_COLUMNS = ("Bbox [x", "y", "w", "h]")  # the table's own names: one pair of brackets over four columns
_SPLIT_FILES = {"train_val_list.txt": "train", "test_list.txt": "test"}
_FOLDERS = (*(f"images_{number:03d}/images" for number in range(1, 13)), "images")


class NihSource(DatasetSource):
    """NIH ChestX-ray14, in the table's order; parameters ``split`` and ``limit``."""

    columns: ClassVar[Mapping[str, Any]] = columns("labels", "boxes", follow_up="int32")

    def _inputs(self) -> Sequence[Path]:
        self._table = self.needed(*_TABLES, what="table of images")
        self._boxes = self.find(_BOXES)
        self._splits = {path: split for file, split in _SPLIT_FILES.items() if (path := self.find(file))}
        self._folders = self.image_folders(*_FOLDERS)
        return [*present(self._table, self._boxes), *self._splits, *(self.root / name for name in self._folders)]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        boxes = self._read_boxes(log)
        splits = {
            name: split
            for path, split in self._splits.items()
            for name in read_regular(path, str(path)).decode("utf-8-sig", errors="replace").split()
        }
        images = folder_images(self.root, self._folders)
        named: set[str] = set()

        def parse(row: TableRow) -> Mapping[str, Any]:
            name = row.identifier("Image Index")
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
                **origin(row),
                "image": images[stem],
                "patient": row.required("Patient ID"),
                "view": row.text("View Position") or None,
                "age": years(row.text("Patient Age")),
                "sex": row.text("Patient Gender") or None,
                "follow_up": row.whole("Follow-up #"),
                "labels": "|".join(labels),
                "boxes": json.dumps([(label, box) for _, label, box in boxes[name]]) if name in boxes else None,
            }

        required = ("Image Index", "Finding Labels", "Patient ID", "View Position")
        yield from self.read(log, self._table, required, parse)
        for name, rows in boxes.items():
            if name not in named:
                message = f"{name} is not in {self._table.name}"
                log.problems.append(Problem(_BOXES, message, rows[0][0], "Image Index"))

    def _read_boxes(self, log: BuildLog) -> dict[str, list[tuple[int, str, tuple[float, ...]]]]:
        def parse(row: TableRow) -> tuple[str, tuple[int, str, tuple[float, ...]]]:
            label = row.required("Finding Label")
            if label not in meanings("nih-8-boxed"):
                raise row.error("Finding Label", f"{label!r} is not one of the 8 boxed findings", "label-value")
            box = corner_box(row, _BOX_COLUMNS, NIH_SIZE, _BOX_COLUMNS[0])
            return row.identifier("Image Index"), (row.line, label, box.as_tuple())

        return grouped(self.read(log, self._boxes, ("Image Index", "Finding Label", *_BOX_COLUMNS), parse))

    def _build_study(self, record: dict[str, Any]) -> Study:
        labels = record["labels"].split("|")
        drawn = json.loads(record["boxes"] or "[]")
        boxes = grouped((meanings("nih-8-boxed")[label], Box(*edges)) for label, edges in drawn)
        findings = as_findings({label: Polarity.POSITIVE for label in labels if label != NO_FINDING}, "nih-14")
        if labels == [NO_FINDING] and not boxes:
            findings = {"no finding": Polarity.POSITIVE} | dict.fromkeys(meanings("nih-14").values(), Polarity.NEGATIVE)
        return self.as_study(
            record,
            phrases=tuple(finding_phrase(finding, some) for finding, some in boxes.items()),
            # A radiologist's box overrides a label mined from the report.
            findings=findings | dict.fromkeys(boxes, Polarity.POSITIVE),
            extra={"labels": labels, "follow_up": record["follow_up"]},
        )
