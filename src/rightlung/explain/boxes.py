"""Boxes from heatmaps: threshold, connected components, one scored box per component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Box, Heatmap, InputError, ScoredBox, Size
from rightlung.core.checks import check_number, check_size
from rightlung.core.errors import check_known
from rightlung.core.resampling import MODES

Rule = Literal["fraction", "absolute", "share"]
Score = Literal["max", "mean", "box"]
_SIDE = 128


@dataclass(frozen=True, slots=True)
class BoxRule:
    """How boxes are made from a heatmap.

    The map is first resampled to ``size`` (height, width) by ``mode``; by default to 128 pixels per side or the map's
    own grid if that is finer. ``rule`` says what ``threshold`` means: a ``fraction`` of the maximum in the image, an
    ``absolute`` value, or the ``share`` of pixels to keep (and all that tie with the last of them). Zeros are never
    kept. Components connect across corners; those smaller than ``smallest_area``, a fraction of the image, are dropped.
    A box's score is the ``max`` or ``mean`` of the map in its component, or the mean in the whole ``box``, times (1 -
    abstention).
    """

    threshold: float = 0.5
    rule: Rule = "fraction"
    smallest_area: float = 0.0005
    score: Score = "max"
    size: Size | None = None
    mode: Literal["bilinear", "nearest", "area"] = "bilinear"

    def __post_init__(self) -> None:
        for name in ("threshold", "smallest_area"):
            object.__setattr__(self, name, check_number(getattr(self, name), name))
        check_known("threshold rule", self.rule, get_args(Rule))
        check_known("box score", self.score, get_args(Score))
        check_known("resampling mode", self.mode, MODES)
        object.__setattr__(self, "size", None if self.size is None else check_size(self.size))
        if self.threshold < 0 or (self.rule != "absolute" and self.threshold > 1):
            allowed = "not be negative" if self.rule == "absolute" else "lie between 0 and 1"
            raise InputError(f"threshold as {self.rule} must {allowed}; got {self.threshold}")
        if not 0 <= self.smallest_area <= 1:
            raise InputError(f"smallest_area is a fraction of the image, from 0 to 1; got {self.smallest_area}")


def boxes_of(heatmap: Heatmap, rule: BoxRule | None = None) -> tuple[ScoredBox, ...]:
    """Return the boxes of a heatmap in fractions of the image, highest score first; none for an empty map.

    >>> [scored.box for scored in boxes_of(Heatmap([[0, 0], [0, 4]]), BoxRule(mode="nearest"))]
    [Box(x0=0.5, y0=0.5, x1=1.0, y1=1.0)]
    """
    from scipy.ndimage import find_objects, label

    rule = rule or BoxRule()
    height, width = rule.size or (max(_SIDE, heatmap.grid[0]), max(_SIDE, heatmap.grid[1]))
    values = heatmap.to_size((height, width), rule.mode, keep_mass=False)
    kept = (values > 0) & (values >= _lowest(values, rule))
    parts, _ = label(kept, structure=np.ones((3, 3)))
    found = []
    for number, (down, across) in enumerate(find_objects(parts), start=1):
        part = values[down, across][parts[down, across] == number].astype(np.float64)
        if part.size / values.size >= rule.smallest_area:
            box = Box(across.start / width, down.start / height, across.stop / width, down.stop / height)
            whole = values[down, across].astype(np.float64)
            score = {"max": part.max, "mean": part.mean, "box": whole.mean}[rule.score]()
            found.append(ScoredBox(box, float(score) * (1.0 - heatmap.abstention)))
    return tuple(sorted(found, key=lambda scored: (-scored.score, scored.box)))


def _lowest(values: NDArray[np.float32], rule: BoxRule) -> float:
    """Return the lowest value that is kept."""
    if rule.rule == "absolute":
        return rule.threshold
    if rule.rule == "fraction":
        return rule.threshold * float(values.max())
    count = int(np.ceil(rule.threshold * values.size - 1e-9))  # 0.07 * 100 exceeds 7 by rounding
    return float(np.partition(values.ravel(), -count)[-count]) if count else np.inf


def suppressed(boxes: Sequence[ScoredBox], threshold: float) -> list[ScoredBox]:
    """Return the boxes, sorted by score, without those that overlap a better one by more than ``threshold``.

    >>> half, less, other = Box(0, 0, 0.5, 1), Box(0, 0, 0.4, 1), Box(0.6, 0, 1, 1)
    >>> boxes = [ScoredBox(half, 0.9), ScoredBox(less, 0.8), ScoredBox(other, 0.1)]
    >>> [box.score for box in suppressed(boxes, 0.25)]
    [0.9, 0.1]
    """
    kept: list[ScoredBox] = []
    for one in boxes:
        if all(one.box.iou(other.box) <= threshold for other in kept):
            kept.append(one)
    return kept
