"""Estimates with intervals, and input checks of the statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.errors import InputError, unknown_name

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
Method = Literal["bca", "percentile"]
Clusters = Sequence[Any] | NDArray[Any]

METHODS = ("bca", "percentile")


@dataclass(frozen=True)
class Interval:
    """An estimate, its interval, and what both rest on.

    ``low`` and ``high`` are NaN if there is no interval; ``reason`` says why, or gives a caveat (zero width, resamples
    left out).
    """

    estimate: float
    low: float
    high: float
    level: float
    method: str
    resamples: int
    """Resamples in which the statistic was defined."""
    n: int
    """Instances used."""
    undefined: int
    """Instances left out: NaN value or zero weight."""
    clusters: int | None
    """Clusters (patients) resampled; None without clusters."""
    reason: str | None = None

    @property
    def defined(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def excludes(self, value: float) -> bool:
        """Whether ``value`` lies outside; an undefined interval excludes nothing."""
        return self.defined and not self.low <= value <= self.high

    def sentence(self, digits: int = 3) -> str:
        """Return the estimate and its interval in words.

        >>> Interval(0.5, 0.25, 0.75, 0.95, "bca", 10_000, 40, 0, None).sentence()
        '0.500 (95 % interval 0.250 to 0.750)'
        """
        if math.isnan(self.estimate):
            return f"undefined: {self.reason}"
        if not self.defined:
            return f"{self.estimate:.{digits}f} (no interval: {self.reason})"
        span = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        return f"{self.estimate:.{digits}f} ({100 * self.level:g} % interval {span})"


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


class Options(TypedDict, total=False):
    """The fields of `Resampling` as keyword arguments."""

    resamples: int
    method: Method
    level: float
    seed: int
    workers: int | None


@dataclass(frozen=True, slots=True)
class Resampling:
    """How an interval is computed: the ``**options`` of all functions."""

    resamples: int = 10_000
    method: Method = "bca"
    level: float = 0.95
    seed: int = 0
    workers: int | None = None
    """Number of threads (default: all usable cores); the result does not depend on it."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("bootstrap method", str(self.method), METHODS)
        for name, value, least in (("resamples", self.resamples, 1), ("seed", self.seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if not isinstance(self.level, int | float | np.number) or not 0 < self.level < 1:
            raise InputError(f"level must lie between 0 and 1 (0.95 for 95 %), not {self.level!r}")


class Sample(NamedTuple):
    """Instances used and left out, and the number of clusters that are resampled."""

    n: int
    undefined: int
    cluster_count: int
    clustered: bool
    """False if every instance is its own cluster."""

    @property
    def clusters(self) -> int | None:
        """The number of clusters, None without clusters."""
        return self.cluster_count if self.clustered else None


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
            raise InputError(
                f"clusters[{position}] is {name!r}: every instance needs a cluster (patient), a text or a whole number"
            )
        if isinstance(name, str) != isinstance(given[0], str):  # is 7 the patient "7"? we cannot know
            raise InputError(f"clusters mix texts and numbers: {given[0]!r} and, at position {position}, {name!r}")
    names = np.array(given) if given else np.array([], dtype=np.intp)
    return np.unique(names, return_inverse=True)[1].astype(np.intp)
