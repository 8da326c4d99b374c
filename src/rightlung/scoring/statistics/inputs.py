"""Array types and input checks of the statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Clusters = Sequence[Any] | NDArray[Any]


def as_numbers(name: str, values: ArrayLike) -> FloatArray:
    """Return values as float64."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error


def as_floats(name: str, values: ArrayLike, dimensions: int | None = 1) -> FloatArray:
    """Return values as float64; other dimensions or infinities are errors."""
    array = as_numbers(name, values)
    if dimensions is not None and array.ndim != dimensions:
        raise InputError(f"{name} must have {dimensions} dimension(s), and has the shape {array.shape}")
    if array.ndim == 0:
        raise InputError(f"{name} must be an array, and is the single number {array}")
    if np.isinf(array).any():
        place = tuple(int(axis[0]) for axis in np.nonzero(np.isinf(array)))
        raise InputError(f"{name}[{', '.join(map(str, place))}] is {array[place]}; values must be finite or NaN")
    return array


def check_same_length(**arrays: FloatArray) -> None:
    """Raise an error if the arrays differ in length."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(f"one row for each instance is needed in all arrays: {said}")


def cluster_index(clusters: Clusters | None, length: int) -> IndexArray:
    """Return the number of each instance's cluster, in the sorted order of their names.

    Sorting makes the resamples independent of the order of the instances. A missing patient is an error, because a
    patient of its own would silently narrow the interval. Without clusters, every instance is its own.
    """
    if clusters is None:
        return np.arange(length)
    given = clusters.tolist() if isinstance(clusters, np.ndarray) else list(clusters)
    if len(given) != length:
        raise InputError(f"clusters must have one entry for each of {length} instances; got {len(given)}")
    for position, name in enumerate(given):
        whole = isinstance(name, int | np.integer) or (isinstance(name, float) and name.is_integer())
        if isinstance(name, bool) or not (whole or (isinstance(name, str) and name.strip())):
            raise InputError(f"clusters[{position}] is {name!r}; expected a patient (text or integer)")
        if isinstance(name, str) != isinstance(given[0], str):  # is 7 the patient "7"? we cannot know
            raise InputError(f"clusters mix texts and numbers: {given[0]!r} and, at position {position}, {name!r}")
    names = np.array(given) if given else np.array([], dtype=np.intp)
    return np.unique(names, return_inverse=True)[1].astype(np.intp)
