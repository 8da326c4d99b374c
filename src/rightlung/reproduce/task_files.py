"""Estimates from the tables of instances that models have besides those of phrases: one file for each task."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rightlung.reproduce.measurements import Measurements
from rightlung.results.aggregates import estimate_mean
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.model import MeasuredModel

if TYPE_CHECKING:
    import pyarrow as pa

    from rightlung.scoring.statistics.intervals import Method


SETTINGS = BootstrapSettings(resamples=250)


@dataclass(frozen=True)
class TaskFiles:
    """The files ``measures/<run>/<task>.parquet``, and estimates of a variant's mean over its seeds."""

    found: Measurements
    settings: BootstrapSettings = SETTINGS
    method: Method = "bca"
    _known: dict[tuple[str, ...], Estimate | None] = field(default_factory=dict, repr=False)

    def model(self, variant: str) -> MeasuredModel | None:
        """Return the row of a variant, None if it was not measured."""
        return next((row for row in self.found.measured.rows if row.variant == variant), None)

    def files(self, variant: str, task: str) -> list[Path]:
        """Return the files of a task that the seeds of a variant have."""
        paths = [Path(one.origin).with_name(f"{task}.parquet") for one in self.found.measured.seeds(variant)]
        return [path for path in paths if path.is_file()]

    def tables(self, variant: str, task: str) -> list[pa.Table]:
        """Return the tables of these files."""
        return [pq.read_table(path) for path in self.files(variant, task)]

    def estimate(self, variant: str, task: str, measure: str) -> Estimate | None:
        """Return a measure of a variant, its mean over the seeds that have it; None if it was not measured."""
        return self._estimate(variant, "", task, measure)

    def difference(self, variant: str, other: str, task: str, measure: str) -> Estimate | None:
        """Return the difference of two variants, paired by patient, over the seeds that both have."""
        return self._estimate(variant, other, task, measure)

    def seeds(self, variant: str, task: str, measure: str) -> list[float]:
        """Return the value of each seed, without an interval."""
        brief = BootstrapSettings(resamples=1)
        tables = self.tables(variant, task)
        return [estimate_mean([table], measure, settings=brief, method="percentile").value for table in tables]

    def _estimate(self, variant: str, other: str, task: str, measure: str) -> Estimate | None:
        key = variant, other, task, measure
        if key not in self._known:
            tables, minus = self.tables(variant, task), self.tables(other, task) if other else []
            if other:
                shared = min(len(tables), len(minus))
                tables, minus = tables[:shared], minus[:shared]
            options = {"minus": minus, "settings": self.settings, "method": self.method}
            self._known[key] = estimate_mean(tables, measure, **options) if tables else None  # type: ignore[arg-type]
        return self._known[key]
