"""The `vindr` reader: VinDr-CXR, 18,000 frontal (PA) radiographs with boxes of 22 findings, drawn by radiologists.

::

    vindr:/data/vindr-cxr/1.0.0            PhysioNet's layout
        annotations/annotations_train.csv  image_id,rad_id,class_name,x_min,y_min,x_max,y_max
        annotations/annotations_test.csv   image_id,class_name,x_min,y_min,x_max,y_max
        annotations/image_labels_train.csv optional: image_id,rad_id and 28 columns of 0 and 1
        annotations/image_labels_test.csv  optional: image_id and 28 columns
        train/ID.dicom                     (or dcm, png, jpg); the tables may lie beside the folders, too
        test/ID.dicom

    vindr:/data/vinbigdata                 Kaggle's layout: training images and 14 of the 22 findings
        train.csv                          image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max
        train/ID.dicom
        train_meta.csv                     image_id,dim0,dim1: needed where the images in train/ were made smaller;
                                           without it a box that leaves an image that is not DICOM is refused

From https://physionet.org/content/vindr-cxr/1.0.0/ (credentialed access, PhysioNet licence 1.5.0) and
https://www.kaggle.com/c/vinbigdata-chest-xray-abnormalities-detection (Nguyen et al., Scientific Data 2022).

- **Training images** were read by three radiologists each. Their boxes are fused, label by label, by weighted box
  fusion at IoU 0.1 (`rightlung.studies.fusion`; as in ChEX). A finding is positive where most readers name it,
  uncertain where fewer do, negative where none does. ``agreement=2`` keeps only boxes that at least two readers had a
  part in.
- **Test images** carry the consensus of five, and are taken as they are.
- ``extra["readers"]`` has each reader's own boxes and labels, from which a human ceiling can be computed;
  ``extra["boxes"]`` the fused boxes with their scores and readers; ``extra["labels"]`` how many readers name each
  label.
- Boxes are in pixels of the original image, whose size is in its header, read when a study is built (with age and sex).
- Patients are not published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Phrase, Polarity, ScoredBox, Study
from rightlung.studies.building import Building
from rightlung.studies.fusion import READERS_IOU, FusedBox, fuse
from rightlung.studies.headers import image_kind, tree_header
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.labelled import as_findings, finding_phrase, first_folders, folder_images, meanings
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box
from rightlung.studies.trees import FileImage, find_optional

LOCAL, GLOBAL = "vindr-22", "vindr-6"
CONSENSUS = "consensus"
NO_FINDING = "No finding"
ALIASES = {"Other disease": "Other diseases"}
"""The test labels write the singular."""
_EDGES = ("x_min", "y_min", "x_max", "y_max")
KAGGLE = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis", NO_FINDING,
)  # fmt: skip
"""The competition's classes; its "Other lesion" takes in the eight that it left out."""


class VinDrSource(IndexedSource):
    """VinDr-CXR, the training images first, in the tables' order."""

    reader: ClassVar[str] = "vindr"
    version: ClassVar[int] = 2
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "agreement")
    columns: ClassVar[Mapping[str, Any]] = {
        "image": "string",
        "drawn": "string",
        "named": "string",
        "known": "string",
        "height": "int32",
        "width": "int32",
    }

    def __init__(self, address: Address) -> None:
        self.agreement = address.whole_number("agreement", minimum=1) or 1
        super().__init__(address)

    def inputs(self) -> Sequence[Path]:
        """Return the tables and the folders with images."""
        tables = [path for split in ("train", "test") if (path := self._annotations(split)) is not None]
        if not tables:
            raise InputError(
                f"{self.root} has no table of boxes (annotations/annotations_train.csv, "
                "annotations/annotations_test.csv or train.csv)"
            )
        more = [self._labels(split) for split in ("train", "test")] + [find_optional(self.root, "train_meta.csv")]
        folders = [self.root / name for name in first_folders(self.root, "train", "test")]
        return [*tables, *(path for path in more if path is not None), *folders]

    def _annotations(self, split: str) -> Path | None:
        name = f"annotations_{split}.csv"
        kaggle = ("train.csv",) if split == "train" else ()
        return find_optional(self.root, f"annotations/{name}", name, *kaggle)

    def _labels(self, split: str) -> Path | None:
        name = f"image_labels_{split}.csv"
        return find_optional(self.root, f"annotations/{name}", name)

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each annotated image that is there."""
        for split in ("train", "test"):
            path = self._annotations(split)
            if path is None:
                continue
            if not first_folders(self.root, split):
                raise InputError(f"{self.root} has {path.name}, but no folder {split} with its images")
            yield from self._split_records(split, path, building)

    def _split_records(self, split: str, path: Path, building: Building) -> Iterator[Mapping[str, Any]]:
        reader = () if split == "test" else ("rad_id",)
        labels_path = self._labels(split)
        images = folder_images(self.root, [split])
        found = _Annotations(split, images)
        if labels_path is not None:
            labels = CsvTable(labels_path, ("image_id", *reader), problems=building.problems, root=self.root)
            known = {**meanings(LOCAL, GLOBAL), **ALIASES}
            columns = [column for column in labels.columns if column in known]
            if not columns:
                raise InputError(f"{labels_path} has none of the columns of VinDr-CXR's 28 labels")
            for _ in labels.read(lambda row: found.add_labels(row, columns)):
                building.step()
        boxes = CsvTable(path, ("image_id", *reader, "class_name", *_EDGES), problems=building.problems, root=self.root)
        for _ in boxes.read(found.add_box):
            building.step()
        kind = "image labels" if labels_path is not None else "kaggle" if path.name.startswith("train.") else "boxes"
        sizes = self._read_sizes(building) if split == "train" else {}
        for name, record in found.by_image.items():
            height, width = sizes.get(name, (None, None))
            if height is None and record["drawn"]:
                self._check_original(images[name], record["drawn"], split)
            yield {
                "id": name,
                "split": split,
                "file": record["file"],
                "line": record["line"],
                "image": images[name],
                "drawn": json.dumps(record["drawn"]),
                "named": json.dumps(record["named"]),
                "known": kind,
                "height": height,
                "width": width,
            }

    def _check_original(self, image: str, drawn: Sequence[Sequence[Any]], split: str) -> None:
        """Refuse images that were made smaller: a box that leaves one says so, and those that fit are wrong, too."""
        if image.lower().endswith((".dicom", ".dcm")):
            return
        try:
            size = tree_header(self.root, image, image).size
        except InputError:
            return  # told when the study is built
        for _, label, *edges in drawn:
            try:
                pixel_box(edges, size)
            except InputError as error:
                if box_kind(error) == "box-range":
                    needed = (
                        "train_meta.csv (image_id, dim0, dim1), which has the originals' sizes, is needed"
                        if split == "train"
                        else "the original DICOM files are needed (train_meta.csv is of training images only)"
                    )
                    raise InputError(
                        f"{self.root / image}: {label}: {error}; the images seem to have been made smaller, and boxes "
                        f"that happen to fit would be wrong, too: {needed}"
                    ) from None

    def _read_sizes(self, building: Building) -> dict[str, tuple[int, int]]:
        """Read the original images' heights and widths, where the images at hand were made smaller."""
        path = find_optional(self.root, "train_meta.csv")
        if path is None:
            return {}
        table = CsvTable(path, ("image_id", "dim0", "dim1"), problems=building.problems, root=self.root)

        def parse(row: TableRow) -> tuple[str, tuple[int, int]]:
            height, width = (int(row.required_number(column, low=1)) for column in ("dim0", "dim1"))
            return row.identifier("image_id"), (height, width)

        return dict(table.read(parse))

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record and of its image's header."""
        what = f"study {record['id']!r}: image {self.root / record['image']}"
        try:
            header = tree_header(self.root, record["image"], what)
        except InputError as error:
            raise self.problem(record, "image_id", str(error), image_kind(error)) from error
        size = header.size if record["height"] is None else (record["height"], record["width"])
        named: dict[str, list[str]] = json.loads(record["named"])
        drawn: dict[str, list[ScoredBox]] = {reader: [] for reader in named}
        for reader, label, *edges in json.loads(record["drawn"]):
            try:
                drawn[reader].append(ScoredBox(pixel_box(edges, size), 1.0, label))
            except InputError as error:
                message = f"study {record['id']!r}, {label}: {error}"
                raise self.problem(record, "x_min", message, box_kind(error)) from error
        labels = _counts(named, record["known"])
        polarities = {label: polarity_of(count, len(named)) for label, count in labels.items()}
        boxes = _as_given(drawn[CONSENSUS]) if CONSENSUS in drawn else fuse([*drawn.values()], READERS_IOU)
        readers = [*named]
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.root), record["image"]),
            view="PA",
            split=record["split"],
            age=header.age,
            sex=header.sex,
            phrases=tuple(_phrases(boxes, polarities, 1 if CONSENSUS in drawn else self.agreement)),
            findings=as_findings(polarities, LOCAL, GLOBAL),
            source=self.address,
            extra={
                "labels": labels,
                "boxes": [
                    {
                        "label": one.label,
                        "box": list(one.box.as_tuple()),
                        "score": one.score,
                        "readers": [readers[place] for place in one.readers],
                    }
                    for one in boxes
                ],
                "readers": {
                    reader: {
                        "labels": named[reader],
                        "boxes": [{"label": one.label, "box": list(one.box.as_tuple())} for one in drawn[reader]],
                    }
                    for reader in readers
                },
            },
        )


class _Annotations:
    """What the readers of one split say of each image, gathered row by row."""

    def __init__(self, split: str, images: Mapping[str, str]) -> None:
        self.by_image: dict[str, dict[str, Any]] = {}
        self._split = split
        self._images = images

    def _of(self, row: TableRow) -> tuple[dict[str, Any], str]:
        """Return what is known of a row's image, and the row's reader."""
        name = row.identifier("image_id")
        if name not in self._images:
            raise row.error("image_id", f"there is no image {name}.dicom in {self._split}", "missing-image")
        reader = CONSENSUS if self._split == "test" else row.required("rad_id")
        record = self.by_image.setdefault(name, {"file": row.file, "line": row.line, "drawn": [], "named": {}})
        record["named"].setdefault(reader, [])
        return record, reader

    def add_labels(self, row: TableRow, columns: Sequence[str]) -> bool:
        """Take in which labels a reader gives an image."""
        named = [ALIASES.get(label, label) for label in columns if _is_set(row, label)]
        record, reader = self._of(row)
        record["named"][reader] = named
        return True

    def add_box(self, row: TableRow) -> bool:
        """Take in a box, or that a reader has found nothing; who draws a finding has named it, too."""
        label = row.required("class_name")
        if label != NO_FINDING and label not in meanings(LOCAL):
            raise row.error("class_name", f"{label!r} is not one of the 22 findings", "label-value")
        edges = [] if label == NO_FINDING else [row.required_number(column, low=0) for column in _EDGES]
        if edges and not (edges[0] < edges[2] and edges[1] < edges[3]):
            raise row.error("x_min", f"box {edges} has no area: a minimum is not below its maximum", "box-size")
        record, reader = self._of(row)
        if edges:
            record["drawn"].append((reader, label, *edges))
        if label not in record["named"][reader]:
            record["named"][reader].append(label)
        return True


def _is_set(row: TableRow, column: str) -> bool:
    value = row.whole(column)
    if value not in (0, 1):
        raise row.error(column, f"must be 0 or 1; got {row.text(column)!r}", "label-value")
    return value == 1


def _counts(named: Mapping[str, Sequence[str]], kind: str) -> dict[str, int]:
    """Return how many readers name each label that they were asked for."""
    asked: Sequence[str]
    if kind == "image labels":
        asked = [*meanings(LOCAL, GLOBAL)]
    else:
        asked = KAGGLE if kind == "kaggle" else [*meanings(LOCAL), NO_FINDING]
    return {label: sum(label in labels for labels in named.values()) for label in asked}


def polarity_of(count: int, readers: int) -> Polarity:
    """Return what is to be said of a finding that so many of the readers name."""
    if not count:
        return Polarity.NEGATIVE
    return Polarity.POSITIVE if 2 * count > readers else Polarity.UNCERTAIN


def _as_given(boxes: Sequence[ScoredBox]) -> list[FusedBox]:
    return [FusedBox(one.box, one.score, one.label, (0,)) for one in boxes]


def _phrases(boxes: Sequence[FusedBox], polarities: Mapping[str, Polarity], agreement: int) -> Iterator[Phrase]:
    kept = [one for one in boxes if len(one.readers) >= agreement]
    for label in meanings(LOCAL):
        mine = [one.box for one in kept if one.label == label]
        if mine:
            yield finding_phrase(meanings(LOCAL)[label], mine, polarity=polarities[label])


def open_vindr(address: Address) -> VinDrSource:
    """Open ``vindr:PATH``; parameters ``split``, ``limit`` and ``agreement``."""
    return VinDrSource(address)
