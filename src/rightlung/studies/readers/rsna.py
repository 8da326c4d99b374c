"""The `rsna` reader: the RSNA Pneumonia Detection Challenge, 26,684 labelled frontal radiographs from NIH ChestX-ray14.

::

    rsna:/data/rsna
        stage_2_train_labels.csv            patientId,x,y,width,height,Target
        stage_2_detailed_class_info.csv     optional: patientId,class
        stage_2_train_images/ID.dcm         (or png, jpg)
        pneumonia-challenge-dataset-mappings_2018.json   optional: which NIH image each one is

From https://www.kaggle.com/c/rsna-pneumonia-detection-challenge/data, the mapping from
https://www.rsna.org/rsnai/ai-image-challenge/rsna-pneumonia-detection-challenge-2018 (Shih et al., Radiology:
Artificial Intelligence 2019). The competition's rules allow non-commercial and academic use.

- One phrase, "opacity suspicious for pneumonia", with all boxes of an image. Boxes are in pixels of 1024 x 1024.
- Class "Lung Opacity" is a finding narrower than any lung opacity; the other two classes deny it, and are themselves
  ``other abnormality`` and ``no finding``. ``extra["class"]`` has the class as written.
- **``patientId`` names an image, not a patient.** With the mapping, ``Study.patient`` is the NIH patient
  (``extra["nih"]`` the NIH image), so that one patient's images stay together and can be kept apart from `nih`'s;
  without it, unknown.
- Age, sex and view are in the DICOM header, which is read when a study is built.
- Only the labelled images, split ``train``; the competition's test labels were never published in this form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, InputError, Polarity, Study
from rightlung.core.problem import Problem
from rightlung.studies.building import Building
from rightlung.studies.headers import image_kind, tree_header
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.labelled import finding_phrase, first_folders, folder_images, meanings, read_json
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box
from rightlung.studies.trees import FileImage, find_file, find_optional

SIZE = (1024, 1024)
"""Height and width of all images of the challenge, in whose pixels the boxes are."""
LABELS, CLASSES = "stage_2_train_labels.csv", "stage_2_detailed_class_info.csv"
MAPPING = "pneumonia-challenge-dataset-mappings_2018.json"
OPACITY = "pneumonia-like opacity"
_BOX_COLUMNS = ("x", "y", "width", "height")


class RsnaSource(IndexedSource):
    """The labelled images of the challenge, in the order in which the labels name them first."""

    reader: ClassVar[str] = "rsna"
    columns: ClassVar[Mapping[str, Any]] = {
        "image": "string",
        "boxes": "string",
        "class": "string",
        "nih": "string",
    }

    def inputs(self) -> Sequence[Path]:
        """Return the tables, the mapping and the folder with images."""
        table = find_file(self.root, LABELS, f"{LABELS}.zip", what="table of boxes")
        optional = [find_optional(self.root, name) for name in (CLASSES, MAPPING)]
        return [table, *(path for path in optional if path is not None), self.root / self._folder()]

    def _folder(self) -> str:
        folders = first_folders(self.root, "stage_2_train_images", "train_images", "images")
        if not folders:
            raise InputError(f"{self.root} has no folder with images (stage_2_train_images)")
        return folders[0]

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each image that the labels name."""
        classes = self._read_classes(building)
        nih = self._read_mapping(building)
        images = folder_images(self.root, [self._folder()])
        path = find_file(self.root, LABELS, f"{LABELS}.zip")
        table = CsvTable(path, ("patientId", *_BOX_COLUMNS, "Target"), problems=building.problems, root=self.root)
        found: dict[str, dict[str, Any]] = {}

        def parse(row: TableRow) -> tuple[str, int, Box | None]:
            name = row.identifier("patientId")
            if name not in images:
                raise row.error("patientId", f"there is no image {name}.dcm in {self._folder()}", "missing-image")
            if row.text("Target") not in ("0", "1", "0.0", "1.0"):
                raise row.error("Target", f"must be 0 or 1; got {row.text('Target')!r}", "label-value")
            if not row.whole("Target"):
                return name, row.line, None
            x, y, width, height = (row.required_number(column) for column in _BOX_COLUMNS)
            try:
                return name, row.line, pixel_box((x, y, x + width, y + height), SIZE)
            except InputError as error:
                raise row.error("x", str(error), box_kind(error)) from None

        for name, line, box in table.read(parse):
            record = found.setdefault(name, {"line": line, "boxes": []})
            if box is not None:
                record["boxes"].append(box.as_tuple())
        for name, record in found.items():
            yield {
                "id": name,
                "split": "train",
                "file": table.name,
                "line": record["line"],
                "image": images[name],
                "boxes": json.dumps(record["boxes"]),
                "class": classes.get(name),
                "nih": nih.get(name),
            }

    def _read_classes(self, building: Building) -> dict[str, str]:
        path = find_optional(self.root, CLASSES)
        if path is None:
            return {}
        table = CsvTable(path, ("patientId", "class"), problems=building.problems, root=self.root)

        def parse(row: TableRow) -> tuple[str, str] | None:
            known = row.choice("class", meanings("rsna"))
            return (row.identifier("patientId"), known) if known is not None else None

        return dict(table.read(parse))

    def _read_mapping(self, building: Building) -> dict[str, str]:
        path = find_optional(self.root, MAPPING)
        if path is None:
            return {}
        images: dict[str, str] = {}
        for number, entry in enumerate(read_json(path, list, "a list of images"), start=1):
            name, nih = (entry.get("subset_img_id"), entry.get("img_id")) if isinstance(entry, dict) else (None, None)
            if isinstance(name, str) and isinstance(nih, str) and nih.partition("_")[0].isdecimal():
                images[name] = nih
            else:
                message = f"entry {number} must have subset_img_id and img_id, texts such as 00000001_000.png"
                building.problems.append(Problem(path.name, message))
        return images

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record and of its image's header."""
        what = f"study {record['id']!r}: image {self.root / record['image']}"
        try:
            header = tree_header(self.root, record["image"], what)
        except InputError as error:
            raise self.problem(record, "patientId", str(error), image_kind(error)) from error
        boxes = [Box(*edges) for edges in json.loads(record["boxes"])]
        findings = {OPACITY: Polarity.POSITIVE if boxes else Polarity.NEGATIVE}
        if record["class"] is not None and not boxes:
            findings.setdefault(meanings("rsna")[record["class"]], Polarity.POSITIVE)
        extra = {"class": record["class"], "nih": record["nih"]}
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.root), record["image"]),
            patient=None if record["nih"] is None else str(int(record["nih"].partition("_")[0])),
            view=header.view,
            split=record["split"],
            age=header.age,
            sex=header.sex,
            phrases=(finding_phrase(OPACITY, boxes),) if boxes else (),
            findings=findings,
            source=self.address,
            extra={name: value for name, value in extra.items() if value is not None},
        )


def open_rsna(address: Address) -> RsnaSource:
    """Open ``rsna:PATH``; parameters ``split`` and ``limit``."""
    return RsnaSource(address)
