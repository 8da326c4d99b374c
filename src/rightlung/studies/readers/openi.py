"""The `openi` reader: the chest X-ray collection of Indiana University (Open-I, "IU X-Ray"), in three layouts.

The automatic terms are text-mined, so they are not findings but go to ``extra["automatic"]``. The image features are
not read. Of R2Gen's image pairs (Chen et al., EMNLP 2020) the first is used, as in the single-image papers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Phrase, Polarity, Report, Study
from rightlung.core.problem import Problem
from rightlung.lexicon.findings import find
from rightlung.studies.files import relative_name
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource, columns, grouped, origin, present
from rightlung.studies.readers.labelled import read_json
from rightlung.studies.readers.openi_xml import read_report
from rightlung.studies.report_text import descriptive_sections, descriptive_sentences
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import walk_files

FORMS = ("xml", "kaggle", "r2gen")
REPORT_FOLDERS = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "reports/ecgen-radiology", "reports")
IMAGE_FOLDERS = ("images/images_normalized", "images", "NLMCXR_png", "NLMCXR_dcm")
PROJECTIONS = ("indiana_projections.csv", "nlmcxr_dicom_metadata.csv")
SECTIONS = ("indication", "comparison", "findings", "impression")

_KEY = re.compile(r"(\d+)_IM-[0-9A-Za-z-]+")
_SERIES = re.compile(r"\d+_IM-\d+")
_LATERAL = ("lateral", "ll", "rl", "large lateral")
Exam = tuple[dict[str, Any], list[tuple[str, str | None]]]
"""A record without its image, and the images with their captions."""


def image_key(name: str) -> str | None:
    """Return the key of an image in all layouts from its id or file name; None if it has none.

    >>> image_key("CXR1_1_IM-0001-4001"), image_key("1_IM-0001-4001.dcm.png")
    ('1_IM-0001-4001', '1_IM-0001-4001')
    """
    found = _KEY.search(name)
    return found[0] if found is not None else None


class OpenISource(DatasetSource):
    """Frontal images of Open-I with their reports."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "form", "images", "views", "annotation")
    index_options: ClassVar[tuple[str, ...]] = ("form", "images", "views", "annotation")
    columns: ClassVar[Mapping[str, Any]] = columns(
        "sections", "caption", "r2gen_report", mesh=pa.list_(pa.string()), automatic=pa.list_(pa.string())
    )

    def _inputs(self) -> Sequence[Path]:
        self.annotation = self._given("annotation", Path.is_file, "a file") or self.find("annotation.json")
        self.form = self._find_form()
        found = self.find(*IMAGE_FOLDERS)
        own = found if found is not None and found.is_dir() else self.root
        self.images = self._given("images", Path.is_dir, "a folder") or own
        if self.form == "r2gen":
            return present(self.annotation, self.images)
        self.views = None
        if self.options.get("views") != "any":
            self.views = self._given("views", Path.is_file, "a file") or self.find(*PROJECTIONS)
            if self.views is None:
                raise InputError(
                    f"{self.root} has no {PROJECTIONS[0]}, and the reports do not say which images are frontal; "
                    "give it as views=/path/to/indiana_projections.csv, or take every image with views=any"
                )
        reports = ("indiana_reports.csv",) if self.form == "kaggle" else REPORT_FOLDERS
        self._reports = self.find(*reports) or self.root
        return present(self._reports, self.views, self.annotation, self.images)

    def _find_form(self) -> str:
        asked = self.option("form", FORMS)
        there = {
            "xml": self.find(*REPORT_FOLDERS) is not None or any(self.root.glob("*.xml")),
            "kaggle": self.find("indiana_reports.csv") is not None,
            "r2gen": self.annotation is not None,
        }
        forms = [form for form in FORMS if there[form]]
        if asked and asked not in forms:
            raise InputError(f"{self.root} does not have the form {asked!r}; it has {', '.join(forms) or 'none'}")
        if not forms:
            raise InputError(
                f"{self.root} has neither ecgen-radiology/*.xml, nor indiana_reports.csv, nor annotation.json"
            )
        return asked or forms[0]

    def _given(self, option: str, is_right: Callable[[Path], bool], what: str) -> Path | None:
        """Return the path in a parameter of the address, which must be ``what``."""
        path = self.given(option)
        if path is not None and not is_right(path):
            raise InputError(f"{self.address}: {option}={self.options[option]} is not {what}")
        return path

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        if self.form == "r2gen":
            yield from self._r2gen_records(log)
            return
        splits = self._splits(log)
        files = self._image_files(log)
        views = self._read_views(log)
        exams = self._xml_exams(log) if self.form == "xml" else self._kaggle_exams(log)
        for exam, names in exams:
            if not names:
                log.left_out("report without images")
            for name, caption in names:
                key = image_key(name) or ""
                view = views.get(key) if views is not None else ""
                if view is None or view.strip().casefold() in _LATERAL:
                    log.left_out("view unknown" if view is None else "lateral view")
                    continue
                if key not in files:
                    message = f"image {name!r} is not below {self.images}"
                    log.problems.append(Problem(exam["file"], message, exam.get("line"), "image", "missing-image"))
                    continue
                series = _SERIES.match(key)
                split, told = splits.get(series[0] if series is not None else "", (None, None))
                about = {"id": f"CXR{key}", "image": files[key], "view": view or None, "caption": caption}
                yield {**exam, **about, "split": split, "r2gen_report": told}

    def _image_files(self, log: BuildLog) -> dict[str, str]:
        files: dict[str, str] = {}
        for path in walk_files(self.images, (".png", ".jpg", ".jpeg", ".dcm"), log.problems):
            key = image_key(path.name)
            if key is not None:
                files.setdefault(key, path.relative_to(self.images).as_posix())
        if not files:
            raise InputError(f"{self.images} has no images of Open-I (such as CXR1_1_IM-0001-4001.png)")
        return files

    def _read_views(self, log: BuildLog) -> dict[str, str] | None:
        if self.views is None:
            return None
        table = CsvTable(self.views, problems=log.problems, root=self.root)
        known = [("filename", "projection"), ("imageid", "View Position")]
        for name, view in known:
            if name in table.places and view in table.places:
                pairs = table.read(lambda row: (image_key(row.required(name)), row.text(view)))  # noqa: B023
                return {key: said for key, said in pairs if key is not None and said}
        raise InputError(f"{self.views} has neither the columns filename, projection nor imageid, View Position")

    def _xml_exams(self, log: BuildLog) -> Iterator[Exam]:
        paths = walk_files(self._reports, (".xml",), log.problems)
        own = [path for path in paths if path.parent == self._reports]
        for path in sorted(own, key=lambda path: (len(path.name), path.name)):
            name = path.relative_to(self.root).as_posix()
            try:
                report = read_report(path)
            except InputError as error:
                log.problems.append(Problem(name, str(error)))
                continue
            exam = {
                "file": name,
                "exam": report.uid,
                "sections": json.dumps(report.sections),
                "mesh": report.mesh,
                "automatic": report.automatic,
            }
            yield exam, [(image, caption or None) for image, caption in report.images.items()]

    def _kaggle_exams(self, log: BuildLog) -> Iterator[Exam]:
        def name(row: TableRow) -> tuple[str, str]:
            return row.text("uid"), row.text("filename")

        projections = self.needed("indiana_projections.csv")
        images = grouped(self.read(log, projections, ("uid", "filename", "projection"), name))

        def parse(row: TableRow) -> Exam:
            uid = row.identifier("uid")
            exam = {
                **origin(row),
                "exam": f"CXR{uid}",
                "sections": json.dumps({name: row.text(name) for name in SECTIONS if row.text(name)}),
                "mesh": [code.strip() for code in row.text("MeSH").split(";") if code.strip()],
            }
            caption = row.text("image") or None
            return exam, [(name, caption) for name in images.get(uid, [])]

        return self.read(log, self._reports, ("uid", "MeSH", "findings", "impression"), parse)

    def _annotated(self, log: BuildLog) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield split, position and entry of R2Gen's file."""
        if self.annotation is None:
            return
        what = "an object with a list for each split (train, val, test)"
        content = read_json(self.annotation, dict, what)
        if not all(isinstance(entries, list) for entries in content.values()):
            raise InputError(f"{self.annotation} must contain {what}")
        for split, entries in content.items():
            for number, entry in enumerate(entries):
                place = f"{split}[{number}]"
                if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                    yield split, place, entry
                else:
                    message = "must be an object with id, report and image_path"
                    log.problems.append(Problem(self.annotation.name, message, field=place))

    def _splits(self, log: BuildLog) -> dict[str, tuple[str, str | None]]:
        found = {}
        for split, _, entry in self._annotated(log):
            series = _SERIES.search(entry["id"])
            if series is not None:
                told = entry.get("report")
                found[series[0]] = (split, told if isinstance(told, str) else None)
        return found

    def _r2gen_records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        assert self.annotation is not None
        every = self.options.get("views") == "any"
        for split, place, entry in self._annotated(log):
            told, names = entry.get("report"), entry.get("image_path")
            try:
                if not isinstance(told, str) or not isinstance(names, list) or not names:
                    raise InputError("must have a report, a string, and image_path, a list of files")
                files = [relative_name(name) for name in names]
            except InputError as error:
                log.problems.append(Problem(self.annotation.name, str(error), field=place))
                continue
            if len(files) > 1 and not every:
                log.left_out("second image of R2Gen's pair", len(files) - 1)
            for at, file in enumerate(files if every else files[:1]):
                yield {
                    "id": f"{entry['id']}_{at}",
                    "file": f"{self.annotation.name}, {place}",
                    "image": file,
                    "exam": entry["id"].partition("_")[0],
                    "split": split,
                    "sections": json.dumps({"findings": told} if told.strip() else {}),
                    "r2gen_report": told,
                }

    def _build_study(self, record: dict[str, Any]) -> Study:
        sections: dict[str, str] = json.loads(record["sections"])
        kept = ("mesh", "automatic", "caption", "r2gen_report")
        extra = {name: record[name] for name in kept if record[name] not in (None, [])}
        codes = [find(code.partition("/")[0]) for code in record["mesh"] or []]  # such as Opacity/lung/base/left
        return self.as_study(
            record,
            # Open-I has one examination per patient and no other patient identifier.
            patient=record["exam"],
            report=Report("\n\n".join(descriptive_sections(sections)), sections) if sections else None,
            phrases=tuple(Phrase(sentence) for sentence in descriptive_sentences(None, sections)),
            findings={found.name: Polarity.POSITIVE for found in codes if found is not None},
            extra=extra,
        )
