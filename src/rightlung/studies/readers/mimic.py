"""The `mimic` reader: MIMIC-CXR and MIMIC-CXR-JPG, frontal images with reports, official split and mined labels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Phrase, Study
from rightlung.core.errors import unknown_name
from rightlung.lexicon.labels import label_set
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import Value, columns, origin, present
from rightlung.studies.readers.labelled import CHEXPERT, chexpert_codes, chexpert_findings, chexpert_values
from rightlung.studies.readers.mimic_files import MEMBER, METADATA, SPLIT, MimicBasedSource, files_folder
from rightlung.studies.report_text import descriptive_sentences
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import find_optional

_RECORDS = "cxr-record-list.csv"
_PATIENTS = "patients.csv"
_LABELS = {
    "chexpert": "mimic-cxr-2.0.0-chexpert.csv",
    "negbio": "mimic-cxr-2.0.0-negbio.csv",
    "radiologist": "mimic-cxr-2.1.0-test-set-labeled.csv",
}
_VIEW_MEANINGS = {"antero-posterior": "AP", "postero-anterior": "PA", "left lateral": "LL", "lateral": "LATERAL"}
_LATERALS = ("LATERAL", "LL", "RL", "XTABLE LATERAL")
_PATIENT_COLUMNS = ("subject_id", "gender", "anchor_age", "anchor_year")


class MimicSource(MimicBasedSource):
    """The frontal images of MIMIC-CXR, in the order of the metadata."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "reports", "tables", "labels", "views")
    index_options: ClassVar[tuple[str, ...]] = ("views",)
    columns: ClassVar[Mapping[str, Any]] = columns(
        "date", rows="int32", columns="int32", report=MEMBER, **dict.fromkeys(_LABELS, pa.binary(14))
    )

    def _inputs(self) -> Sequence[Path]:
        self._labels = self.option("labels", _LABELS, "chexpert")
        tables, images = (self.given(name) or self.root for name in ("tables", "images"))
        main = find_optional(tables, METADATA, _RECORDS)
        if main is None:
            raise InputError(f"{tables} has neither {METADATA} nor {_RECORDS}, plain or with .gz; see tables=")
        folder = files_folder(images)
        if folder is None:
            raise InputError(f"{self.address}: {images} has no images: neither files/p10 nor p10")
        self._main, self._tables, self.images = main, tables, folder
        places = dict.fromkeys([self.root, tables, images])
        self._reports = self.find_reports(places)
        others = [find_optional(tables, name) for name in (SPLIT, *_LABELS.values(), _PATIENTS)]
        return present(main, *others, self._reports.archive)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        views = _wanted_views(self.options.get("views", "AP,PA"))
        known = self._main.name.startswith(METADATA)
        splits = dict(self._lookup(log, SPLIT, ("dicom_id", "split"), _split))
        labels = {name: dict(self._read_labels(name, log)) for name in _LABELS}
        patients = dict(self._lookup(log, _PATIENTS, _PATIENT_COLUMNS, _patient))
        reports = self._reports.by_exam()

        def parse(row: TableRow) -> dict[str, Any] | None:
            dicom, patient, exam = row.identifier("dicom_id"), _number(row, "subject_id"), _number(row, "study_id")
            view = _view(row) if known else None
            if known and (view or "UNKNOWN") not in views:
                log.left_out(_reason(view))
                return None
            date = row.text("StudyDate")
            sex, born = patients.get(patient, (None, None))
            return {
                "id": dicom,
                "split": splits.get(dicom),
                **origin(row),
                "patient": str(patient),
                "exam": str(exam),
                "view": view,
                "rows": row.whole("Rows", low=1),
                "columns": row.whole("Columns", low=1),
                "date": date or None,
                "sex": sex,
                "age": int(date[:4]) - born if born is not None and date[:4].isdecimal() else None,
                **{name: by_exam.get(exam) for name, by_exam in labels.items()},
                "report": reports.get(exam),
            }

        required = ("dicom_id", "subject_id", "study_id", *(["ViewPosition"] if known else []))
        yield from self.read(log, self._main, required, parse, root=self._tables)

    def _lookup(
        self, log: BuildLog, name: str, required: Sequence[str], parse: Callable[[TableRow], Value], **how: Any
    ) -> Iterator[Value]:
        path = find_optional(self._tables, name)
        return self.read(log, path, required, parse, root=self._tables, **how)

    def _read_labels(self, name: str, log: BuildLog) -> Iterator[tuple[int, bytes]]:
        # The radiologist's table names one label differently and does not have all of them.
        radiologist = name == "radiologist"
        aliases = {"Airspace Opacity": "Lung Opacity"} if radiologist else {}
        required = ("study_id",) if radiologist else ("study_id", *label_set(CHEXPERT).labels)
        return self._lookup(log, _LABELS[name], required, _exam_labels, aliases=aliases)

    def _build_study(self, record: dict[str, Any]) -> Study:
        report = self._reports.read(record)
        labels = {name: chexpert_values(record[name]) for name in _LABELS if record[name] is not None}
        extra = {**labels, "study_date": record["date"], "rows": record["rows"], "columns": record["columns"]}
        return self.as_study(
            record,
            report=report,
            phrases=tuple(map(Phrase, descriptive_sentences(report.text, report.sections) if report else ())),
            findings=chexpert_findings(labels.get(self._labels, {})),
            extra={name: value for name, value in extra.items() if value is not None},
        )


def _number(row: TableRow, column: str) -> int:
    number = row.whole(column)
    if number is None:
        raise row.error(column, "is empty; every row must have it")
    return number


def _split(row: TableRow) -> tuple[str, str]:
    return row.required("dicom_id"), sys.intern(row.required("split"))


def _exam_labels(row: TableRow) -> tuple[int, bytes]:
    return _number(row, "study_id"), chexpert_codes(row)


def _patient(row: TableRow) -> tuple[int, tuple[str | None, int | None]]:
    """Return a patient with sex and year of birth from MIMIC-IV's table, in MIMIC's shifted time."""
    age, year = row.whole("anchor_age", 0, 130), row.whole("anchor_year")
    born = None if age is None or year is None else year - age
    return _number(row, "subject_id"), (row.text("gender") or None, born)


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
