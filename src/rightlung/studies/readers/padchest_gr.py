"""The `padchest-gr` reader: PadChest-GR, reports with one finding per sentence, with radiologists' boxes.

Castro et al., "PadChest-GR: A Bilingual Chest X-ray Dataset for Grounded Radiology Report Generation", NEJM AI 2025,
arXiv:2411.05085. Boxes are ``[x0, y0, x1, y1]`` in fractions. A sentence has no boxes if the finding is absent or
nobody could point at it. Images of earlier studies are not read; what the file says about them goes to ``extra``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rightlung.core import Box, InputError, Phrase, Polarity, Report, Study
from rightlung.core.problem import Problem
from rightlung.lexicon.findings import find
from rightlung.lexicon.regions import region
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import DatasetSource, columns
from rightlung.studies.readers.labelled import read_json
from rightlung.studies.rows import Field, FieldError
from rightlung.studies.tables import TableRow
from rightlung.studies.trees import folder_images

IMAGE_FOLDERS = (
    "Padchest_GR_files/PadChest_GR", "PadChest_GR", "Padchest_GR_files", "PadChest_GR_Images", "images_grounding",
    "images",
)  # fmt: skip
LANGUAGES = {"en": "sentence_en", "es": "sentence_es"}
_OWN = ("StudyID", "ImageID", "findings")
_AGES = ("PatientAge", "Age", "age")


class PadChestGrSource(DatasetSource):
    """Frontal images with grounded sentences; parameters ``split``, ``limit``, ``images`` and ``language``."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "language")
    index_options: ClassVar[tuple[str, ...]] = ("images",)
    columns: ClassVar[Mapping[str, Any]] = columns("findings", "other")

    def _inputs(self) -> Sequence[Path]:
        self._sentence = LANGUAGES[self.option("language", LANGUAGES, "en")]
        found = sorted(self.root.glob("grounded_reports*.json"))
        if not found:
            raise InputError(f"{self.root} has no grounded_reports_20240819.json")
        self._reports = found[-1]
        self._table = self.needed("master_table.csv", "master_table.csv.zip", "master_table.csv/master_table.csv")
        place = self.given("images") or self.find(*IMAGE_FOLDERS)
        if place is None or not place.is_dir():
            raise InputError(f"{self.root} has no folder with images ({', '.join(IMAGE_FOLDERS)}); add images=…")
        self.images = place
        return [self._reports, self._table, place]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        people = self._read_table(log)
        images = folder_images(self.images, [""])
        for entry in Field(read_json(self._reports, list, "a list of reports")).entries():
            try:
                image_id, exam = (entry.object().at(name).text() for name in ("ImageID", "StudyID"))
                stem = image_id.removesuffix(".png")
                if stem not in images:
                    raise entry.at("ImageID").error(f"there is no image {image_id} in {self.images}", "missing-image")
                person = people.get(image_id)
                if person is None:
                    raise entry.at("ImageID").error(f"{image_id} is not in {self._table.name}")
                findings = [_finding(found) for found in entry.at("findings").entries()]
            except FieldError as error:
                log.problems.append(Problem(self._reports.name, str(error), None, error.field, error.kind))
                continue
            other = {name: value for name, value in entry.value.items() if name not in _OWN}
            yield {
                "id": stem,
                "file": f"{self._reports.name}, [{entry.path[0]}]",
                "image": images[stem],
                "exam": exam,
                "findings": json.dumps(findings),
                "other": json.dumps(other) if other else None,
                **person,
            }

    def _read_table(self, log: BuildLog) -> dict[str, dict[str, Any]]:
        """Return the table's facts about each image; it has one row per label."""
        people: dict[str, dict[str, Any]] = {}

        def parse(row: TableRow) -> tuple[str, dict[str, Any]]:
            ages = [row.number(column, 0, 130) for column in _AGES]
            return row.required("ImageID"), {
                "split": row.required("split"),
                "patient": row.text("PatientID") or None,
                "sex": row.text("PatientSex_DICOM") or row.text("PatientSex") or None,
                "age": next((age for age in ages if age is not None), None),
                "view": row.text("Projection") or row.text("ViewPosition_DICOM") or None,
            }

        for image_id, person in self.read(log, self._table, ("ImageID", "split"), parse):
            people.setdefault(image_id, person)
        return people

    def _build_study(self, record: dict[str, Any]) -> Study:
        findings = json.loads(record["findings"])
        told = [found for found in findings if found[self._sentence]]
        text = " ".join(found[self._sentence] for found in told)
        known: dict[str, Polarity] = {}
        for found in findings:
            for name, polarity in _polarities(found).items():
                # A finding that is present in one place and absent in another is present.
                if known.get(name) is not Polarity.POSITIVE:
                    known[name] = polarity
        return self.as_study(
            record,
            report=Report(text, {"findings": text}) if text else None,
            phrases=tuple(
                Phrase(
                    found[self._sentence],
                    tuple(Box(*edges) for edges in found["boxes"]),
                    regions=_regions(found["locations"]),
                    findings=_polarities(found),
                )
                for found in told
            ),
            findings=known,
            extra={
                "sentences": told,
                "second_reader": [[Box(*edges) for edges in found["extra_boxes"]] for found in told],
                **json.loads(record["other"] or "{}"),
            },
        )


def _finding(found: Field) -> dict[str, Any]:
    """Return one sentence's checked annotations; absent findings often omit most of them."""
    sentences = {key: found.object().at(key).prose() for key in LANGUAGES.values()}
    if not any(sentences.values()):
        raise found.error("has neither sentence_en nor sentence_es")
    abnormal = found.value.get("abnormal", False)
    if not isinstance(abnormal, bool):
        raise found.at("abnormal").error(f"must be true or false; got {abnormal!r}")
    progression = found.value.get("progression")
    return {
        **{key: sentence and sentence.strip() for key, sentence in sentences.items()},
        "abnormal": abnormal,
        **{name: [box.box().as_tuple() for box in found.at(name).entries()] for name in ("boxes", "extra_boxes")},
        **{name: [str(one.value) for one in found.at(name).entries()] for name in ("labels", "locations")},
        "progression": progression if isinstance(progression, str) else None,
    }


def _polarities(found: Mapping[str, Any]) -> dict[str, Polarity]:
    """Return the findings of a sentence's labels that the lexicon knows; "Normal" excludes others."""
    names = {meant.name for label in found["labels"] if label.strip() and (meant := find(label)) is not None}
    if "no finding" in names:
        return {"no finding": Polarity.POSITIVE} if not found["abnormal"] else {}
    return dict.fromkeys(sorted(names), Polarity.POSITIVE if found["abnormal"] else Polarity.NEGATIVE)


def _regions(locations: Sequence[str]) -> tuple[str, ...]:
    """Return the regions of a sentence's locations that the lexicon knows."""
    names = []
    for location in locations:
        try:
            names.append(region(location.removeprefix("loc ").strip()).name)
        except InputError:
            continue
    return tuple(dict.fromkeys(names))
