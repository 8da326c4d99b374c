"""MIMIC-CXR and MIMIC-CXR-JPG: frontal images with reports, the official split, and labels mined from the reports.

``mimic:/data/mimic-cxr-jpg`` expects what PhysioNet distributes (credentialed access, PhysioNet Credentialed Health
Data License 1.5.0): https://physionet.org/content/mimic-cxr-jpg/2.1.0/ and
https://physionet.org/content/mimic-cxr/2.1.0/ ::

    mimic-cxr-2.0.0-metadata.csv(.gz)    dicom_id, subject_id, study_id, ViewPosition, Rows, Columns, StudyDate, …
    mimic-cxr-2.0.0-split.csv(.gz)       dicom_id, study_id, subject_id, split (train, validate, test)
    mimic-cxr-2.0.0-chexpert.csv(.gz)    subject_id, study_id and 14 labels: 1.0, 0.0, -1.0 (uncertain), empty
    mimic-cxr-2.0.0-negbio.csv(.gz)      the same by the other labeller
    mimic-cxr-2.1.0-test-set-labeled.csv study_id and 14 labels, by a radiologist
    files/p10/p10000032/s50414267/02aa804e-bde0afdd-112c0b34-7bc16630-4e384014.jpg   (or .dcm)
    files/p10/p10000032/s50414267.txt    the report (MIMIC-CXR); or mimic-cxr-reports.zip

Only the metadata is needed, or MIMIC-CXR's ``cxr-record-list.csv(.gz)`` in its place, which does not say which views
are lateral: then that is found out when a DICOM image is read. ``patients.csv(.gz)`` of MIMIC-IV beside them gives age
and sex. Tables, images and reports may lie apart: ``tables=``, ``images=`` and ``reports=`` (a folder or the archive).

A study is an image; its exam is MIMIC's study. Findings come from CheXpert's labels, with ``labels=negbio`` from
NegBio's, with ``labels=radiologist`` from the test set's; all stand in ``extra``. Views other than AP and PA
are left out and counted; ``views=AP,PA,unknown`` also takes those of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Polarity, Study
from rightlung.core.errors import unknown_name
from rightlung.lexicon.labels import label_map, label_set
from rightlung.studies.building import Building
from rightlung.studies.index import IndexedSource
from rightlung.studies.readers.mimic_files import (
    REPORT_COLUMNS,
    MimicImage,
    MimicReports,
    files_folder,
    given_path,
    image_stem,
    report_record,
    sentence_phrases,
)
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import find_optional

METADATA = "mimic-cxr-2.0.0-metadata.csv"
_RECORDS = "cxr-record-list.csv"
_SPLIT = "mimic-cxr-2.0.0-split.csv"
_PATIENTS = "patients.csv"
_LABELS = {
    "chexpert": "mimic-cxr-2.0.0-chexpert.csv",
    "negbio": "mimic-cxr-2.0.0-negbio.csv",
    "radiologist": "mimic-cxr-2.1.0-test-set-labeled.csv",
}
_POLARITIES = {1: Polarity.POSITIVE, 0: Polarity.NEGATIVE, -1: Polarity.UNCERTAIN}
# The 14 labels of an exam are 14 bytes in the index, 227,000 times.
_CODES = {"": 0, "0.0": 1, "0": 1, "1.0": 2, "1": 2, "-1.0": 3, "-1": 3}
_VALUES = (None, 0, 1, -1)
_VIEW_MEANINGS = {"antero-posterior": "AP", "postero-anterior": "PA", "left lateral": "LL", "lateral": "LATERAL"}
_LATERALS = ("LATERAL", "LL", "RL", "XTABLE LATERAL")


def open_mimic(address: Address) -> MimicSource:
    """Open ``mimic:PATH``, PATH the folder of MIMIC-CXR or MIMIC-CXR-JPG."""
    return MimicSource(address)


class MimicSource(IndexedSource):
    """The frontal images of MIMIC-CXR, in the order of the metadata."""

    reader: ClassVar[str] = "mimic"
    version: ClassVar[int] = 1
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports", "tables", "labels", "views")
    index_options: ClassVar[tuple[str, ...]] = ("views",)
    split_aliases: ClassVar[Mapping[str, str]] = dict.fromkeys(("val", "valid", "validation"), "validate")
    columns: ClassVar[Mapping[str, Any]] = {
        "patient": "string",
        "exam": "string",
        "view": "string",
        "rows": "int32",
        "columns": "int32",
        "date": "string",
        "age": "int16",
        "sex": "string",
        **{name: pa.binary(14) for name in _LABELS},
        **REPORT_COLUMNS,
    }

    def __init__(self, address: Address) -> None:
        self._labels = address.parameters.get("labels", "chexpert")
        if self._labels not in _LABELS:
            raise unknown_name("labels", self._labels, _LABELS)
        super().__init__(address)
        folder = files_folder(self._place("images"))
        if folder is None:
            raise InputError(f"{address}: {self._place('images')} has no images: neither files/p10 nor p10")
        self._images = str(folder)

    def _place(self, name: str) -> Path:
        return given_path(self.address, name, self.options[name]) if name in self.options else self.root

    def inputs(self) -> Sequence[Path]:
        """Return the tables that are there, and the archive of reports."""
        tables = self._place("tables")
        main = find_optional(tables, METADATA, _RECORDS)
        if main is None:
            raise InputError(f"{tables} has neither {METADATA} nor {_RECORDS}, plain or with .gz; see tables=")
        self._main, self._tables = main, tables
        self._reports = MimicReports.find(
            self.address, self.options.get("reports"), dict.fromkeys([self.root, tables, self._place("images")])
        )
        others = [find_optional(tables, name) for name in (_SPLIT, *_LABELS.values(), _PATIENTS)]
        return [main, *(path for path in others if path is not None), *self._reports.inputs()]

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Join the tables, one record for each frontal image."""
        views = _wanted_views(self.options.get("views", "AP,PA"))
        known = self._main.name.startswith(METADATA)
        splits = self._read_splits(building)
        labels = {name: self._read_labels(name, building) for name in _LABELS}
        patients = self._read_patients(building)
        reports = self._reports.by_exam()
        table = CsvTable(
            self._main, ("dicom_id", "subject_id", "study_id"), problems=building.problems, root=self._tables
        )
        if known and not table.has("ViewPosition"):
            CsvTable(self._main, ("ViewPosition",), problems=building.problems)  # says which columns there are

        def parse(row: TableRow) -> dict[str, Any] | None:
            dicom, patient, exam = row.identifier("dicom_id"), row.whole("subject_id"), row.whole("study_id")
            if patient is None or exam is None:
                raise row.error("subject_id" if patient is None else "study_id", "is empty; every row must have it")
            view = _view(row) if known else None
            if known and (view or "UNKNOWN") not in views:
                building.left_out(_reason(view))
                return None
            date = row.text("StudyDate")
            sex, born = patients.get(patient, (None, None))
            return {
                "id": dicom,
                "split": splits.get(dicom),
                "file": row.file,
                "line": row.line,
                "patient": str(patient),
                "exam": str(exam),
                "view": view,
                "rows": row.whole("Rows", low=1),
                "columns": row.whole("Columns", low=1),
                "date": date or None,
                "sex": sex,
                "age": int(date[:4]) - born if born is not None and date[:4].isdecimal() else None,
                **{name: by_exam.get(exam) for name, by_exam in labels.items()},
                **report_record(reports.get(exam)),
            }

        yield from table.read(parse)

    def _read_splits(self, building: Building) -> dict[str, str]:
        path = find_optional(self._tables, _SPLIT)
        if path is None:
            return {}
        table = CsvTable(path, ("dicom_id", "split"), problems=building.problems, root=self._tables)
        names: dict[str, str] = {}  # one text for each split, not one a row

        def parse(row: TableRow) -> tuple[str, str]:
            split = row.required("split")
            return row.required("dicom_id"), names.setdefault(split, split)

        return dict(table.read(parse))

    def _read_labels(self, name: str, building: Building) -> dict[int, bytes]:
        path = find_optional(self._tables, _LABELS[name])
        if path is None:
            return {}
        labels = label_set("chexpert-14").labels
        # The radiologist's table has a name of its own for one of the labels, and not all of them.
        radiologist = name == "radiologist"
        aliases = {"Airspace Opacity": "Lung Opacity"} if radiologist else {}
        required = ("study_id",) if radiologist else ("study_id", *labels)
        table = CsvTable(path, required, problems=building.problems, root=self._tables, aliases=aliases)

        def parse(row: TableRow) -> tuple[int, bytes]:
            exam = row.whole("study_id")
            if exam is None:
                raise row.error("study_id", "is empty; every row must have it")
            texts = row.texts(labels)
            try:
                return exam, bytes([_CODES[text] for text in texts])
            except KeyError as error:
                label = labels[texts.index(error.args[0])]
                raise row.error(label, f"must be 1, 0, -1 or empty; got {error}", "label-value") from None

        return dict(table.read(parse))

    def _read_patients(self, building: Building) -> dict[int, tuple[str | None, int | None]]:
        """Return sex and year of birth by patient, from MIMIC-IV's table; both in MIMIC's shifted time."""
        path = find_optional(self._tables, _PATIENTS)
        if path is None:
            return {}
        columns = ("subject_id", "gender", "anchor_age", "anchor_year")
        table = CsvTable(path, columns, problems=building.problems, root=self._tables)

        def parse(row: TableRow) -> tuple[int, tuple[str | None, int | None]]:
            patient, age, year = row.whole("subject_id"), row.whole("anchor_age", 0, 130), row.whole("anchor_year")
            if patient is None:
                raise row.error("subject_id", "is empty; every row must have it")
            return patient, (row.text("gender") or None, None if age is None or year is None else year - age)

        return dict(table.read(parse))

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record; the report is read now, the image later."""
        study_id, patient, exam = record["id"], record["patient"], record["exam"]
        report = self._reports.read(record, patient, exam)
        names = label_set("chexpert-14").labels
        labels = {
            labeller: {
                name: value
                for name, code in zip(names, record[labeller], strict=True)
                if (value := _VALUES[code]) is not None
            }
            for labeller in _LABELS
            if record[labeller] is not None
        }
        extra = {**labels, "study_date": record["date"], "rows": record["rows"], "columns": record["columns"]}
        return Study(
            id=study_id,
            load=MimicImage(study_id, self._images, image_stem(patient, exam, study_id)),
            patient=patient,
            exam=exam,
            view=record["view"],
            split=record["split"],
            age=record["age"],
            sex=record["sex"],
            report=report,
            phrases=sentence_phrases(report),
            findings=chexpert_findings(labels.get(self._labels, {})),
            source=self.address,
            extra={name: value for name, value in extra.items() if value is not None},
        )


def chexpert_findings(labels: Mapping[str, int]) -> dict[str, Polarity]:
    """Return what CheXpert's labels (1, 0, -1) say in canonical findings.

    >>> chexpert_findings({"Edema": 1, "Lung Opacity": -1})
    {'edema': <Polarity.POSITIVE: 'positive'>, 'lung opacity': <Polarity.UNCERTAIN: 'uncertain'>}
    """
    names = label_map("chexpert-14", "findings")
    return {finding: _POLARITIES[value] for label, value in labels.items() for finding in names.apply(label) or ()}


def _wanted_views(text: str) -> set[str]:
    views = {name.strip().upper() for name in text.split(",") if name.strip()}
    for name in views:
        if name not in ("AP", "PA", "UNKNOWN"):
            raise unknown_name("view", name, ("AP", "PA", "unknown"))
    if not views:
        raise InputError("views= names no view; known: AP, PA, unknown")
    return views


def _view(row: TableRow) -> str | None:
    view = row.text("ViewPosition").upper()
    return view or _VIEW_MEANINGS.get(row.text("ViewCodeSequence_CodeMeaning").lower())


def _reason(view: str | None) -> str:
    if view is None:
        return "view not stated"
    return "lateral view" if view in _LATERALS else f"view {view}"
