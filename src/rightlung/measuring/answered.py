"""The answers to phrases next to their targets, one by one: for checks and curves that need the maps again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightlung.core.resampling import resampling_matrix
from rightlung.measuring.maps import AnswerMap
from rightlung.measuring.phrases import PhraseTargets
from rightlung.measuring.targets import Targets
from rightlung.predictions import Batch

OWN = "own"
"""The target rule of an audit: the phrase's mask, else its boxes."""


@dataclass(frozen=True)
class Answered:
    """A phrase that has a target, the target ``(height, width)``, and the answer."""

    phrase: PhraseTargets
    mask: NDArray[np.bool_]
    answer: AnswerMap

    @property
    def key(self) -> tuple[str, str]:
        """Study and query."""
        return self.phrase.study, self.phrase.query


def answered(batches: Iterable[Batch], targets: Targets, most: int | None = None) -> Iterator[Answered]:
    """Yield the first ``most`` answers under the condition ``none`` to phrases that have a target."""
    count = 0
    for batch in batches:
        boxes, errors = batch.column("boxes"), batch.column("error")
        for place, key in enumerate(batch.keys):
            phrase = targets.phrases.get((key.study, key.query)) if key.condition == "none" else None
            target = None if phrase is None else phrase.masks.get(OWN)
            values = batch.maps[place]
            if phrase is None or target is None or errors[place] or (values is None and boxes[place] is None):
                continue
            answer = AnswerMap(values, tuple(batch.extents[place].tolist()), boxes[place])
            yield Answered(phrase, targets.store.read([target.place])[0], answer)
            count += 1
            if count == most:
                return


def reduced(mask: NDArray[np.bool_], side: int) -> NDArray[np.bool_]:
    """Return a mask on ``side`` x ``side`` cells: those that it covers at least half as much as any cell."""
    height, width = mask.shape
    down, across = (resampling_matrix(side, pixels, 0.0, 1.0, "area") for pixels in (height, width))
    covered = down @ mask @ across.T
    return np.asarray(covered >= covered.max() / 2) & (covered > 0)
