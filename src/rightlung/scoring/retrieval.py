"""Retrieval: at which rank the first relevant candidate of each query stands, and recall at k from these ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError


def ranks(similarity: ArrayLike, relevant: ArrayLike) -> NDArray[np.float64]:
    """Return the rank, from 1, of the most similar relevant candidate of each query, (queries,).

    ``similarity`` and ``relevant`` (bool) are (queries, candidates). Irrelevant candidates that tie with it count half,
    so that equal similarities give the rank of a guess. A query without a relevant candidate has the rank NaN.

    >>> ranks([[0.9, 0.4, 0.1], [0.5, 0.5, 0.2]], [[False, True, True], [True, False, False]]).tolist()
    [2.0, 1.5]
    """
    scores, right = np.asarray(similarity, dtype=np.float64), np.asarray(relevant, dtype=bool)
    if scores.ndim != 2 or scores.shape != right.shape:
        raise InputError(f"expected two tables (queries, candidates) of one shape; got {scores.shape}, {right.shape}")
    if not np.isfinite(scores).all():
        raise InputError("similarities must be finite numbers")
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    above, tied = ((scores > best) & ~right).sum(axis=1), ((scores == best) & ~right).sum(axis=1)
    return np.where(right.any(axis=1), 1.0 + above + tied / 2, np.nan)


def recall_at(found: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return of each query whether a relevant candidate is among the first ``k`` (1.0, 0.0 or NaN), given `ranks`.

    >>> recall_at([1.0, 3.0, 7.5], 5).mean().round(3)
    np.float64(0.667)
    """
    if k < 1:
        raise InputError(f"k must be at least 1; got {k}")
    values = np.asarray(found, dtype=np.float64)
    return np.where(np.isnan(values), np.nan, values <= k)
