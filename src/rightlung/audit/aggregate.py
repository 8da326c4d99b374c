"""From rows to numbers: means with patient-clustered intervals, beside the prior, by group and by condition.

Everything is worked out from ``instances.parquet`` alone, so that any other subset can be, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.lexicon import region
from rightlung.scoring import recognition
from rightlung.scoring.localisation import METRICS
from rightlung.scoring.statistics import Difference, Interval, bootstrap, holm, paired_difference

HEADLINE = ("average_precision", "pointing", "auroc")
"""The measures shown for every group. AUROC comes last because it flatters."""

FEW_PATIENTS = 5
"""Groups of fewer patients are marked: their intervals mean little."""

GROUPINGS = ("finding", "size", "side", "side_named", "region", "polarity", "kind")

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EXTRAS = ("abstention", "similarity_global", "similarity_local")
_TEXTS = (
    "study", "query", "condition", "patient", "polarity", "side_named", "target_kind", "target_side", "target_size",
)  # fmt: skip
_NUMBERS = (
    *METRICS, "peak_on_side", *(f"prior_{name}" for name in METRICS), "prior_peak_on_side", *_EXTRAS,
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

    @classmethod
    def read(cls, path: Path) -> Instances:
        """Read the columns that aggregates are made of, in an order that does not depend on the file's."""
        lists = ("findings", "regions")
        table = pq.read_table(path, columns=[*_TEXTS, *_NUMBERS, *lists])
        table = table.sort_by([(name, "ascending") for name in ("study", "query", "condition")])
        return cls(
            {name: np.array(table.column(name).to_pylist(), dtype=object) for name in _TEXTS},
            {name: table.column(name).to_numpy().astype(np.float64) for name in _NUMBERS},
            {name: table.column(name).to_pylist() for name in lists},
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


def aggregate(instances: Instances, sure: Sureness | None = None) -> dict[str, Any]:
    """Return every number of an audit as plain values."""
    sure = sure or Sureness()
    if not len(instances):
        raise InputError("there is nothing to aggregate: no row asks a phrase of the source")
    plain = instances.at("none") & instances.with_target
    return {
        "overall": {name: _beside(instances, plain, name, sure) for name in METRICS} if plain.any() else {},
        "sides": _sides(instances, sure),
        "groups": {name: _grouped(instances, name, sure) for name in GROUPINGS},
        "conditions": {name: _condition(instances, name, sure) for name in instances.conditions if name != "none"},
        "abstention": _abstention(instances, sure),
    }


# --- one number -------------------------------------------------------------------------------------------------------


def _beside(instances: Instances, rows: Flags, metric: str, sure: Sureness) -> dict[str, Any]:
    """Return the model's mean, the prior's, and the paired difference, over the rows where both are defined."""
    model, prior = instances.numbers[metric][rows], instances.numbers[f"prior_{metric}"][rows]
    patients = instances.patients[rows]
    if np.isnan(prior).all():  # no prior was fitted
        return {"model": _interval(model, patients, sure), "prior": None, "difference": None}
    both = ~(np.isnan(model) | np.isnan(prior))
    return {
        "model": _interval(model, patients, sure),
        "prior": _interval(prior[both], patients[both], sure),
        "difference": _difference(model, prior, patients, sure),
    }


def _interval(values: Floats, patients: NDArray[Any], sure: Sureness) -> dict[str, Any]:
    return _of_interval(bootstrap(values, clusters=patients.tolist(), **asdict(sure)))


def _difference(first: Floats, second: Floats, patients: NDArray[Any], sure: Sureness) -> dict[str, Any]:
    found = paired_difference(first, second, clusters=patients.tolist(), **asdict(sure))
    return _of_interval(found)


def _of_interval(found: Interval) -> dict[str, Any]:
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


# --- left and right ---------------------------------------------------------------------------------------------------


def _sides(instances: Instances, sure: Sureness) -> dict[str, Any]:
    """How often the peak is on the finding's side: where the words say it, and where only the image can."""
    plain = instances.at("none") & instances.one_sided
    named = instances.texts["side_named"]
    told = plain & np.asarray(named == instances.texts["target_side"], dtype=bool)
    untold = plain & np.asarray(named == "none", dtype=bool)
    return {
        "named": _beside(instances, told, "peak_on_side", sure) if told.any() else None,
        "from_image": _beside(instances, untold, "peak_on_side", sure) if untold.any() else None,
    }


# --- groups -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _region_name(name: str) -> str:
    try:
        return region(name).name
    except InputError:
        return name


def _members(instances: Instances, grouping: str) -> list[Sequence[str]]:
    """Return the groups that each row belongs to; with findings and regions there may be several."""
    if grouping == "finding":
        return [tuple(names) for names in instances.lists["findings"]]
    if grouping == "region":
        return [tuple(dict.fromkeys(map(_region_name, names))) for names in instances.lists["regions"]]
    column = {"size": "target_size", "side": "target_side", "kind": "target_kind"}.get(grouping, grouping)
    return [() if value is None else (value,) for value in instances.texts[column]]


_ORDERS = {
    "size": ("small", "medium", "large"),
    "side": ("left", "right", "both", "midline"),
    "side_named": ("left", "right", "both", "none"),
    "polarity": ("positive", "uncertain", "negative", "none"),
}


def _grouped(instances: Instances, grouping: str, sure: Sureness) -> list[dict[str, Any]]:
    members = _members(instances, grouping)
    plain, with_target = instances.at("none"), instances.with_target
    rows_of: dict[str, list[int]] = {}
    for index in np.flatnonzero(plain if grouping == "polarity" else plain & with_target).tolist():
        for name in members[index]:
            rows_of.setdefault(name, []).append(index)
    order = _ORDERS.get(grouping, ())
    names = sorted(rows_of, key=lambda name: (order.index(name) if name in order else 0, -len(rows_of[name]), name))
    result = []
    for name in names:
        chosen = np.zeros(len(instances), dtype=bool)
        chosen[rows_of[name]] = True
        patients = len(set(instances.patients[chosen].tolist()))
        group: dict[str, Any] = {
            "name": name,
            "phrases": int(chosen.sum()),
            "patients": patients,
            "few": patients < FEW_PATIENTS,
            "abstention": _interval(instances.numbers["abstention"][chosen], instances.patients[chosen], sure),
        }
        scored = chosen & with_target
        group["metrics"] = {m: _beside(instances, scored, m, sure) for m in HEADLINE} if scored.any() else {}
        result.append(group)
    _adjust(result, sure.level)
    return result


def _adjust(groups: Iterable[dict[str, Any]], level: float) -> None:
    """Adjust the tests of one table for being many (Holm): a difference is shown only if it survives that, too."""
    for metric in HEADLINE:
        found = [group["metrics"][metric]["difference"] for group in groups if group["metrics"]]
        found = [difference for difference in found if difference is not None]
        for difference, p in zip(found, holm([one["p"] for one in found]) if found else (), strict=True):
            difference["p_adjusted"] = float(p)
            difference["shown"] = bool(difference["shown"] and p < 1 - level)


# --- conditions -------------------------------------------------------------------------------------------------------


def _pairs(instances: Instances, condition: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of a condition and, in the same order, those of the same questions as they stand."""
    keys = list(zip(instances.texts["study"].tolist(), instances.texts["query"].tolist(), strict=True))
    plain = {keys[index]: index for index in np.flatnonzero(instances.at("none")).tolist()}
    changed = [index for index in np.flatnonzero(instances.at(condition)).tolist() if keys[index] in plain]
    return np.array(changed, dtype=np.intp), np.array([plain[keys[index]] for index in changed], dtype=np.intp)


def _condition(instances: Instances, condition: str, sure: Sureness) -> dict[str, Any]:
    """Return what a condition changes, question by question, and how far what is left exceeds the prior."""
    changed, plain = _pairs(instances, condition)
    result: dict[str, Any] = {"questions": len(changed), "change": {}, "beside_prior": {}, "values": {}}
    if not len(changed):
        return result
    patients = instances.patients[changed]
    for name in (*HEADLINE, "peak_on_side", *_EXTRAS):
        after, before = instances.numbers[name][changed], instances.numbers[name][plain]
        if not (np.isnan(after) | np.isnan(before)).all():
            result["change"][name] = _difference(after, before, patients, sure)
            result["values"][name] = {
                "before": _interval(before[~np.isnan(after)], patients[~np.isnan(after)], sure),
                "after": _interval(after, patients, sure),
            }
    rows = np.zeros(len(instances), dtype=bool)
    rows[changed] = True
    rows &= instances.with_target
    if rows.any():
        result["beside_prior"] = {name: _beside(instances, rows, name, sure) for name in HEADLINE}
    if condition == "swap-sides":
        result["follows_words"] = _follows(instances, changed, sure)
    return result


def _follows(instances: Instances, changed: NDArray[np.intp], sure: Sureness) -> dict[str, Any] | None:
    """How often the peak lies on the side that is now named: for phrases that named the true side before."""
    named, side = instances.texts["side_named"][changed], instances.texts["target_side"][changed]
    rows = changed[instances.one_sided[changed] & np.asarray(named == side, dtype=bool)]
    if not len(rows):
        return None
    return _interval(1 - instances.numbers["peak_on_side"][rows], instances.patients[rows], sure)


# --- abstention -------------------------------------------------------------------------------------------------------


def _abstention(instances: Instances, sure: Sureness) -> dict[str, Any]:
    """Whether the model declines to point where there is nothing: negated phrases against asserted ones."""
    plain = instances.at("none") & ~np.isnan(instances.numbers["abstention"])
    polarity = instances.texts["polarity"]
    negated = plain & np.asarray(polarity == "negative", dtype=bool)
    asserted = plain & np.asarray(polarity == "positive", dtype=bool)
    values = instances.numbers["abstention"]
    result: dict[str, Any] = {
        name: _interval(values[rows], instances.patients[rows], sure) if rows.any() else None
        for name, rows in (("negated", negated), ("asserted", asserted))
    }
    result["ever"] = bool((values[plain] > 0).any())
    result["auroc"] = None
    if negated.any() and asserted.any() and result["ever"]:
        rows = negated | asserted
        found = recognition.interval(
            values[rows],
            negated[rows].astype(np.float64),
            "auroc",
            clusters=instances.patients[rows].tolist(),
            **asdict(sure),
        )
        result["auroc"] = _of_interval(found)
    return result
