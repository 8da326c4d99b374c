"""Do answers fit their targets better after a mistake with coordinates is undone? Found from scores alone.

Each mistake is undone in a sample of the answers. It is reported if they then fit their own targets clearly better, in
a test over patients, and if that is not so for the targets of other patients: a map that is the same for every image
can fit better by chance wherever it is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rightlung.core import Box, InputError
from rightlung.measuring.answered import Answered, reduced
from rightlung.measuring.maps import AnswerMap, to_pixels
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator, Floats
from rightlung.scoring.localisation import score
from rightlung.studies import Source

MOST, SIDE, IMAGES = 120, 48, 40
"""Answers that are looked at, the cells per side on which they are scored, and images that are read for their size."""
LEAST_GAIN, LEAST_PATIENTS, LEVEL = 0.05, 8, 0.99
"""What is reported: the gain in average precision, on so many patients, significant at this level after Holm."""
SQUARE = 0.03
"""Images whose sides differ by a smaller share count as square."""

Corners = tuple[float, float, float, float]
Move = Callable[[Corners, float], Corners]
"""From corners in an image and its height over its width to other corners, which may lie outside."""


@dataclass(frozen=True)
class Mistake:
    """A mistake: the name, what it looks like, and how it is undone on corners and on a map's cells."""

    name: str
    says: str
    move: Move
    cells: Callable[[Any], Any] = np.asarray


@dataclass(frozen=True)
class Found:
    """A mistake that scores reveal in heatmaps or boxes."""

    mistake: str
    where: str
    before: float
    after: float
    answers: int
    patients: int
    says: str

    @property
    def sentence(self) -> str:
        """The warning."""
        return (
            f"Coordinates: the {self.where} seem to be wrong: {self.says}. With that undone, average precision is "
            f"{self.after:.2f} instead of {self.before:.2f} ({self.answers:,} answers, {self.patients:,} patients)."
        )


def _stretched(c: Corners, x: float, y: float) -> Corners:
    """Return corners that are stretched around the middle of the image."""
    return 0.5 + (c[0] - 0.5) * x, 0.5 + (c[1] - 0.5) * y, 0.5 + (c[2] - 0.5) * x, 0.5 + (c[3] - 0.5) * y


_ALWAYS = (
    Mistake("mirrored", "left and right are exchanged", lambda c, _: (1 - c[2], c[1], 1 - c[0], c[3]), np.fliplr),
    Mistake(
        "upside-down", "the first row lies at the bottom", lambda c, _: (c[0], 1 - c[3], c[2], 1 - c[1]), np.flipud
    ),
    Mistake(
        "transposed", "x and y (columns and rows) are exchanged", lambda c, _: (c[1], c[0], c[3], c[2]), np.transpose
    ),
    Mistake(
        "square-crop",
        "a crop to the middle of the image (7/8 of its sides, say) is not undone",
        lambda c, _: _stretched(c, 7 / 8, 7 / 8),
    ),
)
_UNLESS_SQUARE = (
    Mistake(
        "letterbox",
        "the padding to a square (letterbox) is not undone",
        lambda c, aspect: _stretched(c, max(aspect, 1), max(1 / aspect, 1)),
    ),
    Mistake(
        "crop",
        "the crop to the middle square is not undone",
        lambda c, aspect: _stretched(c, min(aspect, 1), min(1 / aspect, 1)),
    ),
)


def coordinate_mistakes(sample: Sequence[Answered], source: Source | None = None) -> list[Found]:
    """Return the mistakes that the scores of some answers reveal: at most one for heatmaps and one for boxes."""
    found: list[Found] = []
    for where in ("heatmaps", "boxes"):
        some = [replace(one, answer=part) for one in sample if (part := _part(one.answer, where)) is not None]
        if len({one.phrase.patient for one in some}) >= LEAST_PATIENTS:
            aspects = _aspects(some, source)
            mistakes = [*_ALWAYS, *(_UNLESS_SQUARE if np.abs(np.log(aspects)).max() > SQUARE else ())]
            found += _judged(some, aspects, where, [*mistakes, *_scaled(some)] if where == "boxes" else mistakes)
    return found


def _part(answer: AnswerMap, where: str) -> AnswerMap | None:
    if where == "heatmaps":
        return None if answer.values is None or not answer.values.any() else replace(answer, boxes=None)
    return AnswerMap(None, boxes=answer.boxes) if answer.boxes else None


def _judged(
    some: Sequence[Answered], aspects: Sequence[float], where: str, mistakes: Sequence[Mistake]
) -> Iterator[Found]:
    """Yield the mistake with the highest score among those that are significantly better undone."""
    own = np.stack([reduced(one.mask, SIDE) for one in some])
    others = own[_other_patients(some)]
    as_given = _scores([one.answer for one in some], own, others)
    gains, specific, after = [], [], []
    for mistake in mistakes:
        found = _scores(
            [undone(one.answer, mistake, aspect) for one, aspect in zip(some, aspects, strict=True)], own, others
        )
        after.append(found[0])
        gains.append(found[0] - as_given[0])
        specific.append(gains[-1] - (found[1] - as_given[1]))
    patients = [one.phrase.patient for one in some]
    estimator = Estimator(patients, BootstrapSettings(resamples=500, level=LEVEL, flips=2000))
    zeros = [np.zeros(len(some))] * len(mistakes)
    tests = [estimator.adjusted(estimator.differences(columns, zeros)) for columns in (gains, specific)]
    shown = [
        place
        for place, (gain, own_gain) in enumerate(zip(*tests, strict=True))
        if gain.shown and own_gain.shown and gain.value >= LEAST_GAIN and own_gain.value > LEAST_GAIN / 2
    ]
    if shown:
        best = max(shown, key=lambda place: float(np.mean(after[place])))
        values = float(np.mean(as_given[0])), float(np.mean(after[best]))
        yield Found(mistakes[best].name, where, *values, len(some), len(set(patients)), mistakes[best].says)


def _scores(answers: Sequence[AnswerMap], own: Any, others: Any) -> tuple[Floats, Floats]:
    """Return average precision against the own targets and against those of other patients."""
    maps = to_pixels(answers, (SIDE, SIDE))
    found = (score(maps, masks, metrics=["average_precision"], workers=1) for masks in (own, others))
    first, second = (np.nan_to_num(one["average_precision"]) for one in found)
    return first, second


def _other_patients(some: Sequence[Answered]) -> list[int]:
    """Return for each answer the place of one about another patient, half the sample away where that is one."""
    count, found = len(some), []
    for place, one in enumerate(some):
        order = [(place + count // 2 + step) % count for step in range(count)]
        found.append(next(other for other in order if some[other].phrase.patient != one.phrase.patient))
    return found


def undone(answer: AnswerMap, mistake: Mistake, aspect: float) -> AnswerMap:
    """Return an answer about an image of this height over width with a mistake undone; boxes outside are left out."""
    if answer.values is not None:
        return AnswerMap(np.ascontiguousarray(mistake.cells(answer.values)), mistake.move(answer.extent, aspect))
    kept = []
    for one in answer.boxes or ():
        box = Box.clipped(*mistake.move((one["x0"], one["y0"], one["x1"], one["y1"]), aspect))
        if box is not None:
            kept.append({**one, **dict(zip(("x0", "y0", "x1", "y1"), box.as_tuple(), strict=True))})
    return AnswerMap(None, boxes=kept)


def _aspects(some: Sequence[Answered], source: Source | None) -> list[float]:
    """Return height over width of the image of each answer: from exact masks or, of some studies, from the image.

    Where neither is known, it is the median of the others.
    """
    known = {
        one.phrase.study: one.mask.shape[0] / one.mask.shape[1]
        for one in some
        if one.phrase.masks["own"].kind == "exact mask"
    }
    studies = dict.fromkeys(one.phrase.study for one in some if one.phrase.study not in known)
    for study in [*studies][:IMAGES]:
        if source is None:
            break
        try:
            height, width = source.study(study).image.shape
        except InputError:
            continue  # listed as a problem elsewhere
        known[study] = height / width
    usual = float(np.median([*known.values()])) if known else 1.0
    return [known.get(one.phrase.study, usual) for one in some]


def _scaled(some: Sequence[Answered]) -> Iterator[Mistake]:
    """Yield the mistake of another unit: the factor is the median from the centres of boxes to those of targets."""
    ratios = []
    for one in some:
        rows, columns = np.nonzero(one.mask)
        best: Mapping[str, Any] = max(one.answer.boxes or (), key=lambda box: float(box["score"]))
        for low, high, places, size in (
            ("x0", "x1", columns, one.mask.shape[1]),
            ("y0", "y1", rows, one.mask.shape[0]),
        ):
            ratios.append((places.min() + places.max() + 1) / size / (best[low] + best[high]))
    factor = float(np.median(ratios))
    if factor >= 1.1 or factor <= 1 / 1.1:
        says = f"they are in another unit, {1 / factor:.3g} times what they should be (pixels, or a scale of 0–1000?)"
        yield Mistake("scale", says, lambda c, _: (c[0] * factor, c[1] * factor, c[2] * factor, c[3] * factor))
