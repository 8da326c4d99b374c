"""The `chexlocalize` reader: CheXpert's valid and test images with radiologists' masks of ten findings.

Saporta et al., Nature Machine Intelligence 2022; format at https://github.com/rajpurkarlab/cheXlocalize.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Mask, Polarity, Study
from rightlung.core.checks import check_size
from rightlung.core.problem import Problem
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource, columns, origin, present
from rightlung.studies.readers.labelled import CHEXPERT, as_findings, finding_phrase, meanings, presence, read_json
from rightlung.studies.rle import decode_coco, is_empty_rle
from rightlung.studies.rows import FieldError
from rightlung.studies.tables import TableRow

FINDINGS = (
    "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Lesion", "Lung Opacity", "Edema", "Consolidation",
    "Atelectasis", "Pneumothorax", "Pleural Effusion", "Support Devices",
)  # fmt: skip
ALIASES = {"Airspace Opacity": "Lung Opacity", "Support Device": "Support Devices"}
_TABLES = {
    "val": ("CheXpert/val_labels.csv", "val_labels.csv", "CheXpert-v1.0/valid.csv", "valid.csv"),
    "test": ("CheXpert/test_labels.csv", "test_labels.csv", "CheXpert-v1.0/test.csv", "test.csv"),
}
_FOLDERS = {
    "val": ("CheXpert/val", "CheXpert/valid", "CheXpert-v1.0/valid", "CheXpert-v1.0-small/valid", "valid", "val"),
    "test": ("CheXpert/test", "CheXpert-v1.0/test", "CheXpert-v1.0-small/test", "test"),
}
_KEY = re.compile(r"(?P<patient>patient[0-9]+)_(?P<exam>study[0-9]+)_(?P<view>view[0-9]+_(?P<kind>frontal|lateral))")
_PATH = re.compile(r"(?:.*/)?(patient[0-9]+)/(study[0-9]+)/(view[0-9]+_(?:frontal|lateral))\.(?:jpg|png)")


class CheXlocalizeSource(DatasetSource):
    """CheXlocalize's frontal images, valid before test: those with labels in their order, then the others."""

    columns: ClassVar[Mapping[str, Any]] = columns("labels", "masks")

    def _inputs(self) -> Sequence[Path]:
        names = {split: f"gt_segmentations_{split}.json" for split in _TABLES}
        found = {split: self.find(f"CheXlocalize/{name}", name) for split, name in names.items()}
        self._masks = {split: path for split, path in found.items() if path is not None}
        if not self._masks:
            looked = " nor ".join(f"CheXlocalize/{name}" for name in names.values())
            raise InputError(f"{self.root} has neither {looked}")
        self._labels = {split: self.find(*tables) for split, tables in _TABLES.items()}
        return present(*self._masks.values(), *self._labels.values())

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        for split, path in self._masks.items():
            folder = self.image_folders(*_FOLDERS[split])[0]
            name = path.relative_to(self.root).as_posix()
            masks = _read_masks(path, name, log)
            labels = self._read_labels(split, log)
            for key in dict.fromkeys([*labels, *masks]):
                parts = _KEY.fullmatch(key)
                assert parts is not None  # both readers check this
                if parts["kind"] == "lateral":
                    log.left_out("lateral view")
                    continue
                yield {
                    "file": name,
                    **labels.get(key, {}),
                    "id": key,
                    "split": split,
                    "image": f"{folder}/{parts['patient']}/{parts['exam']}/{parts['view']}.jpg",
                    "patient": parts["patient"],
                    "exam": f"{parts['patient']}_{parts['exam']}",
                    "masks": json.dumps(masks.get(key, {})),
                }

    def _read_labels(self, split: str, log: BuildLog) -> dict[str, dict[str, Any]]:
        def parse(row: TableRow) -> tuple[str, dict[str, Any]]:
            place = _PATH.fullmatch(row.required("Path").replace("\\", "/"))
            if place is None:
                raise row.error(
                    "Path", f"must be like test/patient64741/study1/view1_frontal.jpg; got {row.text('Path')[:80]!r}"
                )
            values = {label: row.whole(label, low=0, high=1) for label in meanings(CHEXPERT)}
            return "_".join(place.groups()), {
                **origin(row),
                "view": row.text("AP/PA") or None,
                "age": row.number("Age", low=0, high=130) or None,
                "sex": {"Male": "M", "Female": "F"}.get(row.text("Sex")),
                "labels": json.dumps({label: value for label, value in values.items() if value is not None}),
            }

        return dict(self.read(log, self._labels[split], ("Path", *FINDINGS), parse))

    def _build_study(self, record: dict[str, Any]) -> Study:
        masks, labels = json.loads(record["masks"]), json.loads(record["labels"] or "{}")
        # An outlined finding is present.
        known = {label: presence(value) for label, value in labels.items()} | dict.fromkeys(masks, Polarity.POSITIVE)
        phrases = []
        for label, (counts, size) in masks.items():
            mask = Mask.deferred(partial(decode_coco, f"study {record['id']!r}: mask of {label}", counts, tuple(size)))
            phrases.append(finding_phrase(meanings(CHEXPERT)[label], mask=mask))
        findings = as_findings(known, CHEXPERT)
        return self.as_study(record, phrases=tuple(phrases), findings=findings, extra={"labels": labels})


def _read_masks(path: Path, name: str, log: BuildLog) -> dict[str, dict[str, Any]]:
    """Return the non-empty masks by image and finding."""
    found: dict[str, dict[str, Any]] = {}
    for key, entry in read_json(path, dict, "an object with images as names").items():
        try:
            found[key] = _checked(key, entry)
        except InputError as error:
            log.problems.append(Problem(name, str(error), None, key[:80], getattr(error, "kind", None)))
    return found


def _checked(key: str, entry: object) -> dict[str, Any]:
    """Return an image's non-empty masks: counts and size by finding."""
    if _KEY.fullmatch(key) is None:
        raise InputError("an image's name must be like patient64541_study1_view1_frontal")
    if not isinstance(entry, dict):
        raise InputError("an image's entry must be an object with findings as names")
    masks: dict[str, Any] = {}
    for name, rle in entry.items():
        label = ALIASES.get(name, name)
        if label not in FINDINGS:
            raise FieldError(name, f"{name!r} is not one of the ten findings", "label-value")
        if not isinstance(rle, dict) or not isinstance(rle.get("counts"), str):
            raise InputError(f"the mask of {name} must have 'size' and 'counts', a string")
        size = check_size(rle.get("size") or (), f"the size of the mask of {name}")
        if not is_empty_rle(rle["counts"]):
            masks[label] = (rle["counts"], size)
    return masks
