"""A number with its interval, and a comparison of two."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rightlung.scoring.statistics import Difference, Interval


@dataclass(frozen=True, slots=True)
class BootstrapSettings:
    """How intervals are made: patients are resampled (BCa)."""

    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0

    def as_options(self) -> dict[str, Any]:
        """Return the settings as keyword arguments of `rightlung.scoring.statistics`."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate:
    """A number, the interval around it, and what both rest on; NaN where there is none, with the reason."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    """Phrases, or whatever the instances are."""
    patients: int = 0
    reason: str | None = None

    @property
    def defined(self) -> bool:
        """Whether there is a number."""
        return not math.isnan(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def excludes(self, value: float) -> bool:
        """Whether ``value`` lies outside the interval; without an interval nothing is excluded."""
        return self.has_interval and not self.low <= value <= self.high

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found = {"estimate": self.value, "low": self.low, "high": self.high, "phrases": self.n}
        return found | {"patients": self.patients} | ({"reason": self.reason} if self.reason else {})

    @classmethod
    def of(cls, interval: Interval) -> Estimate:
        """Return an interval of `rightlung.scoring.statistics` as an estimate."""
        parts = (interval.estimate, interval.low, interval.high, interval.n, interval.clusters or 0, interval.reason)
        return Comparison(*parts, interval.p, None, interval.shown) if isinstance(interval, Difference) else cls(*parts)


@dataclass(frozen=True)
class Comparison(Estimate):
    """A paired difference: the estimate of first minus second, and whether it shows a difference."""

    p: float = math.nan
    """Two-sided sign-flip p-value."""
    p_adjusted: float | None = None
    """The same after Holm's adjustment for all comparisons of its family."""
    shown: bool = False
    """Whether the interval excludes zero and the (adjusted) p-value is below 1 − level."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        adjusted = {} if self.p_adjusted is None else {"p_adjusted": self.p_adjusted}
        return Estimate.as_json(self) | {"p": self.p, "shown": self.shown} | adjusted
