"""Estimate measures that are not means (AUROC, MCC, corpus BLEU, …) from an instances table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rightlung.measuring import find_measure
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Estimator, Floats


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
    rows = table.select(sorted({"study", "query", "target", "condition", "patient", *measure.columns})).to_pandas()
    parts = [rows[rows.condition == one].set_index(["study", "query", "target"]) for one in (condition, minus) if one]
    if minus is not None:
        parts = [part[part.index.isin(other.index)] for part, other in zip(parts, parts[::-1], strict=True)]
    parts = [part.reset_index() for part in parts]
    columns = [{column: part[column].to_numpy() for column in measure.columns} for part in parts]
    ends = np.cumsum([len(part) for part in parts])[:-1]

    def statistic(counts: Floats) -> Floats:
        found = [measure.of_counts(*one) for one in zip(columns, np.split(counts, ends, axis=1), strict=True)]
        return found[0] - found[1] if minus is not None else found[0]

    patients = np.concatenate([part.patient.to_numpy(dtype=object) for part in parts])
    return Estimator(patients, settings).aggregate(statistic, np.ones(len(patients), bool))
