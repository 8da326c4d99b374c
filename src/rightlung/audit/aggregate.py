"""From rows to numbers: means with patient-clustered intervals, beside the prior, by group and by condition.

Everything is worked out from ``instances.parquet`` alone, so that any other subset can be, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from rightlung.audit.conditions import condition_changes
from rightlung.audit.estimates import HEADLINE, Flags, Instances, Sureness, beside, interval, of_interval
from rightlung.core import InputError
from rightlung.lexicon import region
from rightlung.scoring import recognition
from rightlung.scoring.localisation import METRICS
from rightlung.scoring.statistics import holm

__all__ = ["FEW_PATIENTS", "GROUPINGS", "HEADLINE", "Instances", "Sureness", "aggregate"]

FEW_PATIENTS = 5
"""Groups of fewer patients are marked: their intervals mean little."""

GROUPINGS = ("finding", "size", "side", "side_named", "region", "polarity", "kind")


def aggregate(instances: Instances, sure: Sureness | None = None) -> dict[str, Any]:
    """Return every number of an audit as plain values."""
    sure = sure or Sureness()
    if not len(instances):
        raise InputError("there is nothing to aggregate: no row asks a phrase of the source")
    plain = instances.at("none") & instances.with_target
    return {
        "overall": {name: beside(instances, plain, name, sure) for name in METRICS} if plain.any() else {},
        "sides": _sides(instances, sure),
        "groups": {name: _grouped(instances, name, sure) for name in GROUPINGS},
        "conditions": {
            name: condition_changes(instances, name, sure) for name in instances.conditions if name != "none"
        },
        "abstention": _abstention(instances, sure),
    }


# --- left and right ---------------------------------------------------------------------------------------------------


def _sides(instances: Instances, sure: Sureness) -> dict[str, Any]:
    """How often the peak is on the finding's side: where the words say it, and where only the image can.

    Phrases that name no side, but whose words give it away, or that are about a device, belong to neither and are
    counted (see `sidedness`).
    """
    plain = instances.at("none") & instances.one_sided
    named = instances.texts["side_named"]
    told = plain & np.asarray(named == instances.texts["target_side"], dtype=bool)
    found: dict[str, Any] = {
        name: beside(instances, rows, "peak_on_side", sure) if rows.any() else None
        for name, rows in (("named", told), ("from_image", plain & _told_by(instances, "image")))
    }
    return found | {"left_out": {name: int((plain & _told_by(instances, name)).sum()) for name in ("device", "words")}}


def _told_by(instances: Instances, what: str) -> Flags:
    return np.asarray(instances.texts["side_told"] == what, dtype=bool)


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
            "abstention": interval(instances.numbers["abstention"][chosen], instances.patients[chosen], sure),
        }
        scored = chosen & with_target
        group["metrics"] = {m: beside(instances, scored, m, sure) for m in HEADLINE} if scored.any() else {}
        result.append(group)
    _adjust(result, sure.level)
    return result


def _adjust(groups: Iterable[dict[str, Any]], level: float) -> None:
    """Adjust the tests of one table for being many (Holm): a difference is shown only if it survives that, too.

    Groups of few patients are no tests: nothing is said to be shown of them, and they cost the others nothing.
    """
    for metric in HEADLINE:
        given = [(group, group["metrics"][metric]["difference"]) for group in groups if group["metrics"]]
        for group, difference in given:
            if group["few"] and difference is not None:
                difference["shown"] = False
        found = [difference for group, difference in given if difference is not None and not group["few"]]
        for difference, p in zip(found, holm([one["p"] for one in found]) if found else (), strict=True):
            difference["p_adjusted"] = float(p)
            difference["shown"] = bool(difference["shown"] and p < 1 - level)


# --- abstention -------------------------------------------------------------------------------------------------------


def _abstention(instances: Instances, sure: Sureness) -> dict[str, Any]:
    """Whether the model declines to point where there is nothing: negated phrases against asserted ones.

    Uncertain phrases count as asserted, as everywhere.
    """
    plain = instances.at("none") & ~np.isnan(instances.numbers["abstention"])
    polarity = instances.texts["polarity"]
    negated = plain & np.asarray(polarity == "negative", dtype=bool)
    asserted = plain & np.isin(polarity.astype(str), ("positive", "uncertain"))
    values = instances.numbers["abstention"]
    result: dict[str, Any] = {
        name: interval(values[rows], instances.patients[rows], sure) if rows.any() else None
        for name, rows in (("negated", negated), ("asserted", asserted))
    }
    result["given"] = bool(instances.abstention_given[plain].any())
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
        result["auroc"] = of_interval(found)
    return result
