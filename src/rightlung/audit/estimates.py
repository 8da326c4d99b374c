"""The rows of an audit as arrays, and one number of them with its interval, alone or beside the prior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.scoring.localisation import METRICS
from rightlung.scoring.statistics import Difference, Interval, bootstrap, paired_difference

HEADLINE = ("average_precision", "pointing", "auroc")
"""The measures shown for every group. AUROC comes last because it flatters."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

EXTRAS = ("abstention", "similarity_global", "similarity_local")
MOVED = ("moved_mass", "moved_peak")
"""How far an answer moves when the question is changed; see `movement`."""

_TEXTS = (
    "study", "query", "condition", "patient", "polarity", "side_named", "side_told", "target_kind", "target_side",
    "target_size",
)  # fmt: skip
_NUMBERS = (
    *METRICS, "peak_on_side", *(f"prior_{name}" for name in METRICS), "prior_peak_on_side", *EXTRAS, *MOVED,
)  # fmt: skip


@dataclass(frozen=True)
class Sureness:
    """How intervals are made."""

    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Instances:
    """Columns of ``instances.parquet`` as arrays, one entry a row."""

    texts: Mapping[str, NDArray[Any]]
    numbers: Mapping[str, Floats]
    lists: Mapping[str, list[list[str]]]
    abstention_given: Flags
    """Where the file itself says how much the model abstains; elsewhere zero is only assumed."""

    @classmethod
    def read(cls, path: Path) -> Instances:
        """Read the columns that aggregates are made of, in an order that does not depend on the file's."""
        lists = ("findings", "regions")
        table = pq.read_table(path, columns=[*_TEXTS, *_NUMBERS, *lists, "abstention_given"])
        table = table.sort_by([(name, "ascending") for name in ("study", "query", "condition")])
        return cls(
            {name: np.array(table.column(name).to_pylist(), dtype=object) for name in _TEXTS},
            {name: table.column(name).to_numpy().astype(np.float64) for name in _NUMBERS},
            {name: table.column(name).to_pylist() for name in lists},
            np.array(table.column("abstention_given").to_pylist(), dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.texts["study"])

    @property
    def patients(self) -> NDArray[Any]:
        """The patient of each row."""
        return self.texts["patient"]

    def at(self, condition: str) -> Flags:
        """Return which rows were asked under a condition."""
        return np.asarray(self.texts["condition"] == condition, dtype=bool)

    @property
    def conditions(self) -> list[str]:
        """All conditions, ``none`` first."""
        return sorted(set(self.texts["condition"].tolist()), key=lambda name: (name != "none", name))

    @property
    def with_target(self) -> Flags:
        """Which rows ask a phrase with a known target."""
        return np.array([kind is not None for kind in self.texts["target_kind"]], dtype=bool)

    @property
    def one_sided(self) -> Flags:
        """Which targets lie on one side."""
        return np.isin(self.texts["target_side"].astype(str), ("left", "right"))


def beside(instances: Instances, rows: Flags, metric: str, sure: Sureness) -> dict[str, Any]:
    """Return the model's mean, the prior's, and the paired difference, over the rows where both are defined."""
    model, prior = instances.numbers[metric][rows], instances.numbers[f"prior_{metric}"][rows]
    patients = instances.patients[rows]
    if np.isnan(prior).all():  # no prior was fitted
        return {"model": interval(model, patients, sure), "prior": None, "difference": None}
    both = ~(np.isnan(model) | np.isnan(prior))
    return {
        "model": interval(model, patients, sure),
        "prior": interval(prior[both], patients[both], sure),
        "difference": difference(model, prior, patients, sure),
    }


def interval(values: Floats, patients: NDArray[Any], sure: Sureness) -> dict[str, Any]:
    """Return the mean with its interval."""
    return of_interval(bootstrap(values, clusters=patients.tolist(), **asdict(sure)))


def difference(first: Floats, second: Floats, patients: NDArray[Any], sure: Sureness) -> dict[str, Any]:
    """Return the mean paired difference with its interval and whether one is shown."""
    found = paired_difference(first, second, clusters=patients.tolist(), **asdict(sure))
    return of_interval(found)


def of_interval(found: Interval) -> dict[str, Any]:
    """Return an interval as plain values."""
    value: dict[str, Any] = {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "phrases": found.n,
        "patients": found.clusters or 0,
    }
    if found.reason:
        value["reason"] = found.reason
    if isinstance(found, Difference):
        value |= {"p": found.p, "shown": bool(found.shown)}
    return value
