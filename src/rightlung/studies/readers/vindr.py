"""The `vindr` reader: VinDr-CXR, 18,000 frontal (PA) radiographs with boxes of 22 findings, drawn by radiologists.

Nguyen et al., Scientific Data 2022; PhysioNet licence 1.5.0. `rightlung.studies.fusion` fuses the boxes as in ChEX.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Phrase, Polarity, ScoredBox, Study
from rightlung.core.keyed import key_digest
from rightlung.studies.fusion import READERS_IOU, FusedBox, fuse
from rightlung.studies.headers import read_header
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource, columns, origin, present
from rightlung.studies.readers.labelled import as_findings, finding_phrase, meanings
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box
from rightlung.studies.trees import folder_images

LOCAL, GLOBAL = "vindr-22", "vindr-6"
CONSENSUS = "consensus"
NO_FINDING = "No finding"
ALIASES = {"Other disease": "Other diseases"}
"""The test labels use the singular."""
_EDGES = ("x_min", "y_min", "x_max", "y_max")
_SIZES = "train_meta.csv"
KAGGLE = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Consolidation", "ILD", "Infiltration",
    "Lung Opacity", "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax",
    "Pulmonary fibrosis", NO_FINDING,
)  # fmt: skip
"""The competition's classes; its "Other lesion" includes the eight that it omits."""
FREQUENT = (*KAGGLE[:-1], "Mediastinal shift")
"""The 15 most frequent of the 22 findings with boxes, on which ChEX is evaluated (supp. E.2)."""


class VinDrSource(DatasetSource):
    """VinDr-CXR, the training images first, in the tables' order."""

    version: ClassVar[int] = 2
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "agreement", "seed", "classes")
    index_options: ClassVar[tuple[str, ...]] = ("seed",)
    columns: ClassVar[Mapping[str, Any]] = columns("drawn", "named", "known", height="int32", width="int32")

    def __init__(self, address: Address) -> None:
        self.agreement = address.whole_number("agreement", minimum=1) or 1
        self._seed = address.whole_number("seed")
        super().__init__(address)

    def _inputs(self) -> Sequence[Path]:
        some = self.option("classes", ("15", "22"), "22") == "15"
        self._classes = {label: name for label, name in meanings(LOCAL).items() if not some or label in FREQUENT}
        self._boxes = {split: self._table(f"annotations_{split}.csv") for split in ("train", "test")}
        self._boxes["train"] = self._boxes["train"] or self.find("train.csv")
        self._labels = {split: self._table(f"image_labels_{split}.csv") for split in self._boxes}
        if not any(self._boxes.values()):
            raise InputError(
                f"{self.root} has no table of boxes (annotations/annotations_train.csv, "
                "annotations/annotations_test.csv or train.csv)"
            )
        tables = present(*self._boxes.values(), *self._labels.values(), self.find(_SIZES))
        return [*tables, *(self.root / name for name in self.folders(*self._boxes))]

    def _table(self, name: str) -> Path | None:
        return self.find(f"annotations/{name}", name)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        for split, path in self._boxes.items():
            if path is not None:
                if not self.folders(split):
                    raise InputError(f"{self.root} has {path.name}, but no folder {split} with its images")
                yield from self._split_records(split, path, log)

    def _split_records(self, split: str, path: Path, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        reader = () if split == "test" else ("rad_id",)
        labels_path = self._labels[split]
        images = folder_images(self.root, [split])
        found = _Annotations(split, images)
        if labels_path is not None:
            labels = CsvTable(labels_path, ("image_id", *reader), problems=log.problems, root=self.root)
            known = {**meanings(LOCAL, GLOBAL), **ALIASES}
            named = [column for column in labels.columns if column in known]
            if not named:
                raise InputError(f"{labels_path} has none of the columns of VinDr-CXR's 28 labels")
            for _ in labels.read(lambda row: found.add_labels(row, named)):
                log.step()
        for _ in self.read(log, path, ("image_id", *reader, "class_name", *_EDGES), found.add_box):
            log.step()
        kind = "image labels" if labels_path is not None else "kaggle" if path.name.startswith("train.") else "boxes"
        sizes = self.sizes(log, self.find(_SIZES) if split == "train" else None, ("image_id", "dim0", "dim1"))
        halves = self._halves(found.by_image) if split == "test" else {}
        for name, record in found.by_image.items():
            height, width = sizes.get(name, (None, None))
            if height is None and record["drawn"]:
                self._check_original(images[name], record["drawn"], split)
            record |= {"drawn": json.dumps(record["drawn"]), "named": json.dumps(record["named"])}
            place = {"id": name, "split": halves.get(name, split), "image": images[name]}
            yield {**record, **place, "known": kind, "height": height, "width": width}

    def _halves(self, images: Iterable[str]) -> dict[str, str]:
        """With ``seed``, return which half of the test images each one belongs to."""
        if self._seed is None:
            return {}
        shuffled = sorted(images, key=lambda name: key_digest("vindr", self._seed, name))
        return {name: "val" if place < len(shuffled) // 2 else "test" for place, name in enumerate(shuffled)}

    def _check_original(self, image: str, drawn: Sequence[Sequence[Any]], split: str) -> None:
        """Reject resized images: a box outside one shows it, and boxes that fit are wrong, too."""
        if image.lower().endswith((".dicom", ".dcm")):
            return
        try:
            size = read_header(self.root / image, image).size
        except InputError:
            return  # reported when the study is built
        for _, label, *edges in drawn:
            try:
                pixel_box(edges, size)
            except InputError as error:
                if box_kind(error) == "box-range":
                    needed = (
                        f"{_SIZES} (image_id, dim0, dim1) with the original sizes is needed"
                        if split == "train"
                        else f"the original DICOM files are needed ({_SIZES} covers training images only)"
                    )
                    raise InputError(
                        f"{self.root / image}: {label}: {error}; the images seem to have been resized, so boxes that "
                        f"happen to fit would be wrong, too: {needed}"
                    ) from None

    def _build_study(self, record: dict[str, Any]) -> Study:
        header = self.header(record, "image_id")
        size = header.size if record["height"] is None else (record["height"], record["width"])
        named: dict[str, list[str]] = json.loads(record["named"])
        drawn: dict[str, list[ScoredBox]] = {reader: [] for reader in named}
        for reader, label, *edges in json.loads(record["drawn"]):
            try:
                drawn[reader].append(ScoredBox(pixel_box(edges, size), 1.0, label))
            except InputError as error:
                message = f"study {record['id']!r}, {label}: {error}"
                raise self.problem(record, "x_min", message, box_kind(error)) from error
        labels, global_labels = _counts(named, record["known"]), meanings(GLOBAL)
        polarities = {label: polarity_of(count, len(named)) for label, count in labels.items()}
        if CONSENSUS in drawn:
            boxes = [FusedBox(one.box, one.score, one.label, (0,)) for one in drawn[CONSENSUS]]
        else:
            boxes = fuse([*drawn.values()], READERS_IOU)
        readers = [*named]
        return self.as_study(
            record,
            header,
            view="PA",
            phrases=tuple(self._phrases(boxes, polarities, 1 if CONSENSUS in drawn else self.agreement)),
            findings=as_findings(
                {label: said for label, said in polarities.items() if label in self._classes or label in global_labels},
                LOCAL,
                GLOBAL,
            ),
            extra={
                "labels": labels,
                "boxes": [
                    {**_plain(one), "score": one.score, "readers": [readers[place] for place in one.readers]}
                    for one in boxes
                ],
                "readers": {
                    reader: {"labels": named[reader], "boxes": [_plain(one) for one in drawn[reader]]}
                    for reader in readers
                },
            },
        )

    def _phrases(
        self, boxes: Sequence[FusedBox], polarities: Mapping[str, Polarity], agreement: int
    ) -> Iterator[Phrase]:
        for label, finding in self._classes.items():
            mine = [one.box for one in boxes if one.label == label and len(one.readers) >= agreement]
            if mine:
                yield finding_phrase(finding, mine, polarity=polarities[label])


class _Annotations:
    """The readers' annotations of one split, collected row by row by image."""

    def __init__(self, split: str, images: Mapping[str, str]) -> None:
        self.by_image: dict[str, dict[str, Any]] = {}
        self._split = split
        self._images = images

    def _of(self, row: TableRow) -> tuple[dict[str, Any], str]:
        """Return the record of a row's image, and the row's reader."""
        name = row.identifier("image_id")
        if name not in self._images:
            raise row.error("image_id", f"there is no image {name}.dicom in {self._split}", "missing-image")
        reader = CONSENSUS if self._split == "test" else row.required("rad_id")
        record = self.by_image.setdefault(name, {**origin(row), "drawn": [], "named": {}})
        record["named"].setdefault(reader, [])
        return record, reader

    def add_labels(self, row: TableRow, columns: Sequence[str]) -> bool:
        """Add a reader's labels of an image."""
        named = [ALIASES.get(label, label) for label in columns if _is_set(row, label)]
        record, reader = self._of(row)
        record["named"][reader] = named
        return True

    def add_box(self, row: TableRow) -> bool:
        """Add a box, or that a reader has found nothing; a drawn finding is also named."""
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
    """Return how many readers name each label of the table."""
    by_kind = {"image labels": [*meanings(LOCAL, GLOBAL)], "kaggle": KAGGLE, "boxes": [*meanings(LOCAL), NO_FINDING]}
    return {label: sum(label in labels for labels in named.values()) for label in by_kind[kind]}


def polarity_of(count: int, readers: int) -> Polarity:
    """Return the polarity of a finding that ``count`` of the readers name."""
    if not count:
        return Polarity.NEGATIVE
    return Polarity.POSITIVE if 2 * count > readers else Polarity.UNCERTAIN


def _plain(one: ScoredBox | FusedBox) -> dict[str, Any]:
    return {"label": one.label, "box": list(one.box.as_tuple())}
