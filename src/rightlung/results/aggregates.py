"""Estimate measures that are not means (AUROC, MCC, corpus BLEU, …) from an instances table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rightlung.measuring import find_measure
from rightlung.measuring.measures import Measure
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.scoring.statistics.intervals import Method

if TYPE_CHECKING:
    import pandas as pd


def estimate(
    table: pa.Table,
    name: str,
    condition: str = "none",
    *,
    minus: str | None = None,
    settings: BootstrapSettings | None = None,
) -> Estimate:
    """Return a measure of the answers under a condition or, with ``minus``, its change from that condition.

    A change uses the instances that both conditions have. Patients are resampled with all their instances.
    """
    measure = find_measure(name)
    rows = table.select(sorted({"study", "query", "target", "condition", "patient", *measure.columns}))
    wanted = (one for one in (condition, minus) if one)
    parts = [rows.filter(pc.equal(rows["condition"], one)).to_pandas() for one in wanted]
    if minus is not None:
        parts = [part.set_index(["study", "query", "target"]) for part in parts]
        parts = [part[part.index.isin(other.index)] for part, other in zip(parts, parts[::-1], strict=True)]
        parts = [part.reset_index() for part in parts]
    return _combined(parts, measure, (lambda found: found[0]) if minus is None else (lambda f: f[0] - f[1]), settings)


def estimate_mean(
    tables: Sequence[pa.Table],
    name: str,
    *,
    minus: Sequence[pa.Table] = (),
    settings: BootstrapSettings | None = None,
    method: Method = "bca",
) -> Estimate:
    """Return the mean of a measure over models that were measured on the same patients, such as training seeds.

    With ``minus``, return the difference from the mean over other models, paired by patient.
    """
    measure = find_measure(name)
    wanted = sorted({"condition", "patient", *measure.columns})
    rows = [table.select(wanted).to_pandas() for table in (*tables, *minus)]
    parts = [one[one.condition == "none"].reset_index() for one in rows]

    def combine(found: list[Floats]) -> Floats:
        mean: Floats = np.mean(found[: len(tables)], axis=0)
        return mean - np.mean(found[len(tables) :], axis=0) if minus else mean

    return _combined(parts, measure, combine, settings, method)


def _combined(
    parts: Sequence[pd.DataFrame],
    measure: Measure,
    combine: Callable[[list[Floats]], Floats],
    settings: BootstrapSettings | None,
    method: Method = "bca",
) -> Estimate:
    """Return a combination of the measure's values in several tables; patients are resampled in all of them at once."""
    statistics = [measure.statistic({name: part[name].to_numpy() for name in measure.columns}) for part in parts]
    ends = np.cumsum([len(part) for part in parts])[:-1]

    def statistic(counts: Floats) -> Floats:
        split = np.split(counts, ends, axis=1)
        return combine([one(drawn) for one, drawn in zip(statistics, split, strict=True)])

    patients = np.concatenate([part.patient.to_numpy(dtype=object) for part in parts])
    return Estimator(patients, settings).aggregate(statistic, np.ones(len(patients), bool), method=method)
