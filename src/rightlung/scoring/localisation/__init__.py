"""Scores of heatmaps against masks.

`score` computes every measure for every pair; `score_grid` does so for maps on a small grid.
"""

from rightlung.scoring.localisation.scores import score, score_grid
from rightlung.scoring.localisation.settings import METRICS

__all__ = ["METRICS", "score", "score_grid"]
