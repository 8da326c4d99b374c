"""The `openi` reader: the chest X-ray collection of Indiana University (Open-I, "IU X-Ray"), in its three forms.

As the National Library of Medicine gives it out (https://openi.nlm.nih.gov/faq, NLMCXR_reports.tgz and NLMCXR_png.tgz
or NLMCXR_dcm.tgz; CC BY-NC-ND 4.0)::

    ecgen-radiology/1.xml …                 a report an examination, with its MeSH codes and its images' ids
    NLMCXR_png/CXR1_1_IM-0001-3001.png …    the images (also images/, or anywhere below the folder)
    indiana_projections.csv                 which images are frontal: the reports do not say

As Kaggle has it (https://www.kaggle.com/datasets/raddar/chest-xrays-indiana-university)::

    indiana_reports.csv                     uid, MeSH, Problems, image, indication, comparison, findings, impression
    indiana_projections.csv                 uid, filename, projection (Frontal or Lateral)
    images/images_normalized/1_IM-0001-4001.dcm.png …

As R2Gen's readers share it (https://github.com/cuhksz-nlp/R2Gen, Chen et al., EMNLP 2020)::

    annotation.json                         train, val, test: id, report, image_path (two images)
    images/CXR2384_IM-0942/0.png, 1.png …

Parameters: ``split``, ``limit``; ``form`` (``xml``, ``kaggle``, ``r2gen``) where a folder has several; ``images``, a
folder of images elsewhere; ``views``, a table of projections elsewhere (Kaggle's, or the DICOM headers'
``nlmcxr_dicom_metadata.csv`` with ``imageid`` and ``View Position``), or ``any`` to take every image; ``annotation``,
R2Gen's file elsewhere, whose split and report are joined to the other forms.

Read: sections, MeSH codes (``extra["mesh"]``; findings are those the lexicon knows), captions. Not read: the automatic
terms as findings (they are text-mined; ``extra["automatic"]``), the image features. R2Gen's file does not say which
image is frontal; its first one is taken, as the single-image papers do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from rightlung.core import InputError, Phrase, Polarity, Report, Study
from rightlung.core.errors import unknown_name
from rightlung.core.problem import Problem
from rightlung.lexicon.findings import find
from rightlung.studies.building import Building
from rightlung.studies.files import read_regular, relative_name
from rightlung.studies.index import IndexedSource
from rightlung.studies.narrative import telling_sections, telling_sentences
from rightlung.studies.readers.openi_xml import read_report
from rightlung.studies.sources import Address
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import FileImage, find_file, find_optional, walk_files

FORMS = ("xml", "kaggle", "r2gen")
REPORT_FOLDERS = ("ecgen-radiology", "NLMCXR_reports/ecgen-radiology", "reports/ecgen-radiology", "reports")
IMAGE_FOLDERS = ("images/images_normalized", "images", "NLMCXR_png", "NLMCXR_dcm")
PROJECTIONS = ("indiana_projections.csv", "nlmcxr_dicom_metadata.csv")
SECTIONS = ("indication", "comparison", "findings", "impression")
MAX_ANNOTATION_BYTES = 512 * 2**20

_KEY = re.compile(r"(\d+)_IM-[0-9A-Za-z-]+")
_SERIES = re.compile(r"\d+_IM-\d+")
_LATERAL = ("lateral", "ll", "rl", "large lateral")


def open_openi(address: Address) -> OpenISource:
    """Open ``openi:PATH``, PATH the folder of any of the three forms."""
    return OpenISource(address)


def image_key(name: str) -> str | None:
    """Return what names an image in all forms, from its id or its file's name; ``None`` where it is not one.

    >>> image_key("CXR1_1_IM-0001-4001"), image_key("1_IM-0001-4001.dcm.png")
    ('1_IM-0001-4001', '1_IM-0001-4001')
    """
    found = _KEY.search(name)
    return found[0] if found is not None else None


class OpenISource(IndexedSource):
    """Frontal images of Open-I with their reports."""

    reader: ClassVar[str] = "openi"
    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "form", "images", "views", "annotation")
    index_options: ClassVar[tuple[str, ...]] = ("form", "images", "views", "annotation")
    split_aliases: ClassVar[Mapping[str, str]] = {"validate": "val", "validation": "val"}
    columns: ClassVar[Mapping[str, Any]] = {
        "image": "string",
        "exam": "string",
        "view": "string",
        "sections": "string",
        "caption": "string",
        "r2gen_report": "string",
        "mesh": pa.list_(pa.string()),
        "automatic": pa.list_(pa.string()),
    }

    def inputs(self) -> Sequence[Path]:
        """Return the reports, the table of views, the annotation and the folder of images."""
        self.form = self._find_form()
        self.image_root = self._folder("images", *IMAGE_FOLDERS)
        self.views = self._file("views", *PROJECTIONS) if self.options.get("views") != "any" else None
        self.annotation = self._file("annotation", "annotation.json")
        if self.form == "r2gen":
            assert self.annotation is not None
            return [self.annotation, self.image_root]
        if self.views is None and self.options.get("views") != "any":
            raise InputError(
                f"{self.root} has no {PROJECTIONS[0]}, and the reports do not say which images are frontal; "
                "give it as views=/path/to/indiana_projections.csv, or take every image with views=any"
            )
        reports = self._reports()
        return [path for path in (reports, self.views, self.annotation, self.image_root) if path is not None]

    def _find_form(self) -> str:
        asked = self.options.get("form")
        if asked is not None and asked not in FORMS:
            raise unknown_name("form of openi:", asked, FORMS)
        there = {
            "xml": find_optional(self.root, *REPORT_FOLDERS) is not None or any(self.root.glob("*.xml")),
            "kaggle": find_optional(self.root, "indiana_reports.csv") is not None,
            "r2gen": self._file("annotation", "annotation.json") is not None,
        }
        forms = [form for form in FORMS if there[form]]
        if asked is not None and asked not in forms:
            raise InputError(f"{self.root} does not have the form {asked!r}; it has {', '.join(forms) or 'none'}")
        if not forms:
            raise InputError(
                f"{self.root} has neither ecgen-radiology/*.xml, nor indiana_reports.csv, nor annotation.json"
            )
        return asked or forms[0]

    def _reports(self) -> Path:
        if self.form == "kaggle":
            return find_file(self.root, "indiana_reports.csv")
        return find_optional(self.root, *REPORT_FOLDERS) or self.root

    def _file(self, option: str, *names: str) -> Path | None:
        given = self.options.get(option)
        if given is None:
            return find_optional(self.root, *names)
        path = Path(given).expanduser()
        if not path.is_file():
            raise InputError(f"{self.address}: {option}={given} is not a file")
        return path.absolute()

    def _folder(self, option: str, *names: str) -> Path:
        given = self.options.get(option)
        if given is None:
            found = find_optional(self.root, *names)
            return found if found is not None and found.is_dir() else self.root
        path = Path(given).expanduser()
        if not path.is_dir():
            raise InputError(f"{self.address}: {option}={given} is not a folder")
        return path.absolute()

    def records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        """Yield a record for each frontal image."""
        if self.form == "r2gen":
            yield from self._r2gen_records(building)
            return
        splits = self._splits(building)
        files = self._image_files(building)
        views = self._read_views(building)
        exams = self._xml_exams(building) if self.form == "xml" else self._kaggle_exams(building)
        for exam, names in exams:
            if not names:
                building.left_out("report without images")
            for name, caption in names:
                view = views.get(image_key(name) or "") if views is not None else ""
                if view is None or _is_lateral(view):
                    building.left_out("view not known" if view is None else "lateral view")
                    continue
                key = image_key(name)
                file = files.get(key or "")
                if key is None or file is None:
                    message = f"image {name!r} is not below {self.image_root}"
                    building.problems.append(Problem(exam["file"], message, exam.get("line"), "image", "missing-image"))
                    continue
                series = _SERIES.match(key)
                split, told = splits.get(series[0] if series is not None else "", (None, None))
                yield {
                    **exam,
                    "id": f"CXR{key}",
                    "image": file,
                    "view": view or None,
                    "caption": caption,
                    "split": split,
                    "r2gen_report": told,
                }

    def _image_files(self, building: Building) -> dict[str, str]:
        files: dict[str, str] = {}
        for path in walk_files(self.image_root, (".png", ".jpg", ".jpeg", ".dcm"), building.problems):
            key = image_key(path.name)
            if key is not None:
                files.setdefault(key, path.relative_to(self.image_root).as_posix())
        if not files:
            raise InputError(f"{self.image_root} has no images of Open-I (such as CXR1_1_IM-0001-4001.png)")
        return files

    def _read_views(self, building: Building) -> dict[str, str] | None:
        if self.views is None:
            return None
        table = CsvTable(self.views, problems=building.problems, root=self.root)
        known = [("filename", "projection"), ("imageid", "View Position")]
        for name, view in known:
            if table.has(name) and table.has(view):
                pairs = table.read(lambda row: (image_key(row.required(name)), row.text(view)))  # noqa: B023
                return {key: said for key, said in pairs if key is not None and said}
        raise InputError(f"{self.views} has neither the columns filename, projection nor imageid, View Position")

    def _xml_exams(self, building: Building) -> Iterator[tuple[dict[str, Any], list[tuple[str, str | None]]]]:
        folder = self._reports()
        paths = [path for path in walk_files(folder, (".xml",), building.problems) if path.parent == folder]
        for path in sorted(paths, key=lambda path: (len(path.name), path.name)):
            name = path.relative_to(self.root).as_posix()
            try:
                report = read_report(path)
            except InputError as error:
                building.problems.append(Problem(name, str(error)))
                continue
            exam = {
                "file": name,
                "exam": report.uid,
                "sections": json.dumps(dict(report.sections)),
                "mesh": list(report.mesh),
                "automatic": list(report.automatic),
            }
            yield exam, [(image, caption or None) for image, caption in report.images.items()]

    def _kaggle_exams(self, building: Building) -> Iterator[tuple[dict[str, Any], list[tuple[str, str | None]]]]:
        projections = find_file(self.root, "indiana_projections.csv")
        images: dict[str, list[str]] = {}
        table = CsvTable(projections, ("uid", "filename", "projection"), problems=building.problems, root=self.root)
        for row in table:
            images.setdefault(row.text("uid"), []).append(row.text("filename"))
        reports = CsvTable(
            self._reports(), ("uid", "MeSH", "findings", "impression"), problems=building.problems, root=self.root
        )

        def parse(row: TableRow) -> tuple[dict[str, Any], list[tuple[str, str | None]]]:
            uid = row.identifier("uid")
            sections = {name: row.text(name) for name in SECTIONS if row.text(name)}
            exam = {
                "file": row.file,
                "line": row.line,
                "exam": f"CXR{uid}",
                "sections": json.dumps(sections),
                "mesh": [code.strip() for code in row.text("MeSH").split(";") if code.strip()],
            }
            caption = row.text("image") or None
            return exam, [(name, caption) for name in images.get(uid, [])]

        yield from reports.read(parse)

    def _annotated(self, building: Building) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield split, number and entry of R2Gen's file."""
        assert self.annotation is not None
        try:
            content = json.loads(read_regular(self.annotation, str(self.annotation), MAX_ANNOTATION_BYTES))
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.annotation} is not JSON that can be read: {error}") from None
        if not isinstance(content, dict) or not all(isinstance(entries, list) for entries in content.values()):
            raise InputError(f"{self.annotation} must be an object with a list for each split (train, val, test)")
        for split, entries in content.items():
            for number, entry in enumerate(entries):
                if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
                    place = f"{split}[{number}]"
                    building.problems.append(
                        Problem(self.annotation.name, "must be an object with id, report and image_path", field=place)
                    )
                    continue
                yield split, number, entry

    def _splits(self, building: Building) -> dict[str, tuple[str, str | None]]:
        if self.annotation is None:
            return {}
        found = {}
        for split, _, entry in self._annotated(building):
            series = _SERIES.search(entry["id"])
            if series is not None:
                told = entry.get("report")
                found[series[0]] = (split, told if isinstance(told, str) else None)
        return found

    def _r2gen_records(self, building: Building) -> Iterator[Mapping[str, Any]]:
        assert self.annotation is not None
        every = self.options.get("views") == "any"
        for split, number, entry in self._annotated(building):
            place = f"{split}[{number}]"
            told, names = entry.get("report"), entry.get("image_path")
            try:
                if not isinstance(told, str) or not isinstance(names, list) or not names:
                    raise InputError("must have a report, a text, and image_path, a list of files")
                files = [relative_name(name) for name in names]
            except InputError as error:
                building.problems.append(Problem(self.annotation.name, str(error), field=place))
                continue
            if len(files) > 1 and not every:
                building.left_out("second image of R2Gen's pair", len(files) - 1)
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

    def build_study(self, record: dict[str, Any]) -> Study:
        """Make a study of its record."""
        sections: dict[str, str] = json.loads(record["sections"])
        mesh = record["mesh"] or []
        extra = {
            name: value
            for name in ("mesh", "automatic", "caption", "r2gen_report")
            if (value := record[name]) not in (None, [])
        }
        return Study(
            id=record["id"],
            load=FileImage(record["id"], str(self.image_root), record["image"]),
            # Open-I has one examination a patient and no other word for the patient.
            patient=record["exam"],
            exam=record["exam"],
            view=record["view"],
            split=record["split"],
            report=Report("\n\n".join(telling_sections(sections)), sections) if sections else None,
            phrases=tuple(Phrase(sentence) for sentence in telling_sentences(None, sections)),
            findings={found.name: Polarity.POSITIVE for code in mesh if (found := _coded(code)) is not None},
            source=self.address,
            extra=extra,
        )


def _coded(code: str) -> Any:
    """Return the finding that a MeSH code such as ``Opacity/lung/base/left`` means."""
    return find(code.partition("/")[0])


def _is_lateral(view: str) -> bool:
    return view.strip().casefold() in _LATERAL
