"""The `reflacx` reader: REFLACX, readings of MIMIC-CXR's images by five radiologists with an eye tracker.

Bigolin Lanfredi et al., Scientific Data 2022; columns in its README.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rightlung.core import Box, InputError, Mask, Phrase, Polarity, Report, Size, Study
from rightlung.core.gaze import gaze_map
from rightlung.core.problem import Problem, ProblemError
from rightlung.lexicon.findings import find
from rightlung.lexicon.prompts import prompt
from rightlung.studies.files import read_regular
from rightlung.studies.index import BuildLog
from rightlung.studies.readers.dataset import columns, grouped, origin
from rightlung.studies.readers.labelled import presence
from rightlung.studies.readers.mimic_files import MimicBasedSource
from rightlung.studies.report_text import descriptive_sentences
from rightlung.studies.tables import CsvTable, TableRow
from rightlung.studies.trees import find_optional

LABELS = (
    "Abnormal mediastinal contour", "Acute fracture", "Airway wall thickening", "Atelectasis", "Consolidation",
    "Emphysema", "Enlarged cardiac silhouette", "Enlarged hilum", "Fibrosis", "Fracture", "Groundglass opacity",
    "Hiatal hernia", "High lung volume / emphysema", "Interstitial lung disease", "Lung nodule or mass", "Mass",
    "Nodule", "Pleural abnormality", "Pleural effusion", "Pleural thickening", "Pneumothorax", "Pulmonary edema",
    "Wide mediastinum",
)  # fmt: skip
"""The labels with a certainty; phase 1 has other labels than phases 2 and 3."""

MASK_SIDE = 768
"""Pixels of the longer side of the ellipses' masks."""
MAX_TRANSCRIPT_BYTES = 2**20

# Labels that the lexicon would misunderstand or does not know.
_MEANS: Mapping[str, str | None] = {
    "Wide mediastinum": "mediastinal widening",
    "Pleural abnormality": None,  # both effusion and thickening; the lexicon's excludes them
    "High lung volume / emphysema": None,
    "Abnormal mediastinal contour": None,
    "Airway wall thickening": None,
}
# Findings that hold whenever the label does, but not vice versa.
_BROADER = {"Groundglass opacity": "lung opacity", "Acute fracture": "fracture"}
_IMAGE = re.compile(r"p(\d{2})/p(\d+)/s(\d+)/([0-9a-f-]+)(?:\.\w+)?$")
_TRUE = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_EDGES = ("xmin", "ymin", "xmax", "ymax")


class ReflacxSource(MimicBasedSource):
    """Readings of images with dictation, gaze and ellipses; ``phase=3`` selects one phase."""

    parameters: ClassVar[tuple[str, ...]] = ("split", "limit", "images", "phase")
    index_options: ClassVar[tuple[str, ...]] = ("phase",)
    columns: ClassVar[Mapping[str, Any]] = columns(
        "dicom", "certainty", "other", "ellipses", "text", "words",
        phase="int8", height="int32", width="int32", devices="bool",
        chest=pa.list_(pa.float64()), looked=pa.list_(pa.float32()),
    )  # fmt: skip

    def _inputs(self) -> Sequence[Path]:
        self.images = self.find_images(self.root)
        self._main = self.find("main_data") or self.root
        phase = self.option("phase", ("1", "2", "3"))
        found = {number: find_optional(self._main, f"metadata_phase_{number}.csv") for number in phase or "123"}
        self._phases = {int(number): path for number, path in found.items() if path is not None}
        if not self._phases:
            raise InputError(f"{self._main} has no metadata_phase_{phase or '1'}.csv")
        return [*self._phases.values(), self._main]

    def _records(self, log: BuildLog) -> Iterator[Mapping[str, Any]]:
        required = ("id", "split", "image", "dicom_id", "subject_id", "image_size_x", "image_size_y")
        for phase, path in self._phases.items():
            yield from self.read(log, path, required, lambda row: self._record(row, phase, log))  # noqa: B023

    def _record(self, row: TableRow, phase: int, log: BuildLog) -> Mapping[str, Any]:
        reading, dicom = row.identifier("id"), row.identifier("dicom_id")
        place = _IMAGE.search(row.required("image"))
        if place is None:
            raise row.error("image", f"must end like p10/p10000032/s50414267/….dcm; got {row.text('image')[:80]!r}")
        size = int(row.required_number("image_size_y", 1)), int(row.required_number("image_size_x", 1))
        certainty = {label: row.whole(label, 0, 5) for label in LABELS}
        folder = self._main / reading
        looked, text, words = None, None, None
        if not _true(row, "eye_tracking_data_discarded"):
            looked = self._fixations(folder / "fixations.csv", size, log)
            text, words = self._transcription(folder, log)
        chest = self._read_rows(folder / "chest_bounding_box.csv", _EDGES, log)
        return {
            "id": reading,
            "split": row.text("split") or None,
            **origin(row),
            "dicom": dicom,
            "patient": row.identifier("subject_id"),
            "exam": place[3],
            "phase": phase,
            "height": size[0],
            "width": size[1],
            "certainty": json.dumps({label: value for label, value in certainty.items() if value is not None}),
            "other": row.text("Other") or None,
            "devices": _true(row, "Support devices"),
            "ellipses": json.dumps(self._ellipses(folder / "anomaly_location_ellipses.csv", size, log)),
            "chest": _box(chest[0], size) if chest else None,
            "looked": looked,
            "text": text,
            "words": json.dumps(words) if words is not None else None,
        }

    def _read_rows(self, path: Path, required: Sequence[str], log: BuildLog) -> list[TableRow]:
        """Return the rows of a reading's table; a missing table is a problem of the reading."""
        try:
            return list(CsvTable(path, required, problems=log.problems, root=self.root))
        except InputError as error:
            name = path.relative_to(self.root).as_posix()
            raise ProblemError(Problem(name, str(error))) from None

    def _fixations(self, path: Path, size: Size, log: BuildLog) -> list[float]:
        """Return x, y, seconds, horizontal and vertical standard deviation, and start of all fixations in one list."""
        degree = ("angular_resolution_x_pixels_per_degree", "angular_resolution_y_pixels_per_degree")
        times = ("timestamp_start_fixation", "timestamp_end_fixation")
        height, width = size
        looked: list[float] = []
        for row in self._read_rows(path, (*times, "x_position", "y_position", *degree), log):
            start, end = (row.required_number(name) for name in times)
            if end < start:
                raise row.error(times[1], f"must not be before the start; got {start:g} to {end:g}")
            x, y = row.required_number("x_position"), row.required_number("y_position")
            across, down = (row.required_number(name, 1) for name in degree)
            looked += [x / width, y / height, end - start, across / width, down / height, start]
        return looked

    def _transcription(self, folder: Path, log: BuildLog) -> tuple[str, list[tuple[str, float, float]]]:
        path = folder / "transcription.txt"
        name = path.relative_to(self.root).as_posix()
        try:
            text = read_regular(path, name, MAX_TRANSCRIPT_BYTES).decode("utf-8", errors="replace").strip()
        except InputError as error:
            raise ProblemError(Problem(name, str(error))) from None
        columns = ("word", "timestamp_start_word", "timestamp_end_word")
        words = [
            (row.text("word"), row.required_number(columns[1]), row.required_number(columns[2]))
            for row in self._read_rows(folder / "timestamps_transcription.csv", columns, log)
        ]
        return text, words

    def _ellipses(self, path: Path, size: Size, log: BuildLog) -> list[dict[str, Any]]:
        return [
            {
                "box": _box(row, size),
                "certainty": row.whole("certainty", 0, 5),
                "labels": [label for label in LABELS if _true(row, label)],
            }
            for row in self._read_rows(path, (*_EDGES, "certainty"), log)
        ]

    def _build_study(self, record: dict[str, Any]) -> Study:
        certainty: dict[str, int] = json.loads(record["certainty"])
        ellipses = json.loads(record["ellipses"])
        text = record["text"]
        looked = np.array(record["looked"] or [], dtype=np.float64).reshape(-1, 6)
        gaze = gaze_map(looked[:, :3], std=looked[:, 3:5])
        findings = {name: value for label, score in certainty.items() for name, value in _meaning(label, score)}
        if record["devices"] is not None:
            findings["support devices"] = presence(record["devices"])
        sentences = [Phrase(sentence) for sentence in descriptive_sentences(text or None, {})]
        return self.as_study(
            record,
            report=Report(text, {"findings": text}) if text else None,
            phrases=(*_drawn(ellipses, (record["height"], record["width"])), *sentences),
            findings=findings,
            gaze=gaze if gaze.mass > 0 else None,
            extra={
                "dicom_id": record["dicom"],
                "phase": record["phase"],
                "certainty": certainty,
                "other": record["other"],
                "ellipses": ellipses,
                "chest": Box(*record["chest"]) if record["chest"] else None,
                "fixations": [tuple(row) for row in looked[:, :3].tolist()],
                "fixation_starts": looked[:, 5].tolist(),
                "words": [tuple(word) for word in json.loads(record["words"] or "[]")],
            },
        )


def _true(row: TableRow, column: str) -> bool | None:
    text = row.text(column).casefold()
    if not text:
        return None
    if text not in _TRUE:
        raise row.error(column, f"must be True or False; got {text!r}", "label-value")
    return _TRUE[text]


def _box(row: TableRow, size: Size) -> tuple[float, float, float, float]:
    """Return the part inside the image of a box drawn by hand, which may extend beyond it."""
    height, width = size
    x0, y0, x1, y1 = (row.required_number(name) for name in _EDGES)
    box = Box.clipped(x0 / width, y0 / height, x1 / width, y1 / height)
    if box is None:
        edges = f"({x0:g}, {y0:g}, {x1:g}, {y1:g})"
        message = f"{edges} has no area in the image, {width} pixels wide and {height} high"
        raise row.error(", ".join(_EDGES), message, "box-size")
    return box.as_tuple()


def _meaning(label: str, score: int) -> Iterator[tuple[str, Polarity]]:
    """Yield the finding of a label with its polarity; absence of a narrower label says nothing about the finding."""
    name = _name(label)
    polarity = Polarity.POSITIVE if score >= 4 else Polarity.UNCERTAIN if score else Polarity.NEGATIVE
    if name is not None and not (label in _BROADER and polarity is Polarity.NEGATIVE):
        yield name, polarity


def _name(label: str) -> str | None:
    if label in _MEANS or label in _BROADER:
        return _MEANS.get(label, _BROADER.get(label))
    found = find(label)
    return found.name if found is not None else None


def _drawn(ellipses: Sequence[Mapping[str, Any]], size: Size) -> Iterator[Phrase]:
    """Yield a phrase per drawn label, with all its ellipses."""
    for label, of_label in grouped((label, ellipse) for ellipse in ellipses for label in ellipse["labels"]).items():
        boxes = tuple(Box(*ellipse["box"]) for ellipse in of_label)
        surest = max(ellipse["certainty"] or 0 for ellipse in of_label)
        name = _name(label)
        yield Phrase(
            prompt(name) if name is not None and label not in _BROADER else label.lower(),
            boxes,
            Mask.deferred(partial(_paint, boxes, size)),
            findings=dict(_meaning(label, max(surest, 1))),
        )


def _paint(boxes: tuple[Box, ...], size: Size) -> Mask:
    """Return the mask of ellipses, each given by its bounding box: pixels whose centre is in any of them."""
    scale = min(1.0, MASK_SIDE / max(size))
    height, width = (max(1, round(side * scale)) for side in size)
    across, down = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    pixels = np.zeros((height, width), dtype=np.bool_)
    for box in boxes:
        (x, y), (half_width, half_height) = box.centre, (box.width / 2, box.height / 2)
        squared = ((across - x) / half_width)[None] ** 2 + ((down - y) / half_height)[:, None] ** 2
        pixels |= squared <= 1.0
    return Mask(pixels)
