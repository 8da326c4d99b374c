"""A predictions file with known faults: maps of the exact masks, some of them mirrored, flat, shifted or lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rightlung.core import Box, Extent, Grounding, Heatmap, Phrase, Query, ScoredBox, Study
from rightlung.lexicon import swap_sides
from rightlung.predictions import Prediction, PredictionWriter, phrase_query
from rightlung.studies import open_source

SOURCE = "phantom?count=30&seed=6&size=96"


def write_planted(folder: Path) -> Path:
    """Write the answers of a grounder that knows the truth, with every fault planted by a rule."""
    number = 0
    with PredictionWriter(folder, source=SOURCE, model="planted") as writer:
        for study in open_source(SOURCE):
            for index, phrase in enumerate(study.phrases):
                for condition in ("none", "swap-sides", "exchange-image"):
                    text = swap_sides(phrase.text) if condition == "swap-sides" else phrase.text
                    if condition == "swap-sides" and text == phrase.text:
                        continue
                    key = (study.id, phrase_query(index), condition)
                    writer.write(_planted(key, text, study, phrase, condition, number))
                    number += 1
    return folder


def _planted(
    key: tuple[str, str, str], text: str, study: Study, phrase: Phrase, condition: str, number: int
) -> Prediction:
    asked = Query(text)
    if number % 11 == 3:
        return Prediction.failed(*key, asked, "planted: no answer")
    similarity = 0.5 + 0.01 * (number % 7), 0.1 * (number % 5)
    if phrase.mask is None or not phrase.mask:
        blank = Heatmap(np.ones((4, 4)), abstention=0.5 + 0.1 * (number % 5))
        return Prediction(*key, asked, Grounding(blank), *similarity)
    if number % 7 == 4:
        box = phrase.mask.box()
        assert box is not None
        boxes = [ScoredBox(box, 0.9), ScoredBox(Box(0.0, 0.0, 0.3, 0.3), 0.2 + 0.01 * (number % 3))]
        return Prediction(*key, asked, Grounding(boxes=boxes), *similarity)
    heatmap = Heatmap.from_pixels(phrase.mask.pixels.astype(np.float32), (12, 12), abstention=0.05 * (number % 4))
    if number % 5 == 1 or (condition == "swap-sides" and number % 2):
        heatmap = heatmap.mirrored()
    if condition == "exchange-image":
        heatmap = Heatmap(np.roll(heatmap.values, 2 + number % 3, axis=0) + 0.01, abstention=heatmap.abstention)
    if number % 13 == 6:
        heatmap = Heatmap(np.ones((12, 12)))
    if number % 17 == 8:
        heatmap = Heatmap(heatmap.values, Extent(-0.1, 0.0, 1.1, 1.0), heatmap.abstention)
    return Prediction(*key, asked, Grounding(heatmap), *similarity)
