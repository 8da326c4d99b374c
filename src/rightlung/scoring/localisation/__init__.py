"""How well a map points at a mask.

`score` takes maps and masks and gives every measure for every pair; `score_grid` does the same for maps that are still
on a small grid, as if upsampled by the nearest cell, from exact counts per cell. Both are checked against scikit-learn
and scipy; ties are handled in the open (see `measures`).
"""

from rightlung.scoring.localisation.scores import score, score_grid
from rightlung.scoring.localisation.settings import METRICS

__all__ = ["METRICS", "score", "score_grid"]
