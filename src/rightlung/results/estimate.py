"""An estimate with its confidence interval, and a paired comparison."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rightlung.scoring.statistics import FEW_CLUSTERS, Interval, Verdict, verdict_of

if TYPE_CHECKING:
    import pandas as pd


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

    @property
    def warning(self) -> str | None:
        """A warning if the interval rests on fewer than `FEW_CLUSTERS` patients, else None."""
        few = self.has_interval and 0 < self.patients < FEW_CLUSTERS
        return f"only {self.patients} patients: the interval is unreliable" if few else None

    def excludes(self, value: float) -> bool:
        """Return whether ``value`` lies outside the interval; False without an interval."""
        return self.has_interval and not self.low <= value <= self.high

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        found = {"estimate": self.value, "low": self.low, "high": self.high, "phrases": self.n}
        notes = {"reason": self.reason, "warning": self.warning}
        return found | {"patients": self.patients} | {name: note for name, note in notes.items() if note}

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
        return cls(interval.estimate, interval.low, interval.high, interval.n, interval.resampled, interval.reason)


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
    smallest_p: float = 0.0
    """The smallest (adjusted) p-value that this many patients can give; 1 if the difference is not tested."""

    @property
    def verdict(self) -> Verdict:
        """The outcome in words."""
        return verdict_of(self.shown, self.smallest_p, self.level)

    @property
    def only_interval(self) -> bool:
        """Whether no difference is shown although the interval excludes zero, because the test is not significant."""
        return self.verdict == "no difference shown" and self.excludes(0.0)

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        adjusted = {} if self.p_adjusted is None else {"p_adjusted": self.p_adjusted}
        tested = {"p": self.p, "shown": self.shown, "verdict": self.verdict, "smallest_p": self.smallest_p}
        return Estimate.as_json(self) | tested | adjusted

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name, and the verdict."""
        return asdict(self) | {"verdict": self.verdict}

    @classmethod
    def tested(cls, interval: Interval, p: float, smallest_p: float) -> Comparison:
        """Return an interval of `rightlung.scoring.statistics` with the p-value of a test against zero."""
        shown = bool(interval.excludes(0.0) and p < 1 - interval.level)
        estimate = vars(Estimate.of(interval))
        return cls(**estimate, p=p, shown=shown, level=interval.level, smallest_p=smallest_p)
