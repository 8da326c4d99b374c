"""Studies whose truth is known by hand, and answers to write about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Grounding, Heatmap, InputError, Mask, Phrase, Polarity, Query, Study
from rightlung.predictions import Batch, Prediction, phrase_query
from rightlung.studies import Source

SIZE = (32, 40)
REGIONS = {
    "right lung": Box(0.05, 0.1, 0.45, 0.9),
    "left lung": Box(0.55, 0.1, 0.95, 0.9),
    "left lower lung zone": Box(0.55, 0.6, 0.95, 0.9),
}
POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


def disc(x: int, y: int, radius: int) -> NDArray[np.bool_]:
    rows, columns = np.mgrid[0 : SIZE[0], 0 : SIZE[1]]
    inside: NDArray[np.bool_] = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    return inside


class Spots(Source):
    """Studies of a spot each: left in even ones, right in odd ones; two studies a patient, the last of nobody known."""

    def __init__(self, count: int = 6) -> None:
        super().__init__("spots")
        self.count = count

    @property
    def ids(self) -> Sequence[str]:
        return [f"s{number}" for number in range(self.count)]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None

    def _build(self, position: int) -> Study:
        side = "right" if position % 2 else "left"
        spot = Mask(disc(10 if position % 2 else 30, 8 + 2 * position, 3))
        zone = "left lower lung zone" if side == "left" else "right lung"
        phrases = (
            Phrase(f"Nodule on the {side}.", mask=spot, regions=(zone,), findings={"nodule": POSITIVE}),
            Phrase("An opacity.", (Box(0.25, 0.5, 0.5, 1.0),), None, ("right lung",), {"lung opacity": POSITIVE}),
            Phrase("No effusion.", regions=("left lung", "right lung"), findings={"pleural effusion": NEGATIVE}),
            Phrase("Compared with yesterday."),
        )  # fmt: skip
        image = np.full(SIZE, (position + 1) / 255, np.float32)
        patient = f"p{position // 2}" if position < self.count - 1 else None
        findings = {"nodule": POSITIVE if position % 3 else NEGATIVE, "edema": Polarity.UNCERTAIN}
        return Study(f"s{position}", lambda: image, patient, phrases=phrases, regions=REGIONS, findings=findings)


class Damaged(Spots):
    """The same, but study 1 cannot be built, a mask of study 2 and the image of study 3 cannot be read."""

    def _build(self, position: int) -> Study:
        def unreadable() -> Any:
            raise InputError("the file is gone")

        if position == 1:
            raise InputError("row 1 is broken")
        study = super()._build(position)
        if position == 2:
            bad = replace(study.phrases[0], mask=Mask.deferred(unreadable))
            return replace(study, phrases=(bad, *study.phrases[1:]))
        return replace(study, load=unreadable) if position == 3 else study


Answer = Callable[[Study, Phrase, str], Heatmap | None]


def answers(
    source: Source, answer: Answer, conditions: Iterable[str] = ("none",), reverse: bool = False
) -> list[Batch]:
    """Return what ``answer`` says of every phrase under every condition; None becomes a row with an error."""
    rows = []
    for study in source:
        for index, phrase in enumerate(study.phrases):
            for condition in conditions:
                key = (study.id, phrase_query(index), condition)
                found = answer(study, phrase, condition)
                if found is None:
                    rows.append(Prediction.failed(*key, Query(phrase.text), "planted"))
                else:
                    rows.append(Prediction(*key, asked=Query(phrase.text), grounding=Grounding(found)))
    return [Batch.of(rows[::-1] if reverse else rows)]


def every_phrase(source: Source) -> dict[str, list[int]]:
    return {study.id: list(range(len(study.phrases))) for study in source}
