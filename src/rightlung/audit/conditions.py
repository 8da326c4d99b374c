"""What changes when the question is changed: the same questions under a condition and as they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.audit.estimates import EXTRAS, HEADLINE, MOVED, Instances, Sureness, beside, difference, interval


def _pairs(instances: Instances, condition: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of a condition and, in the same order, those of the same questions as they stand."""
    keys = list(zip(instances.texts["study"].tolist(), instances.texts["query"].tolist(), strict=True))
    plain = {keys[index]: index for index in np.flatnonzero(instances.at("none")).tolist()}
    changed = [index for index in np.flatnonzero(instances.at(condition)).tolist() if keys[index] in plain]
    return np.array(changed, dtype=np.intp), np.array([plain[keys[index]] for index in changed], dtype=np.intp)


def condition_changes(instances: Instances, condition: str, sure: Sureness) -> dict[str, Any]:
    """Return what a condition changes, question by question, and how far what is left exceeds the prior."""
    changed, plain = _pairs(instances, condition)
    result: dict[str, Any] = {"questions": len(changed), "change": {}, "beside_prior": {}, "values": {}, "moved": {}}
    if not len(changed):
        return result
    patients = instances.patients[changed]
    for name in (*HEADLINE, "peak_on_side", *EXTRAS):
        after, before = instances.numbers[name][changed], instances.numbers[name][plain]
        if not (np.isnan(after) | np.isnan(before)).all():
            result["change"][name] = difference(after, before, patients, sure)
            result["values"][name] = {
                "before": interval(before[~np.isnan(after)], patients[~np.isnan(after)], sure),
                "after": interval(after, patients, sure),
            }
    for name in MOVED:
        distances = instances.numbers[name][changed]
        if not np.isnan(distances).all():
            result["moved"][name] = interval(distances, patients, sure)
    rows = np.zeros(len(instances), dtype=bool)
    rows[changed] = True
    rows &= instances.with_target
    if rows.any():
        result["beside_prior"] = {name: beside(instances, rows, name, sure) for name in HEADLINE}
    if condition == "swap-sides":
        result["follows_words"] = _follows(instances, changed, sure)
    return result


def _follows(instances: Instances, changed: NDArray[np.intp], sure: Sureness) -> dict[str, Any] | None:
    """How often the peak lies on the side that is now named: for phrases that named the true side before."""
    named, side = instances.texts["side_named"][changed], instances.texts["target_side"][changed]
    rows = changed[instances.one_sided[changed] & np.asarray(named == side, dtype=bool)]
    if not len(rows):
        return None
    return interval(1 - instances.numbers["peak_on_side"][rows], instances.patients[rows], sure)
