"""Estimates with intervals, and the options of the bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import numpy as np

from rightlung.core.errors import InputError, check_known

Method = Literal["bca", "percentile"]

METHODS = ("bca", "percentile")

FEW_CLUSTERS = 10
"""With fewer clusters (patients), a bootstrap interval is too narrow to rely on."""


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

    @property
    def resampled(self) -> int:
        """Number of clusters, or of instances without clusters."""
        return self.n if self.clusters is None else self.clusters

    @property
    def basis(self) -> str:
        """What was resampled, in words."""
        few = "only " if self.resampled < FEW_CLUSTERS else ""
        return f"{few}{self.resampled:,} {'instances' if self.clusters is None else 'clusters'}"

    @property
    def warning(self) -> str | None:
        """A warning if the interval was resampled from fewer than `FEW_CLUSTERS` clusters, else None."""
        few = self.defined and self.resamples and self.resampled < FEW_CLUSTERS
        return f"{self.basis}: the interval is unreliable" if few else None

    def sentence(self, digits: int = 3) -> str:
        """Return the estimate, its interval and what was resampled in words.

        >>> Interval(0.5, 0.25, 0.75, 0.95, "bca", 10_000, 40, 0, 12).sentence()
        '0.500 (95 % interval 0.250 to 0.750; 12 clusters)'
        """
        if math.isnan(self.estimate):
            return f"undefined: {self.reason}"
        if not self.defined:
            return f"{self.estimate:.{digits}f} (no interval: {self.reason})"
        span = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        basis = f"; {self.basis}" if self.warning or self.clusters is not None else ""
        return f"{self.estimate:.{digits}f} ({100 * self.level:g} % interval {span}{basis})"


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
        check_known("bootstrap method", self.method, METHODS)
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
