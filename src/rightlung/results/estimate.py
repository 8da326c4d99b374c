"""An estimate with its confidence interval, and a paired comparison."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rightlung.scoring.statistics import Interval

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["difference shown", "no difference shown", "too few patients to tell"]


@dataclass(frozen=True, slots=True)
class BootstrapSettings:
    """Settings of BCa bootstrap intervals over patients and of sign-flip tests."""

    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0
    flips: int = 10_000
    """Sign patterns per test; enough for a p-value to survive Holm's correction over some hundred tests."""

    def as_options(self) -> dict[str, Any]:
        """Return the bootstrap settings as keyword arguments of `rightlung.scoring.statistics`."""
        return {"resamples": self.resamples, "level": self.level, "seed": self.seed}


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval and sample size. NaN means undefined; ``reason`` says why."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    """Number of instances, such as phrases."""
    patients: int = 0
    reason: str | None = None

    @property
    def defined(self) -> bool:
        """Whether the value is defined."""
        return not math.isnan(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def excludes(self, value: float) -> bool:
        """Return whether ``value`` lies outside the interval; False without an interval."""
        return self.has_interval and not self.low <= value <= self.high

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        found = {"estimate": self.value, "low": self.low, "high": self.high, "phrases": self.n}
        return found | {"patients": self.patients} | ({"reason": self.reason} if self.reason else {})

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with one row, to be joined with others by ``pandas.concat``."""
        import pandas as pd

        return pd.DataFrame([self.as_row()])

    @classmethod
    def of(cls, interval: Interval) -> Estimate:
        """Return an interval of `rightlung.scoring.statistics` as an estimate."""
        return cls(interval.estimate, interval.low, interval.high, interval.n, interval.clusters or 0, interval.reason)


@dataclass(frozen=True)
class Comparison(Estimate):
    """A paired difference, first minus second, with its test."""

    p: float = math.nan
    """Two-sided sign-flip p-value."""
    p_adjusted: float | None = None
    """The p-value after Holm's correction for all comparisons of the family."""
    shown: bool = False
    """Whether the interval excludes zero and the (adjusted) p-value is below 1 − level."""
    level: float = 0.95

    @property
    def verdict(self) -> Verdict:
        """The outcome in words. With too few patients, no sign pattern can give a small p-value."""
        if self.shown:
            return "difference shown"
        return "too few patients to tell" if 2.0 ** (1 - self.patients) > 1 - self.level else "no difference shown"

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        adjusted = {} if self.p_adjusted is None else {"p_adjusted": self.p_adjusted}
        return Estimate.as_json(self) | {"p": self.p, "shown": self.shown} | adjusted

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name, and the verdict."""
        return asdict(self) | {"verdict": self.verdict}

    @classmethod
    def tested(cls, interval: Interval, p: float) -> Comparison:
        """Return an interval of `rightlung.scoring.statistics` with the p-value of a test against zero."""
        parts = (interval.estimate, interval.low, interval.high, interval.n, interval.clusters or 0, interval.reason)
        return cls(*parts, p, None, bool(interval.excludes(0.0) and p < 1 - interval.level), interval.level)
