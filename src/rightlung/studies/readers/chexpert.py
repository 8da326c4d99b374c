"""The `chexpert` reader: CheXpert, 224,316 radiographs with 14 labels mined from reports, and its 5×200 subset.

Irvin et al., AAAI 2019 (Stanford University data set research use agreement); test labels from
https://github.com/rajpurkarlab/cheXpert-test-set-labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Report, Study
from rightlung.core.problem import Problem, ProblemError
from rightlung.lexicon.labels import label_set
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource, columns, origin
from rightlung.studies.readers.labelled import CHEXPERT, chexpert_codes, chexpert_findings, chexpert_values
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import file_names

TABLES = {
    "train": ("train.csv",),
    "valid": ("valid.csv", "val_labels.csv"),
    "test": ("test_labels.csv", "test.csv", "groundtruth.csv"),
}
SUBSET = "5x200"
COMPETITION = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
"""The five findings of the 5×200 subset."""
_HOMES = ("", "CheXpert-v1.0", "CheXpert-v1.0-small", "CheXpert", "CheXpert-v1.0 batch 1 (validate & csv)")
_FOLDERS = {"train": ("train",), "valid": ("valid", "val"), "test": ("test",)}
_BATCH = re.compile(r"CheXpert-v1\.0 batch [0-9]+ \(.*\)")
_PATH = re.compile(r"(?:.*/)?(?P<split>train|valid|val|test)/(?P<patient>patient[0-9]+)/(?P<exam>study[0-9]+)")
_FILE = re.compile(r"/(?P<view>view[0-9]+_(?P<kind>frontal|lateral))\.(?:jpg|jpeg|png)")
_SEXES = {"male": "M", "m": "M", "female": "F", "f": "F", "unknown": None, "": None}


class CheXpertSource(DatasetSource):
    """CheXpert's frontal images, in the tables' order; parameters ``split``, ``limit`` and ``subset``."""

    version: ClassVar[int] = 3
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "subset")
    index_options: ClassVar[tuple[str, ...]] = ("subset",)
    columns: ClassVar[Mapping[str, Any]] = columns("report", labels=pa.binary(14))

    def _inputs(self) -> Sequence[Path]:
        tables = {SUBSET: ("chexpert_5x200.csv",)} if self.option("subset", [SUBSET]) else TABLES
        self._tables: dict[str, Path] = {}
        for split, files in tables.items():
            path = self.find(*(f"{home}/{file}" if home else file for home in _HOMES for file in files))
            if path is not None:
                self._tables[split] = path
        if not self._tables:
            looked = ", ".join(name for names in tables.values() for name in names)
            raise InputError(f"{self.root} has no table of CheXpert ({looked})")
        return [*self._tables.values()]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        batches = self._batches()
        for split, path in self._tables.items():
            folders = self._folders(path.parent)
            by_exam = path.name.startswith("groundtruth")
            place = "Study" if by_exam else "Path"
            table = CsvTable(path, (place, *COMPETITION), problems=log.problems, root=self.root)
            for label in label_set(CHEXPERT).labels:
                if label not in table.places:
                    message = "the table has no such column, so this label is unknown in all its rows"
                    log.problems.append(Problem(table.name, message, field=label, kind="label-name"))
            for row in table:
                try:
                    if by_exam:
                        yield from self._exam_records(row, folders["test"], log)
                    else:
                        yield from self._image_records(row, split, folders, batches, log)
                except InputError as error:
                    table.skip((error if isinstance(error, ProblemError) else row.error(place, str(error))).problem)

    def _image_records(
        self, row: TableRow, split: str, folders: Mapping[str, str], batches: Mapping[str, str], log: BuildLog
    ) -> Iterator[dict[str, Any]]:
        text = row.required("Path").replace("\\", "/")
        place, file = _PATH.match(text), _FILE.search(text)
        if place is None or file is None or place.end() != file.start() or file.end() != len(text):
            raise row.error("Path", f"must be like train/patient00001/study1/view1_frontal.jpg; got {text[:80]!r}")
        projection = row.text("AP/PA").upper()
        if file["kind"] == "lateral" or row.text("Frontal/Lateral") == "Lateral" or projection in ("LL", "RL"):
            log.left_out("lateral view")
            return
        own = "valid" if place["split"] == "val" else place["split"]
        home = batches.get(place["patient"]) if own == "train" else None
        home = home or f"{folders[own]}/{place['patient']}"
        record = _record(row, place, file, f"{home}/{place['exam']}{file[0]}")
        if split == SUBSET:
            record["labels"] = record["labels"].replace(b"\1", b"\0")
        yield {
            **record,
            "split": split,
            "view": projection or None,
            "age": row.number("Age", low=0, high=130) or None,
            "sex": _sex(row),
            "report": row.text("Report Impression") or None,
        }

    def _exam_records(self, row: TableRow, home: str, log: BuildLog) -> Iterator[dict[str, Any]]:
        """Yield the frontal images of an examination, found in its folder."""
        place = _PATH.fullmatch(row.required("Study"))
        if place is None:
            raise row.error("Study", f"must be like test/patient64741/study1; got {row.text('Study')[:80]!r}")
        folder = f"{home}/{place['patient']}/{place['exam']}"
        names = file_names(self.root / folder) if (self.root / folder).exists() else []
        if not names:
            raise row.error("Study", f"there is no image in {folder}", "missing-image")
        for name in names:
            file = _FILE.fullmatch(f"/{name}")
            if file is None or file["kind"] == "lateral":
                log.left_out("lateral view")
            else:
                yield {**_record(row, place, file, f"{folder}/{name}"), "split": "test"}

    def _folders(self, home: Path) -> dict[str, str]:
        """Return the image folder of each split, relative to the root; they are next to the table."""
        base = "" if home == self.root else f"{home.relative_to(self.root).as_posix()}/"
        return {
            split: base + next((name for name in names if (home / name).is_dir()), names[0])
            for split, names in _FOLDERS.items()
        }

    def _batches(self) -> dict[str, str]:
        """Return each patient's folder, if the training images are still in the downloaded parts."""
        return {
            patient: f"{name}/{patient}"
            for name in file_names(self.root)
            if _BATCH.fullmatch(name)
            for patient in file_names(self.root / name)
            if patient.startswith("patient")
        }

    def _build_study(self, record: dict[str, Any]) -> Study:
        labels = chexpert_values(record["labels"])
        extra: dict[str, Any] = {"labels": labels}
        if record["split"] == SUBSET:
            extra["class"] = next((label for label in COMPETITION if labels.get(label) == 1), None)
        text = record["report"]
        report = None if text is None else Report(text, {"impression": text})
        return self.as_study(record, report=report, findings=chexpert_findings(labels), extra=extra)


def _record(row: TableRow, place: re.Match[str], file: re.Match[str], image: str) -> dict[str, Any]:
    exam = f"{place['patient']}_{place['exam']}"
    return {
        "id": f"{exam}_{file['view']}",
        **origin(row),
        "image": image,
        "patient": place["patient"],
        "exam": exam,
        "labels": chexpert_codes(row),
    }


def _sex(row: TableRow) -> str | None:
    text = row.text("Sex")
    if text.casefold() not in _SEXES:
        raise row.error("Sex", f"must be Male, Female, Unknown or empty; got {text[:40]!r}", "label-value")
    return _SEXES[text.casefold()]
