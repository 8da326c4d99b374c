"""The `egd` reader: EGD-CXR, "Eye Gaze Data for Chest X-rays" of one radiologist who read 1,083 images of MIMIC-CXR.

Karargyris et al., Scientific Data 2021; columns in its ``table_descriptions.pdf``. CheXpert's labels become findings,
other labels go to ``extra["labels"]``. Audio, pupils and the diagnoses' codes are not read.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rightlung.core import Box, InputError, Mask, Phrase, Report, Study
from rightlung.core.gaze import gaze_map
from rightlung.core.problem import Problem
from rightlung.studies.files import read_regular
from rightlung.studies.images import read_mask
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import columns, grouped, origin, present
from rightlung.studies.readers.labelled import CHEXPERT, chexpert_findings, meanings
from rightlung.studies.readers.mimic_files import MimicBasedSource, find_metadata
from rightlung.studies.report_text import descriptive_sentences
from rightlung.studies.tables import CsvTable, TableRow, box_kind, pixel_box

FOLDER = "audio_segmentation_transcripts"
MASKS = {
    "left lung": "left_lung.png", "right lung": "right_lung.png", "mediastinum": "mediastanum.png",
    "aortic arch": "aortic_knob.png",
}  # fmt: skip
STD_DOWN = 0.034
"""One degree, 1.13 cm at a distance of 65 cm, relative to the height of an image that fills the 33.6 cm of the screen.
"""
MAX_TRANSCRIPT_BYTES = 2**20
_LABELS = (
    "normal_reports", "Normal", "CHF", "pneumonia", "consolidation", "enlarged_cardiac_silhouette",
    "linear__patchy_atelectasis", "lobar__segmental_collapse",
    "not_otherwise_specified_opacity___pleural__parenchymal_opacity__", "pleural_effusion_or_thickening",
    "pulmonary_edema__hazy_opacity", "normal_anatomically", "elevated_hemidiaphragm", "hyperaeration",
    "vascular_redistribution",
)  # fmt: skip
_GAZE = {"fixations": "fixations.csv", "samples": "eye_gaze.csv"}
_SAMPLE_SECONDS = 1 / 60


class EgdSource(MimicBasedSource):
    """Images with a radiologist's dictation and gaze; ``gaze=samples`` uses every sample instead of fixations."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "gaze", "splits")
    index_options: ClassVar[tuple[str, ...]] = ("images", "gaze", "splits")
    columns: ClassVar[Mapping[str, Any]] = columns(
        "age_range", "indication", "chexpert", "labels", "regions",
        height="int32", width="int32", looked=pa.list_(pa.float32()),
    )  # fmt: skip

    def _inputs(self) -> Sequence[Path]:
        gaze = _GAZE[self.option("gaze", _GAZE, "fixations")]
        self.images = self.find_images(self.root)
        self._sheet, self._gaze = self.needed("master_sheet.csv"), self.needed(gaze)
        self._boxes = self.find("bounding_boxes.csv")
        self._split_table = self.find_split_table()
        return present(self._sheet, self._gaze, self._boxes, self._split_table, find_metadata(self.images), self.images)

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        chexpert = {f"{label.lower().replace(' ', '_')}__chx": label for label in meanings(CHEXPERT)}
        wanted = {row.text("dicom_id") for row in CsvTable(self._sheet, ("dicom_id",), problems=[])}
        sizes = self.read_sizes(log, wanted)
        looked = self._read_gaze(log)
        boxes = grouped(self._read_boxes(log))
        splits = self.read_splits(log, self._split_table, wanted)

        def parse(row: TableRow) -> Mapping[str, Any]:
            dicom, exam, patient = row.identifier("dicom_id"), row.identifier("study_id"), row.identifier("patient_id")
            about = {"id": dicom, **origin(row), "patient": patient, "exam": exam}
            try:
                size = sizes.get(dicom) or self.image_of(about).size()
            except InputError as error:
                raise row.error("dicom_id", str(error)) from None
            regions = {}
            for name, line, edges in boxes.pop(dicom, []):
                try:
                    regions[name] = pixel_box(edges, size).as_tuple()
                except InputError as error:
                    fault = Problem("bounding_boxes.csv", str(error), line, "x1, x2, y1, y2", box_kind(error))
                    log.problems.append(fault)
            if dicom not in looked:
                log.problems.append(row.error("dicom_id", f"{self._gaze.name} has no gaze for this image").problem)
            said = {label: row.whole(column, -1, 1) for column, label in chexpert.items()}
            return {
                **about,
                "split": splits.get(dicom),
                "sex": row.text("gender") or None,
                "age_range": row.text("anchor_age") or None,
                "indication": row.text("cxr_exam_indication") or None,
                "height": size[0],
                "width": size[1],
                "chexpert": json.dumps({label: value for label, value in said.items() if value is not None}),
                "labels": json.dumps({name: row.text(name) for name in _LABELS if row.text(name)}),
                "regions": json.dumps(regions),
                "looked": looked.pop(dicom, array("f")).tolist(),
            }

        yield from self.read(log, self._sheet, ("dicom_id", "study_id", "patient_id"), parse)
        # The tables also contain images that the sheet omits.
        if looked:
            log.left_out("gaze without a row in the master sheet", len(looked))

    def _read_gaze(self, log: BuildLog) -> dict[str, array[float]]:
        """Return x, y (pixels), seconds and start of all fixations in one array, by image."""
        samples = self._gaze.name.startswith("eye_gaze")
        looked: dict[str, array[float]] = {}

        def parse(row: TableRow) -> tuple[str, tuple[float, float, float, float]] | None:
            if row.whole("FPOGV") == 0:
                return None  # the tracker had lost the eye
            seconds = _SAMPLE_SECONDS if samples else row.required_number("FPOGD", 0)
            start = row.number("Time (in secs)" if samples else "FPOGS")
            place = row.required_number("X_ORIGINAL"), row.required_number("Y_ORIGINAL")
            return row.required("DICOM_ID"), (*place, seconds, start or 0.0)

        rows = self.read(log, self._gaze, ("DICOM_ID", "FPOGD", "X_ORIGINAL", "Y_ORIGINAL"), parse)
        for number, (dicom, fixation) in enumerate(rows):
            looked.setdefault(dicom, array("f")).extend(fixation)
            if number % 10_000 == 9_999:
                log.step(0)
        return looked

    def _read_boxes(self, log: BuildLog) -> Iterator[tuple[str, tuple[str, int, list[float]]]]:
        def parse(row: TableRow) -> tuple[str, tuple[str, int, list[float]]]:
            edges = [row.required_number(column) for column in ("x1", "y1", "x2", "y2")]
            return row.required("dicom_id"), (row.required("bbox_name"), row.line, edges)

        return self.read(log, self._boxes, ("dicom_id", "bbox_name", "x1", "x2", "y1", "y2"), parse)

    def _build_study(self, record: dict[str, Any]) -> Study:
        dicom = record["id"]
        text, timed = self._transcript(record)
        sections = {name: said for name, said in (("indication", record["indication"]), ("findings", text)) if said}
        chexpert = json.loads(record["chexpert"])
        size = np.array([record["width"], record["height"]])
        looked = np.array(record["looked"] or [], dtype=np.float64).reshape(-1, 4)
        path = np.column_stack([looked[:, :2] / size, looked[:, 2]])
        std = (STD_DOWN * record["height"] / record["width"], STD_DOWN)
        gaze = gaze_map(path, std=np.tile(std, (len(path), 1)))
        folder = self.root / FOLDER / dicom
        masks = {
            name: Mask.deferred(partial(read_mask, folder / file, name=f"study {dicom!r}: mask {folder / file}"))
            for name, file in MASKS.items()
            if (folder / file).exists()
        }
        return self.as_study(
            record,
            report=Report(text, sections) if sections else None,
            phrases=tuple(Phrase(sentence) for sentence in descriptive_sentences(text or None, {})),
            regions={name: Box(*edges) for name, edges in json.loads(record["regions"]).items()},
            findings=chexpert_findings(chexpert),
            gaze=gaze if gaze.mass > 0 else None,
            extra={
                "age_range": record["age_range"],
                "chexpert": chexpert,
                "labels": json.loads(record["labels"]),
                "fixations": [tuple(row) for row in path.tolist()],
                "fixation_starts": looked[:, 3].tolist(),
                "timed_phrases": timed,
                "masks": masks,
            },
        )

    def _transcript(self, record: dict[str, Any]) -> tuple[str, list[tuple[str, float, float]]]:
        """Return the dictation, and its phrases with start and end in seconds."""
        path = self.root / FOLDER / record["id"] / "transcript.json"
        name = path.relative_to(self.root).as_posix()
        if not path.exists():
            return "", []
        try:
            content = json.loads(read_regular(path, name, MAX_TRANSCRIPT_BYTES).decode("utf-8-sig"))
            text = str(content["full_text"]).strip()
            timed = [
                (str(piece["phrase"]), float(piece["begin_time"]), float(piece["end_time"]))
                for piece in content.get("time_stamped_text", [])
            ]
        except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"must have full_text and time_stamped_text with phrase, begin_time and end_time: {error!r}"
            raise self.problem({**record, "file": name, "line": None}, None, message) from None
        return text, timed
