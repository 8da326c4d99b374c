"""Is this a frontal chest radiograph, upright and as it was taken?

Three witnesses are asked: simple limits (`studies.plausibility`), the template of the data check
(`studies.checks.orientation`), and the anatomy model, which was also shown turned, inverted and shuffled images and
says how sure it is of its boxes. Two must agree before an image is refused. A lateral radiograph is recognised by the
view in its file's header alone: no lateral film was at hand to learn or measure more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np

from rightlung.core import Image
from rightlung.models.anatomy.model import AnatomyModel, AnatomyReading
from rightlung.models.registry import load
from rightlung.studies.checks.orientation import SURE_LIKENESS, SURE_MIRROR, SURE_RESEMBLANCE, look
from rightlung.studies.plausibility import why_implausible

Kind = Literal["frontal", "lateral", "rotated", "mirrored", "inverted", "not-a-chest", "uncertain"]
REFUSED: tuple[Kind, ...] = ("lateral", "rotated", "inverted", "not-a-chest")
"""Kinds that a model should not be asked about."""
LATERAL = frozenset({"lateral", "ll", "rl", "lat", "left lateral", "right lateral", "xtable lateral", "lld", "rld"})
"""Views of lateral radiographs, in lower case."""
SMALLEST = 48
"""Images with a smaller side show too little to tell."""
SURE, LIKELY, DOUBTFUL = 0.68, 0.60, 0.63
"""Mean confidence in the 29 boxes: from which an image is a chest; from which it is one if the template agrees; below
which it is none if the template disagrees. 99 of 100 films of NIH's training patients have 0.65 and more."""
LEAST_RESEMBLANCE = 0.25
"""Correlation with the mean radiograph below which a part of a chest, or something else, is shown."""
_SENTENCES: dict[Kind, str] = {
    "frontal": "this looks like an upright frontal chest radiograph",
    "lateral": "its header says that this is a lateral radiograph, and only frontal ones are read here",
    "mirrored": "this looks like a frontal chest radiograph, but the heart seems to be on the image's left: the "
    "image is mirrored, or it shows a dextrocardia or a shifted mediastinum",
    "inverted": "this looks like an inverted chest radiograph; exchange black and white, so that air is black",
    "not-a-chest": "this does not look like a frontal chest radiograph",
    "uncertain": "it is uncertain whether this is a whole, upright frontal chest radiograph",
}


@dataclass(frozen=True, slots=True)
class FrontalCheck:
    """What an image shows, in one word and one sentence, and the numbers that it rests on."""

    kind: Kind
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether a model should not be asked about the image."""
        return self.kind in REFUSED


def check(image: Image, view: str | None = None, reading: AnatomyReading | None = None) -> FrontalCheck:
    """Return what an image shows; ``view`` is that of its file's header, ``reading`` the anatomy model's, if known."""
    if view is not None and view.strip().lower().replace("_", " ") in LATERAL:
        return FrontalCheck("lateral", _SENTENCES["lateral"])
    if (reason := why_implausible(image)) is not None:
        return FrontalCheck("not-a-chest", f"this cannot be a chest radiograph: {reason}")
    if min(image.shape) < SMALLEST:
        size = f"{image.shape[1]} x {image.shape[0]} pixels"
        return FrontalCheck("uncertain", f"{_SENTENCES['uncertain']}: it has only {size}")
    found = evidence(image, reading)
    kind = decide(found)
    if kind == "rotated":
        upside_down = found["upside down"] >= found["on its side"]
        sentence = f"this looks like a chest radiograph that is {'upside down' if upside_down else 'on its side'}"
        return FrontalCheck(kind, f"{sentence}; turn it upright first", found)
    return FrontalCheck(kind, _SENTENCES[kind], found)


@cache
def shipped_model() -> AnatomyModel:
    """Return the model ``anatomy``, loaded once."""
    model = load("anatomy")
    assert isinstance(model, AnatomyModel)
    return model


def evidence(image: Image, reading: AnatomyReading | None = None) -> dict[str, float]:
    """Return the numbers that `decide` rests on.

    The probability of each position, the mean confidence in the boxes, and what the template says: its likeness,
    resemblance and log odds of a mirrored image, how much better another position fits (``turn``), and whether that is
    sure.
    """
    reading = shipped_model().read([image])[0] if reading is None else reading
    scores = [one.score for one in reading.regions.values()]
    found = {**reading.positions, "confidence": float(np.mean(scores)) if scores else 0.0}
    if (seen := look(image)) is None:
        return found | dict.fromkeys(("likeness", "resemblance", "turn", "mirror", "sure inverted", "sure turned"), 0.0)
    return found | {
        "likeness": seen.likeness,
        "resemblance": seen.resemblance,
        "turn": seen.turn,
        "mirror": seen.mirror if seen.has_side else 0.0,
        "sure inverted": float(seen.is_turned and seen.inverted),
        "sure turned": float(seen.is_turned and seen.position != "upright"),
    }


def decide(found: Mapping[str, float]) -> Kind:
    """Return what an image shows from its `evidence`."""
    known = found["likeness"] >= SURE_LIKENESS and found["resemblance"] >= SURE_RESEMBLANCE
    turned = bool(found["sure inverted"] or found["sure turned"])
    if found["upright"] >= 0.5 and not turned:
        unlike = found["resemblance"] < LEAST_RESEMBLANCE
        if found["confidence"] >= (LIKELY if known else SURE) and not unlike:
            return "mirrored" if found["mirror"] >= SURE_MIRROR else "frontal"
        return "not-a-chest" if unlike and found["confidence"] < DOUBTFUL else "uncertain"
    if (known and found["turn"] == 0) or (found["upright"] >= 0.5 and found["confidence"] >= SURE):
        return "uncertain"  # the two disagree
    if found["sure inverted"] or (known and found["inverted"] >= 0.5):
        return "inverted"
    if known and (found["sure turned"] or found["on its side"] + found["upside down"] >= 0.5):
        return "rotated"
    return "not-a-chest"
