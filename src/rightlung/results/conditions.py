"""Compare a measure under two conditions, such as the model and an image-blind baseline, with a test over patients."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung.measuring import find_measure
from rightlung.results.aggregates import estimate
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.results.paired import FLIPS_PER_TEST, columns_of, pooled_columns
from rightlung.scoring.statistics import smallest_p, swap_test

FLIPS = 2_000
"""Random swaps at most: enough for a p-value without Holm's correction."""
_KEYS = ["study", "query", "target"]


def compare_conditions(table: pa.Table, name: str, first: str, second: str, settings: BootstrapSettings) -> Comparison:
    """Return a measure under the first condition minus that under the second, with a swap test over patients.

    The value and its interval are those of `aggregates.estimate`.
    """
    found, measure = estimate(table, name, first, minus=second, settings=settings), find_measure(name)
    if not found.has_interval:
        return Comparison(**vars(found), level=settings.level, smallest_p=1.0)
    rows = table.select(sorted({*_KEYS, "condition", "patient", *measure.columns}))
    frames = [rows.filter(pc.equal(rows["condition"], one)).to_pandas().set_index(_KEYS) for one in (first, second)]
    frames = [one[one.index.isin(other.index)].reset_index() for one, other in zip(frames, frames[::-1], strict=True)]
    frames = [one.sort_values(_KEYS, kind="stable", ignore_index=True) for one in frames]
    model, other = (columns_of(one, measure) for one in frames)
    pooled = measure.statistic(pooled_columns(model, other, measure.ranked))
    flips = min(FLIPS, max(settings.resamples, FLIPS_PER_TEST))
    patients = frames[0].patient.to_numpy(dtype=object)
    p, _ = swap_test(pooled, patients, flips=flips, seed=settings.seed)
    shown = bool(found.excludes(0.0) and p < 1 - settings.level)
    least = smallest_p(len(np.unique(patients)), flips)
    return Comparison(**vars(found), p=p, shown=shown, level=settings.level, smallest_p=least)
