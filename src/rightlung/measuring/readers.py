"""Several radiologists' boxes of one phrase, where a source has them, and how well they agree.

VinDr-CXR has those of three readers in ``extra["readers"]``, and so may a ``manifest`` (docs/strata.md); PadChest-GR
has a second reader's boxes of each sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from rightlung.core import Box, InputError, Study
from rightlung.core.box import union_overlap
from rightlung.lexicon.findings import find

Corners = tuple[float, float, float, float]


def readers_of(study: Study, index: int) -> tuple[tuple[Corners, ...], ...]:
    """Return the boxes that each reader drew for a phrase; those who drew none are left out."""
    phrase, found = study.phrases[index], list[Sequence[Any]]()
    second, readers = study.extra.get("second_reader"), study.extra.get("readers")
    if isinstance(second, Sequence) and len(second) == len(study.phrases):
        found = [phrase.boxes, second[index]]
    elif isinstance(readers, Mapping):
        for reader, drawn in readers.items():
            where = f"study {study.id!r}: extra, readers, {reader!r}"
            if not isinstance(drawn, Mapping) or not isinstance(drawn.get("boxes", []), Sequence):
                raise InputError(f'{where}: expected {{"boxes": [{{"label": …, "box": [x0, y0, x1, y1]}}]}}')
            found.append([_box(one, where) for one in drawn.get("boxes", []) if _is_about(one, phrase.findings)])
    return tuple(tuple(box.as_tuple() for box in boxes) for boxes in found if boxes) if len(found) > 1 else ()


def _is_about(one: Any, findings: Mapping[str, Any]) -> bool:
    meant = find(str(one.get("label", ""))) if isinstance(one, Mapping) else None
    return meant is not None and meant.name in findings


def _box(one: Mapping[str, Any], where: str) -> Box:
    try:
        return Box.from_sequence(one["box"])
    except (InputError, KeyError) as error:
        raise InputError(f"{where}, {one.get('label')!r}: {error}") from None


def agreement(readers: Sequence[Sequence[Corners]]) -> float:
    """Return the mean IoU of the readers' boxes over all pairs of readers; NaN with fewer than two.

    >>> agreement([[(0, 0, 0.5, 1)], [(0, 0, 1, 1)]])
    0.5
    """
    drawn = [[Box(*corners) for corners in boxes] for boxes in readers]
    pairs = [union_overlap(*pair) for pair in combinations(drawn, 2)]
    return float(np.mean([common / union for common, union in pairs])) if pairs else float("nan")
