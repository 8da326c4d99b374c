"""The centre prior: it points at the middle of every image, whatever the phrase. The weakest image-blind baseline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from rightlung.core import Grounding, Heatmap, Phrase

GRID = 56
STD = 0.25
"""Standard deviation of the Gaussian, in fractions of the image."""


class CentrePrior:
    """A Gaussian in the middle of the image, with a standard deviation of a quarter of its sides."""

    def ground_blind(self, phrases: Sequence[Phrase], patients: Sequence[str | None]) -> list[Grounding]:
        """Return the same map for every phrase."""
        return [Grounding(_centre())] * len(phrases)


@lru_cache(maxsize=1)
def _centre() -> Heatmap:
    place = (np.arange(GRID) + 0.5) / GRID - 0.5
    bell = np.exp(-(place**2) / (2 * STD**2))
    return Heatmap(np.outer(bell, bell).astype(np.float32))
