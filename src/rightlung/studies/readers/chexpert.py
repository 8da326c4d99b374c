"""The `chexpert` reader: CheXpert, 224,316 radiographs with 14 observations mined from reports, and its 5×200 subset.

::

    chexpert:/data/CheXpert-v1.0        or CheXpert-v1.0-small, or the folder that holds either
        train.csv                       Path,Sex,Age,Frontal/Lateral,AP/PA and 14 columns of 1, 0, -1 or nothing
        valid.csv                       any of these tables; at least one. Also val_labels.csv
        test_labels.csv                 Path and 14 columns; or groundtruth.csv: Study and 14 columns
        chexpert_5x200.csv              for subset=5x200
        train/patient00001/study1/view1_frontal.jpg
        valid/… (or val/…)  test/…

From https://stanfordmlgroup.github.io/competitions/chexpert/ and https://stanfordaimi.azurewebsites.net (Irvin et al.,
AAAI 2019; Stanford University data set research use agreement); test labels from
https://github.com/rajpurkarlab/cheXpert-test-set-labels. The download in parts is read as it comes, too: folders
"CheXpert-v1.0 batch 1 (validate & csv)", "CheXpert-v1.0 batch 2 (train 1)" and so on, side by side.

- 1 is positive, 0 negative, -1 **uncertain**, nothing **unknown**. ``extra["labels"]`` has the values. The valid and
  test labels are radiologists'; they are only 0 and 1.
- A column of the 14 that a table lacks is listed in ``problems``; its label is unknown in all studies of the table.
- Lateral views are left out, and so are the 17 rows called frontal whose projection is ``LL`` or ``RL``.
- Age 0 (3 rows) is unknown. There are no boxes; for masks of valid and test images see `chexlocalize`.
- ``subset=5x200``: the table as GLoRIA makes it (200 images of ``train`` for each of five findings that have no
  other). It was written with blanks filled by 0, so that 0 is **unknown** there; ``extra["class"]`` is the one
  finding, the split ``5x200``. A column ``Report Impression``, where there is one, is the report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import InputError, Polarity, Report, Study
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem
from rightlung.lexicon.labels import label_set
from rightlung.studies.building import Building
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.labelled import as_findings
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import FileImage, find_optional

LABEL_SET = "chexpert-14"
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
_CODES = {1: "+", 0: "-", -1: "?"}
_POLARITIES = {"+": Polarity.POSITIVE, "-": Polarity.NEGATIVE, "?": Polarity.UNCERTAIN}
_SEXES = {"male": "M", "m": "M", "female": "F", "f": "F", "unknown": None, "": None}
_VALUES = {"+": 1, "-": 0, "?": -1}


class CheXpertSource(IndexedSource):
    """CheXpert's frontal images: train, valid, test, in the tables' order."""

    reader: ClassVar[str] = "chexpert"
    version: ClassVar[int] = 2
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "subset")
    index_options: ClassVar[tuple[str, ...]] = ("subset",)
    split_aliases: ClassVar[Mapping[str, str]] = {"val": "valid", "validate": "valid"}
    columns: ClassVar[Mapping[str, Any]] = {
        "image": "string",
        "patient": "string",
        "exam": "string",
        "view": "string",
        "age": "float64",
        "sex": "string",
        "labels": "string",
        "report": "string",
    }

    def inputs(self) -> Sequence[Path]:
        """Return the tables."""
        subset = self.options.get("subset")
        if subset is not None and subset != SUBSET:
            raise unknown_name("subset", subset, [SUBSET])
        tables = [path for _, path in self._tables()]
        if not tables:
            looked = "chexpert_5x200.csv" if subset else ", ".join(name for names in TABLES.values() for name in names)
            raise InputError(f"{self.root} has no table of CheXpert ({looked})")
        return tables

    def _tables(self) -> Iterator[tuple[str, Path]]:
        """Yield the tables that are there, each with its split; folder after folder, in the order of `_HOMES`."""
        names = {SUBSET: ("chexpert_5x200.csv",)} if "subset" in self.options else TABLES
        for split, files in names.items():
            path = find_optional(self.root, *(f"{home}/{file}" if home else file for home in _HOMES for file in files))
            if path is not None:
                yield split, path

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each frontal image that a table names."""
        batches = self._batches()
        for split, path in self._tables():
            folders = self._folders(path.parent)
            if path.name.startswith("groundtruth"):
                yield from self._studies_records(path, folders, building)
                continue
            table = CsvTable(path, ("Path", *COMPETITION), problems=building.problems, root=self.root)
            _note_missing_labels(table, building)

            def parse(row: TableRow, split: str = split, folders: Mapping[str, str] = folders) -> dict[str, Any] | None:
                return self._record(row, split, folders, batches, building)

            yield from table.read(parse)

    def _record(
        self, row: TableRow, split: str, folders: Mapping[str, str], batches: Mapping[str, str], building: Building
    ) -> dict[str, Any] | None:
        text = row.required("Path").replace("\\", "/")
        place, file = _PATH.match(text), _FILE.search(text)
        if place is None or file is None or place.end() != file.start() or file.end() != len(text):
            raise row.error("Path", f"must be like train/patient00001/study1/view1_frontal.jpg; got {text[:80]!r}")
        projection = row.text("AP/PA").upper()
        if file["kind"] == "lateral" or row.text("Frontal/Lateral") == "Lateral" or projection in ("LL", "RL"):
            building.left_out("lateral view")
            return None
        own = "valid" if place["split"] == "val" else place["split"]
        home = batches.get(place["patient"]) if own == "train" else None
        home = home or f"{folders[own]}/{place['patient']}"
        codes = _codes(row)
        if split == SUBSET:
            codes = codes.replace("-", " ")
        return {
            "id": f"{place['patient']}_{place['exam']}_{file['view']}",
            "split": split,
            "file": row.file,
            "line": row.line,
            "image": f"{home}/{place['exam']}{file[0]}",
            "patient": place["patient"],
            "exam": f"{place['patient']}_{place['exam']}",
            "view": projection or None,
            "age": row.number("Age", low=0, high=130) or None,
            "sex": _sex(row),
            "labels": codes,
            "report": row.text("Report Impression") or None,
        }

    def _studies_records(
        self, path: Path, folders: Mapping[str, str], building: Building
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the frontal images of examinations, found in their folders: the table has one row for each."""
        table = CsvTable(path, ("Study", *COMPETITION), problems=building.problems, root=self.root)
        _note_missing_labels(table, building)
        for row in table:
            try:
                place = _PATH.fullmatch(row.required("Study"))
                if place is None:
                    raise row.error("Study", f"must be like test/patient64741/study1; got {row.text('Study')[:80]!r}")
                folder = f"{folders['test']}/{place['patient']}/{place['exam']}"
                codes = _codes(row)
                names = _files(self.root / folder)
                if not names:
                    raise row.error("Study", f"there is no image in {folder}", "missing-image")
            except InputError as error:
                table.skip(row.error("Study", str(error)).problem if not hasattr(error, "problem") else error.problem)
                continue
            for name in names:
                file = _FILE.fullmatch(f"/{name}")
                if file is None or file["kind"] == "lateral":
                    building.left_out("lateral view")
                    continue
                yield {
                    "id": f"{place['patient']}_{place['exam']}_{file['view']}",
                    "split": "test",
                    "file": row.file,
                    "line": row.line,
                    "image": f"{folder}/{name}",
                    "patient": place["patient"],
                    "exam": f"{place['patient']}_{place['exam']}",
                    "labels": codes,
                }

    def _folders(self, home: Path) -> dict[str, str]:
        """Return the folder of each split's images, relative to the root; they lie beside the table."""
        base = "" if home == self.root else f"{home.relative_to(self.root).as_posix()}/"
        return {
            split: base + next((name for name in names if (home / name).is_dir()), names[0])
            for split, names in _FOLDERS.items()
        }

    def _batches(self) -> dict[str, str]:
        """Return where each patient's folder lies, where the training images are still in the parts they come in."""
        places: dict[str, str] = {}
        for name in _files(self.root):
            if _BATCH.fullmatch(name):
                for patient in _files(self.root / name):
                    if patient.startswith("patient"):
                        places[patient] = f"{name}/{patient}"
        return places

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record."""
        known = zip(label_set(LABEL_SET).labels, record["labels"], strict=True)
        labels = {label: code for label, code in known if code != " "}
        extra: dict[str, Any] = {"labels": {label: _VALUES[code] for label, code in labels.items()}}
        if record["split"] == SUBSET:
            extra["class"] = next((label for label in COMPETITION if labels.get(label) == "+"), None)
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.root), record["image"]),
            patient=record["patient"],
            exam=record["exam"],
            view=record["view"],
            split=record["split"],
            age=record["age"],
            sex=record["sex"],
            report=None if record["report"] is None else Report(record["report"], {"impression": record["report"]}),
            findings=as_findings({label: _POLARITIES[code] for label, code in labels.items()}, LABEL_SET),
            source=self.address,
            extra=extra,
        )


def _note_missing_labels(table: CsvTable, building: Building) -> None:
    """Put down which of the 14 labels a table does not have: nothing is known of them in any of its studies."""
    for label in label_set(LABEL_SET).labels:
        if label not in table.columns:
            message = "the table has no such column, so this label is unknown in all of its rows"
            building.problems.append(Problem(table.name, message, field=label, kind="label-name"))


def _sex(row: TableRow) -> str | None:
    text = row.text("Sex")
    if text.casefold() not in _SEXES:
        raise row.error("Sex", f"must be Male, Female, Unknown or empty; got {text[:40]!r}", "label-value")
    return _SEXES[text.casefold()]


def _codes(row: TableRow) -> str:
    """Return the 14 labels of a row as 14 characters: ``+``, ``-``, ``?``, and a blank where nothing is said."""
    codes = []
    for label in label_set(LABEL_SET).labels:
        value = row.whole(label)
        if value is not None and value not in _CODES:
            raise row.error(label, f"must be 1, 0, -1 or empty; got {row.text(label)!r}", "label-value")
        codes.append(" " if value is None else _CODES[value])
    return "".join(codes)


def _files(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (names, not Path objects)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from error


def open_chexpert(address: Address) -> CheXpertSource:
    """Open ``chexpert:PATH``; parameters ``split``, ``limit`` and ``subset``."""
    return CheXpertSource(address)
