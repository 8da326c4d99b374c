"""Retrieval: the rank of the first relevant candidate of each query, recall at k, and the median rank.

`rightlung.scoring.text_retrieval` scores images and reports with it, next to answers that never see the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError

Floats = NDArray[np.float64]
QUERIES_AT_ONCE = 1024
KS = (1, 5, 10)


def ranks(similarity: ArrayLike, relevant: ArrayLike) -> Floats:
    """Return the rank, from 1, of the most similar relevant candidate of each query, (queries,).

    ``similarity`` and ``relevant`` (bool) are (queries, candidates). Irrelevant candidates that tie with it count half,
    so that equal similarities give the rank of a guess. A query without a relevant candidate has the rank NaN.

    >>> ranks([[0.9, 0.4, 0.1], [0.5, 0.5, 0.2]], [[False, True, True], [True, False, False]]).tolist()
    [2.0, 1.5]
    """
    return _rank(*_places(similarity, relevant))


def recall_at(similarity: ArrayLike, relevant: ArrayLike, k: int) -> Floats:
    """Return the chance that a relevant candidate of each query is among the first ``k``, (queries,).

    It is 1 or 0, unless candidates tie: these are in random order, so that a constant similarity has the recall of
    chance. A query without a relevant candidate has NaN.

    >>> recall_at([[0.9, 0.4], [0.5, 0.5]], [[True, False], [True, False]], 1).tolist()
    [1.0, 0.5]
    """
    return _recall(*_places(similarity, relevant), k)


def _rank(above: Floats, tied: Floats, own: Floats) -> Floats:
    return np.where(own > 0, 1.0 + above + tied / 2, np.nan)


def _recall(above: Floats, tied: Floats, own: Floats, k: int) -> Floats:
    if k < 1:
        raise InputError(f"k must be at least 1; got {k}")
    missed = np.ones(len(own))  # chance that all of the places left hold irrelevant ones
    for drawn in range(k):
        share = np.clip(tied - drawn, 0, None) / np.maximum(tied + own - drawn, 1)
        missed = np.where(above + drawn < k, missed * share, missed)
    return np.where(own > 0, 1.0 - missed, np.nan)


def _places(similarity: ArrayLike, relevant: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return how many irrelevant candidates are above the best relevant one, how many tie, and its relevant ties."""
    scores, right = np.asarray(similarity, dtype=np.float64), np.asarray(relevant, dtype=bool)
    if scores.ndim != 2 or scores.shape != right.shape:
        raise InputError(f"expected two tables (queries, candidates) of one shape; got {scores.shape}, {right.shape}")
    if not np.isfinite(scores).all():
        raise InputError("similarities must be finite numbers")
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    above, tied, own = (scores > best) & ~right, (scores == best) & ~right, (scores == best) & right
    return above.sum(axis=1, dtype=np.float64), tied.sum(axis=1, dtype=np.float64), own.sum(axis=1, dtype=np.float64)


def retrieve(
    queries: ArrayLike,
    candidates: ArrayLike,
    groups: tuple[ArrayLike, ArrayLike],
    ks: Sequence[int] = KS,
    *,
    bonus: ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return ``rank`` and ``recall@k`` of each query, (queries,) each, by the cosine of embeddings (n, dimension).

    ``groups`` (queries,), (candidates,) number what is described: a candidate of the query's group is relevant.
    ``bonus`` (candidates,) is added to the cosines.
    """
    asked, known = unit_vectors(queries), unit_vectors(candidates)
    if asked.shape[1:] != known.shape[1:]:
        raise InputError(f"queries have {asked.shape[1]} dimensions and candidates {known.shape[1]}")
    of_query, of_candidate = map(np.asarray, groups)
    added = np.zeros(len(known)) if bonus is None else np.asarray(bonus, np.float64)
    parts = []
    for begin in range(0, len(asked), QUERIES_AT_ONCE):
        some = slice(begin, begin + QUERIES_AT_ONCE)
        similarity = (asked[some] @ known.T).round(12) + added  # rounded, so that equal candidates tie
        places = _places(similarity, of_query[some, None] == of_candidate)
        parts.append({"rank": _rank(*places), **{f"recall@{k}": _recall(*places, k) for k in ks}})
    return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}


def unit_vectors(vectors: ArrayLike) -> Floats:
    """Return vectors (n, dimension) divided by their lengths; a vector of zeros stays one."""
    values = np.asarray(vectors, dtype=np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError(f"embeddings must be a table (n, dimension) of finite numbers; got the shape {values.shape}")
    lengths: Floats = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.maximum(lengths, np.finfo(np.float64).tiny)


def median_rank(found: Floats, counts: Floats) -> Floats:
    """Return the median of ranks that are drawn ``counts`` (resamples, queries) times, (resamples,); NaN without any.

    >>> median_rank(np.array([1.0, 2.0, 9.0]), np.array([[1, 1, 1], [1, 0, 1], [0, 1, 3]])).tolist()
    [2.0, 5.0, 9.0]
    """
    there = ~np.isnan(found)
    order = np.argsort(found[there], kind="stable")
    values, drawn = found[there][order], counts[:, there][:, order].cumsum(axis=1)
    if not len(values):
        return np.full(len(counts), np.nan)
    total = drawn[:, -1:]
    middle = [values[beyond.argmax(axis=1)] for beyond in (drawn >= total / 2, drawn > total / 2)]
    return np.where(total[:, 0] > 0, (middle[0] + middle[1]) / 2, np.nan)
