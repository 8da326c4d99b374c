"""Target rules by name: the pixels that count as the place of a phrase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Mask, Phrase, Polarity, Study
from rightlung.probes.targets import region_target

TargetKind = Literal["exact mask", "finding boxes", "region boxes"]
SizeClass = Literal["small", "medium", "large"]

BOX_SIZE = 256
"""Height and width on which the rule ``own`` paints boxes."""

SMALL, LARGE = 0.01, 0.05
"""Below 1 % of the image's area a target is small, from 5 % on large."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target as pixels ``(height, width)``."""

    pixels: NDArray[np.bool_]
    kind: TargetKind


Rule = Callable[[Study, Phrase, int], Target | str]
"""From a study, a phrase and the pixels per side to the target, or to the reason why there is none."""


def own_target(study: Study, phrase: Phrase, pixels: int = BOX_SIZE) -> Target | str:
    """Return the phrase's mask in its own size, else its boxes painted on a square."""
    if phrase.mask is not None:
        return Target(phrase.mask.pixels, "exact mask") if phrase.mask else "phrases with an empty mask"
    if not phrase.boxes:
        return "phrases without a mask or boxes"
    kind: TargetKind = "finding boxes" if phrase.findings else "region boxes"
    return Target(Mask.from_boxes(phrase.boxes, (pixels, pixels)).pixels, kind)


def exact_target(study: Study, phrase: Phrase, pixels: int) -> Target | str:
    """Return the phrase's mask on a square, else its own boxes, unless these are merely boxes of its regions."""
    if phrase.mask is None and set(phrase.boxes) <= set(study.regions.values()):
        return "phrases without a mask or boxes of their own"
    if phrase.mask is None or not phrase.mask:
        return own_target(study, phrase, pixels)
    return Target(resized(phrase.mask, pixels).pixels, "exact mask")


def _regions(study: Study, phrase: Phrase, pixels: int, trimmed: bool = False) -> Target | str:
    """Return the boxes of the phrase's regions and of the lungs that contain them ("That's the Wrong Lung!", A.3)."""
    boxes = region_target(study, phrase, trimmed)
    if not boxes:
        return "phrases whose regions have no box in their image" if phrase.regions else "phrases without a region"
    return Target(Mask.from_boxes(boxes, (pixels, pixels)).pixels, "region boxes")


RULES: dict[str, Rule] = {
    "own": own_target,
    "regions": _regions,
    "trimmed": partial(_regions, trimmed=True),  # without a lung if a part of it is named (B.1)
    "exact": exact_target,
}


MOVED_RULES = {f"{rule}-{how}": (rule, how == "shuffled") for how in ("shuffled", "random") for rule in RULES}
"""Rules that give a phrase the target which a rule gives to another phrase: of the same report (True) or of another
patient (False)."""


def resized(mask: Mask, pixels: int) -> Mask:
    """Resize a mask to a square by the nearest pixel; a mask too small for that keeps the pixels it falls into."""
    found = mask.resized((pixels, pixels))
    if found or not mask:
        return found
    height, width = mask.size
    rows, columns = np.nonzero(mask.pixels)
    square = np.zeros((pixels, pixels), dtype=np.bool_)
    square[(2 * rows + 1) * pixels // (2 * height), (2 * columns + 1) * pixels // (2 * width)] = True
    return Mask(square)


def size_class(area: float) -> SizeClass:
    """Return the size class of a target, given its share of the image.

    >>> size_class(0.004), size_class(0.01), size_class(0.2)
    ('small', 'medium', 'large')
    """
    return "small" if area < SMALL else "medium" if area < LARGE else "large"


def polarity_of(phrase: Phrase) -> str:
    """Return the strongest polarity among a phrase's findings, ``none`` if it names no finding."""
    named, order = set(phrase.findings.values()), (Polarity.POSITIVE, Polarity.UNCERTAIN, Polarity.NEGATIVE)
    return next((str(polarity) for polarity in order if polarity in named), "none")


def midline_of(study: Study) -> float:
    """Return x of the patient's midline: between the lungs' boxes, else the spine's box, else the image's centre."""
    right, left, spine = (study.regions.get(name) for name in ("right lung", "left lung", "spine"))
    if right is not None and left is not None:
        return (right.x1 + left.x0) / 2
    return spine.centre[0] if spine is not None else 0.5
