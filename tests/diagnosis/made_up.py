"""Studies with boxes, labels and reports, and answers about them that are neither right nor wrong throughout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from rightlung.core import Box, Grounding, Heatmap, Phrase, Polarity, Query, Report, ScoredBox, Study
from rightlung.predictions import Prediction, PredictionWriter
from rightlung.studies import Source

GRID, COUNT = 8, 24
NAMES = ("cardiomegaly", "edema", "nodule", "pleural effusion")
WORDS = {"cardiomegaly": "The heart is enlarged.", "edema": "There is edema.", "nodule": "There is a nodule.",
         "pleural effusion": "There is a pleural effusion."}  # fmt: skip
_P = (Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.UNCERTAIN)


def box(seed: int, side: float = 0.25) -> Box:
    """Return a box on eighths of the image, so that 8 cells and 256 pixels paint it exactly."""
    x, y = np.random.default_rng(seed).integers(0, 6, 2) / 8
    return Box(float(x), float(y), float(x) + side, float(y) + side)


class Clinic(Source):
    """Three images to two patients; two phrases each, findings present, absent, uncertain or unnamed."""

    def __init__(self) -> None:
        super().__init__("clinic")

    @property
    def ids(self) -> Sequence[str]:
        return [f"c{number}" for number in range(COUNT)]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None

    def _build(self, position: int) -> Study:
        return build(position)


@cache
def build(position: int) -> Study:
    rng = np.random.default_rng((3, position))
    names = (NAMES[position % 4], NAMES[(position + 1 + position % 2) % 4])
    phrases = tuple(
        Phrase(WORDS[name], (box(10 * position + n), box(10 * position + n + 5))[: 1 + position % 2],
               findings={name: Polarity.POSITIVE})
        for n, name in enumerate(names)
    )  # fmt: skip
    said = {name: _P[int(rng.integers(3))] for name in NAMES if rng.random() < 0.8}
    findings = " ".join(WORDS[name] for name in NAMES if rng.random() < 0.5) or "Clear lungs."
    impression = "Possible edema." if rng.random() < 0.4 else "There is a pneumothorax."
    report = Report(f"{findings} {impression}", {"findings": findings, "impression": impression})
    image = np.full((32, 32), 0.5, np.float32)
    return Study(f"c{position}", lambda: image, f"p{2 * position // 3}", phrases=phrases, findings=said, report=report)


def map_of(position: int, index: int) -> np.ndarray:
    """Return a map of few levels, so that there are ties, from 0 to 16."""
    values = np.random.default_rng((5, position, index)).integers(0, 11, (GRID, GRID)).astype(np.float32)
    for one in build(position).phrases[index].boxes:
        values[int(one.y0 * 8) : int(one.y1 * 8), int(one.x0 * 8) : int(one.x1 * 8)] += 4
    values = np.minimum(values, 15)
    one, (row, column) = build(position).phrases[index].boxes[0], divmod(37 * position % 64, 8)
    values[7, 7], values[row, column] = 0, 16
    if position % 4:  # a second peak, in the target
        values[int(one.y0 * 8), int(one.x0 * 8)] = 16
    return values


def boxes_of(position: int, index: int) -> list[ScoredBox]:
    """Return some boxes near the target and some elsewhere; some phrases have none."""
    rng = np.random.default_rng((9, position, index))
    found = [one for one in build(position).phrases[index].boxes if rng.random() < 0.8]
    found += [box(int(rng.integers(1000)), 0.125) for _ in range(int(rng.integers(3)))]
    name = next(iter(build(position).phrases[index].findings))
    return [ScoredBox(one, round(float(rng.random()), 2), name) for one in found]


def scores_of(position: int) -> dict[str, float]:
    rng = np.random.default_rng((11, position))
    said = build(position).findings
    return {name: round(0.6 * rng.random() + 0.3 * (said.get(name) == Polarity.POSITIVE), 2) for name in NAMES}


def text_of(position: int) -> str:
    rng = np.random.default_rng((13, position))
    return " ".join(WORDS[name] for name in NAMES if rng.random() < 0.6) or "Clear lungs."


def write(folder: Path) -> Path:
    """Write the answers to all questions."""
    with PredictionWriter(folder, source="clinic", model="made up") as writer:
        for position, study in enumerate(Clinic().ids):
            for index, phrase in enumerate(build(position).phrases):
                grounding = Grounding(Heatmap(map_of(position, index)), boxes_of(position, index))
                writer.write(Prediction(study, f"phrase:{index}", "none", Query(phrase.text), grounding))
            labelled = Grounding(boxes=[*boxes_of(position, 0), *boxes_of(position, 1)])
            writer.write(
                Prediction(study, "image", "none", Query(), labelled, finding_scores=scores_of(position),
                           report=text_of(position))
            )  # fmt: skip
    return folder
