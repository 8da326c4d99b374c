"""The most similar vectors by cosine: one matrix product in blocks, or a FAISS index, with the same result.

Both find candidates in single precision. These are scored again in double precision, pair by pair, and sorted; ties go
to the lower index. So ids and order do not depend on the backend, on block sizes or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, check_known
from rightlung.scoring.retrieval import Floats, unit_vectors

Backend = Literal["matrix", "faiss"]
MARGIN = 1e-4
"""Candidates this close to the last place are scored again; the error of single precision is far below."""
QUERIES_AT_ONCE = 1024
_EXTRA = 32


def nearest(
    queries: ArrayLike, candidates: ArrayLike, count: int, backend: Backend = "matrix"
) -> tuple[NDArray[np.intp], Floats]:
    """Return the ids and cosines (queries, count) of the nearest candidates of each query, the best first.

    Both are (n, dimension). ``faiss`` needs ``pip install 'rightlung[retrieval]'``.

    >>> ids, cosines = nearest([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0], [1.0, 0.0]], 2)
    >>> ids.tolist(), cosines.tolist()
    ([[1, 2]], [[1.0, 1.0]])
    """
    asked, known = unit_vectors(queries), unit_vectors(candidates)
    check_known("backend", backend, ("matrix", "faiss"))
    if not 1 <= count <= len(known):
        raise InputError(f"asked for the {count} nearest of {len(known)} candidates")
    if asked.shape[1] != known.shape[1]:
        raise InputError(f"queries have {asked.shape[1]} dimensions and candidates {known.shape[1]}")
    ids, cosines = np.empty((len(asked), count), np.intp), np.empty((len(asked), count))
    found = (_by_faiss if backend == "faiss" else _by_matrix)(asked.astype(np.float32), known.astype(np.float32), count)
    for row, some in enumerate(found):
        # Rounded, so that equal vectors tie; elementwise, so that the sum does not depend on the other candidates.
        exact = (known[some] * asked[row]).sum(axis=1).round(12)
        order = np.lexsort((some, -exact))[:count]
        ids[row], cosines[row] = some[order], exact[order]
    return ids, cosines


def _by_matrix(asked: NDArray[np.float32], known: NDArray[np.float32], count: int) -> Iterator[NDArray[np.intp]]:
    """Yield the ids of candidates of each query: the best, and all that are close to the last of them."""
    for begin in range(0, len(asked), QUERIES_AT_ONCE):
        cosines = asked[begin : begin + QUERIES_AT_ONCE] @ known.T
        last = np.partition(cosines, len(known) - count, axis=1)[:, len(known) - count, None]
        for row in cosines >= last - MARGIN:
            yield np.flatnonzero(row)


def _by_faiss(asked: NDArray[np.float32], known: NDArray[np.float32], count: int) -> Iterator[NDArray[np.intp]]:
    """Yield the same from an exact index, which is asked for more until the next one is not close."""
    try:
        import faiss
    except ImportError:
        raise InputError("FAISS is not installed: pip install 'rightlung[retrieval]'") from None
    index = faiss.IndexFlatIP(known.shape[1])
    index.add(np.ascontiguousarray(known))
    for begin in range(0, len(asked), QUERIES_AT_ONCE):
        some = np.ascontiguousarray(asked[begin : begin + QUERIES_AT_ONCE])
        found: dict[int, NDArray[np.intp]] = {}
        waiting, wanted = np.arange(len(some)), min(count + _EXTRA, len(known))
        while len(waiting):
            cosines, ids = index.search(some[waiting], wanted)
            enough = (cosines[:, -1] < cosines[:, count - 1] - MARGIN) | (wanted == len(known))
            found |= {int(row): np.sort(ids[place]) for place, row in enumerate(waiting) if enough[place]}
            waiting, wanted = waiting[~enough], min(4 * wanted, len(known))
        yield from (found[row] for row in range(len(some)))
