"""Studies cached on disk for many models: 8-bit images in one file, with words and regions, without targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rightlung.core import Box, Image, Phrase, Report, Study
from rightlung.core.files import read_json, write_whole
from rightlung.core.study import check_image
from rightlung.studies.sources import Source

LONGEST_SIDE = 1024
"""Larger images are reduced to this many pixels: no model here uses more."""

IMAGES, STUDIES = "images.bin", "studies.json"


class CachedSource(Source):
    """The studies of a folder written by `StudyWriter`, under the address of their source."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        content = read_json(self.folder / STUDIES)
        super().__init__(content["source"])
        self._rows: list[dict[str, Any]] = content["studies"]

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all studies, in order."""
        return [row["id"] for row in self._rows]

    def _build(self, position: int) -> Study:
        row = self._rows[position]
        load = partial(_load, self.folder / IMAGES, row["offset"], tuple(row["size"]))
        regions = {name: Box(*corners) for name, corners in row["regions"].items()}
        known = {name: row[name] for name in ("patient", "findings", "region_findings")}
        phrases = tuple(Phrase(**one) for one in row["phrases"])
        report = None if row.get("report") is None else Report(row["report"])
        return Study(row["id"], load, phrases=phrases, regions=regions, report=report, **known)


def _load(path: Path, offset: int, size: tuple[int, int]) -> Image:
    values = np.fromfile(path, np.uint8, size[0] * size[1], offset=offset).reshape(size)
    image: Image = values.astype(np.float32) / np.float32(255)
    return image


class StudyWriter:
    """Writes the files of a `CachedSource` study by study: a context manager; call `finish` last."""

    def __init__(self, source: str, folder: Path) -> None:
        self._source, self._folder = source, folder
        self._images = (folder / IMAGES).open("wb")
        self._rows: list[dict[str, Any]] = []

    def add(self, study: Study) -> None:
        """Add a study; if its image or words cannot be read, raise and write nothing."""
        words = (phrase.text for phrase in study.phrases)
        for text in (study.id, study.patient or "", "" if study.report is None else study.report.text, *words):
            text.encode()  # no table can hold a lone surrogate
        image = reduced(check_image(study.load(), f"study {study.id!r}"))
        phrases = [
            {"text": one.text, "regions": one.regions, "findings": dict(one.findings), "locations": dict(one.locations)}
            for one in study.phrases
        ]
        row = {
            "id": study.id,
            "patient": study.patient,
            "offset": self._images.tell(),
            "size": image.shape,
            "regions": {name: box.as_tuple() for name, box in study.regions.items()},
            "findings": dict(study.findings),
            "region_findings": {name: dict(findings) for name, findings in study.region_findings.items()},
            "phrases": phrases,
            "report": None if study.report is None else study.report.text,
        }
        self._images.write(np.round(image * 255).astype(np.uint8).tobytes())
        self._rows.append(row)

    def __enter__(self) -> StudyWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._images.close()

    def finish(self) -> None:
        """Write the description of the studies next to their images."""
        write_whole(self._folder / STUDIES, json.dumps({"source": self._source, "studies": self._rows}))


def reduced(image: Image, size: int = LONGEST_SIDE) -> Image:
    """Return an image of at most ``size`` pixels per side."""
    height, width = image.shape
    longest = max(height, width)
    if longest <= size:
        return image
    import torch

    target = [max(1, round(side * size / longest)) for side in (height, width)]
    pixels = torch.from_numpy(np.array(image))[None, None]
    small = torch.nn.functional.interpolate(pixels, target, mode="bilinear", align_corners=False, antialias=True)
    smaller: Image = small[0, 0].clamp(0, 1).numpy()
    return smaller
