"""The `rsna` reader: the RSNA Pneumonia Detection Challenge, 26,684 labelled frontal radiographs from NIH ChestX-ray14.

Shih et al., Radiology: Artificial Intelligence 2019; non-commercial and academic use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, Polarity, Study
from rightlung.core.problem import Problem
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import NIH_SIZE, DatasetSource, columns, corner_box, grouped, present
from rightlung.studies.readers.labelled import finding_phrase, meanings, presence, read_json
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import folder_images

LABELS, CLASSES = "stage_2_train_labels.csv", "stage_2_detailed_class_info.csv"
MAPPING = "pneumonia-challenge-dataset-mappings_2018.json"
OPACITY = "pneumonia-like opacity"
_BOX_COLUMNS = ("x", "y", "width", "height")


class RsnaSource(DatasetSource):
    """The labelled images, in the order of the labels; parameters ``split`` and ``limit``."""

    columns: ClassVar[Mapping[str, Any]] = columns("boxes", "class", "nih")

    def _inputs(self) -> Sequence[Path]:
        self._labels = self.needed(LABELS, f"{LABELS}.zip", what="table of boxes")
        self._classes, self._mapping = (self.find(name) for name in (CLASSES, MAPPING))
        self._folder = self.image_folders("stage_2_train_images", "train_images", "images")[0]
        return present(self._labels, self._classes, self._mapping, self.root / self._folder)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        classes = self._read_classes(log)
        nih = self._read_mapping(log)
        images = folder_images(self.root, [self._folder])

        def parse(row: TableRow) -> tuple[str, tuple[int, Box | None]]:
            name = row.identifier("patientId")
            if name not in images:
                raise row.error("patientId", f"there is no image {name}.dcm in {self._folder}", "missing-image")
            if row.text("Target") not in ("0", "1", "0.0", "1.0"):
                raise row.error("Target", f"must be 0 or 1; got {row.text('Target')!r}", "label-value")
            return name, (row.line, corner_box(row, _BOX_COLUMNS, NIH_SIZE, "x") if row.whole("Target") else None)

        found = grouped(self.read(log, self._labels, ("patientId", *_BOX_COLUMNS, "Target"), parse))
        for name, rows in found.items():
            yield {
                "id": name,
                "split": "train",
                "file": self._labels.name,
                "line": rows[0][0],
                "image": images[name],
                "boxes": json.dumps([box.as_tuple() for _, box in rows if box is not None]),
                "class": classes.get(name),
                "nih": nih.get(name),
            }

    def _read_classes(self, log: BuildLog) -> dict[str, str]:
        def parse(row: TableRow) -> tuple[str, str] | None:
            known = row.choice("class", meanings("rsna"))
            return (row.identifier("patientId"), known) if known is not None else None

        return dict(self.read(log, self._classes, ("patientId", "class"), parse))

    def _read_mapping(self, log: BuildLog) -> dict[str, str]:
        images: dict[str, str] = {}
        entries = read_json(self._mapping, list, "a list of images") if self._mapping is not None else []
        for number, entry in enumerate(entries, start=1):
            name, nih = (entry.get("subset_img_id"), entry.get("img_id")) if isinstance(entry, dict) else (None, None)
            if isinstance(name, str) and isinstance(nih, str) and nih.partition("_")[0].isdecimal():
                images[name] = nih
            else:
                message = f"entry {number} must have subset_img_id and img_id, strings such as 00000001_000.png"
                log.problems.append(Problem(MAPPING, message))
        return images

    def _build_study(self, record: dict[str, Any]) -> Study:
        boxes = [Box(*edges) for edges in json.loads(record["boxes"])]
        findings = {OPACITY: presence(boxes)}
        if record["class"] is not None and not boxes:
            findings.setdefault(meanings("rsna")[record["class"]], Polarity.POSITIVE)
        return self.as_study(
            record,
            self.header(record, "patientId"),
            patient=None if record["nih"] is None else str(int(record["nih"].partition("_")[0])),
            phrases=(finding_phrase(OPACITY, boxes),) if boxes else (),
            findings=findings,
            extra={name: record[name] for name in ("class", "nih") if record[name] is not None},
        )
