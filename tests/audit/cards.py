"""Studies whose truth is known by hand, grounders whose answer is known, and a way to write what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.audit import Audit, audit
from rightlung.core import Box, Grounding, Heatmap, Mask, Phrase, Polarity, Query, Study
from rightlung.lexicon import swap_sides
from rightlung.models.blind import LocationPrior, PriorRow, fit_prior
from rightlung.predictions import Prediction, PredictionWriter, phrase_query
from rightlung.results.estimate import BootstrapSettings
from rightlung.studies import Source

SIDE = 64
CONDITIONS = ("none", "swap-sides", "exchange-image")
QUICK = BootstrapSettings(resamples=200)
Answer = Callable[[Study, Phrase, str], Heatmap]
"""What a grounder says: of the study whose image is shown, the phrase of the source, and the text asked."""


class Cards(Source):
    """Made-up studies of a spot each, on a random side at a random height, two to every third patient.

    Four phrases a study: the spot with its side, the same without, the heart (midline), and a negation.
    """

    def __init__(self, count: int = 40, seed: int = 0, address: str = "cards", phrases: int = 4) -> None:
        super().__init__(address)
        self.count, self.seed, self.phrases = count, seed, phrases

    @property
    def ids(self) -> Sequence[str]:
        return [f"card-{number}" for number in range(self.count)]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None

    def _build(self, position: int) -> Study:
        rng = np.random.default_rng((self.seed, position))
        side, upper = str(rng.choice(["left", "right"])), bool(rng.random() < 0.5)
        x = int(rng.integers(8, 22)) + (32 if side == "left" else 0)
        y = int(rng.integers(10, 22) if upper else rng.integers(36, 52))
        spot, heart = disc(x, y, int(rng.integers(3, 6))), disc(34, 40, 7)
        zone = "upper" if upper else "lower"
        positive = {"lung opacity": Polarity.POSITIVE}
        region = f"{side} {zone} lung zone"
        phrases = (
            Phrase(f"Opacity in the {side} {zone} lobe.", mask=Mask(spot), regions=(region,), findings=positive),
            Phrase("A patchy opacity is seen.", mask=Mask(spot), regions=(region,), findings=positive),
            Phrase("The heart is enlarged.", mask=Mask(heart), findings={"cardiomegaly": Polarity.POSITIVE}),
            Phrase("No pneumothorax.", findings={"pneumothorax": Polarity.NEGATIVE}),
        )
        image = np.full((SIDE, SIDE), 0.5, dtype=np.float32)
        image[spot] = 0.9
        regions = {"right lung": Box(0.05, 0.1, 0.45, 0.9), "left lung": Box(0.55, 0.1, 0.95, 0.9)}
        return Study(
            id=f"card-{position}",
            load=lambda: image,
            patient=f"patient-{position - (position % 3 == 1)}",
            phrases=phrases[: self.phrases],
            regions=regions,
        )


def disc(x: int, y: int, radius: int) -> NDArray[np.bool_]:
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    inside: NDArray[np.bool_] = (rows - y) ** 2 + (columns - x) ** 2 <= radius**2
    return inside


def write_answers(
    source: Source, folder: Path, answer: Answer, conditions: Sequence[str] = CONDITIONS, model: str = "known"
) -> Path:
    """Ask ``answer`` about every phrase; under exchange-image it sees the study half the source further on.

    Under random-sentence it is asked a phrase about something else.
    """
    studies = list(source)
    with PredictionWriter(folder, source=source.address, model=model) as writer:
        for place, study in enumerate(studies):
            for index, phrase in enumerate(study.phrases):
                for condition in conditions:
                    other = study.phrases[(index + 2) % len(study.phrases)].text
                    texts = {"swap-sides": swap_sides(phrase.text), "random-sentence": other}
                    text = texts.get(condition, phrase.text)
                    if condition == "swap-sides" and text == phrase.text:
                        continue
                    shown = studies[(place + len(studies) // 2) % len(studies)]
                    heatmap = answer(shown if condition == "exchange-image" else study, phrase, text)
                    key = (study.id, phrase_query(index), condition)
                    writer.write(Prediction(*key, asked=Query(text), grounding=Grounding(heatmap)))
    return folder


def audited(
    folder: Path, source: Source, answer: Answer, conditions: Sequence[str] = CONDITIONS, **options: Any
) -> Audit:
    """Ask ``answer`` about every phrase and audit what it says."""
    written = write_answers(source, folder / "p", answer, conditions)
    return audit(written, source, folder / "out", **dict[str, Any](settings=QUICK, cases=0) | options)


def fitted_prior(source: Source) -> LocationPrior:
    """Fit a prior as an audit of all phrases does."""
    phrases = [(str(study.patient), phrase) for study in source for phrase in study.phrases]
    return fit_prior(
        PriorRow(patient, one.text, one.findings, one.mask) for patient, one in phrases if one.mask is not None
    )


def true_map(study: Study, phrase: Phrase, text: str) -> Heatmap:
    """An oracle that looks and reads: the mask that this study has for such a phrase, mirrored if the side is."""
    index = ["O", "A", "T", "N"].index(text[0])
    mask = study.phrases[index].mask
    if mask is None:
        return Heatmap(np.ones((1, 1)), abstention=1.0)
    heatmap = Heatmap(mask.pixels.astype(np.float32))
    named = study.phrases[index].text
    swapped = text != phrase.text and ("left" in text) != ("left" in named)
    return heatmap.mirrored() if swapped else heatmap


def text_blind_map(study: Study, phrase: Phrase, text: str) -> Heatmap:
    return Heatmap(study.image)


def diagonal_map(study: Study, phrase: Phrase, text: str) -> Heatmap:
    return Heatmap(np.eye(4))


def image_blind_map(study: Study, phrase: Phrase, text: str) -> Heatmap:
    columns = np.linspace(0, 1, 8, dtype=np.float32)
    row = columns if "left" in text else 1 - columns
    return Heatmap(np.tile(row, (8, 1)))
