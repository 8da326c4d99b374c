"""What the protocol of an audit holds besides the scoring: the conditions asked, and the settings of its analyses.

The values are read from the constants themselves, so that the hash changes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rightlung.audit import batteries, coordinates, gates, report_gates, report_text_gates, strata
from rightlung.measuring import curves


def asked_of(
    conditions: Iterable[str], level: float, names: Sequence[str] = (), *, maps: bool = False
) -> dict[str, Any]:
    """Return the protocol's ``conditions`` and ``analysis``, of heatmaps with their batteries or of a task.

    ``level`` is that of the intervals.
    """
    asked = sorted({*conditions})
    found: list[str] = []
    if gates.have_gates(asked):
        found += _named("gates", gates.limits(level))
    if not maps and report_gates.have_report_gates(asked):
        found += _named("report gates", _of_report_gates(level))
    if names:
        found += _named("batteries", _of_batteries(names))
    if maps:
        found += [*_named("strata", _of_strata()), *_named("coordinates", _of_coordinates())]
    return {"conditions": tuple(asked), "analysis": tuple(found)}


def _named(group: str, values: Mapping[str, Any]) -> list[str]:
    return [
        f"{group}: {name.replace('_', ' ')} = {' '.join(map(str, one)) if isinstance(one, tuple) else one}"
        for name, one in values.items()
    ]


def _of_report_gates(level: float) -> dict[str, Any]:
    return {
        **gates.limits(level), "sides_and_attention": report_gates.HALF, "traced_studies": report_gates.TRACED,
        "frequent": report_text_gates.FREQUENT, "rare": report_text_gates.RARE,
    }  # fmt: skip


def _of_batteries(names: Sequence[str]) -> dict[str, Any]:
    limits = {
        "yardstick": batteries.YARDSTICK, "share_of_yardstick": batteries.SHARE, "least_change": batteries.LEAST,
        "loss": batteries.LOSS, "declines": batteries.DECLINES, "most": batteries.MOST,
    }  # fmt: skip
    chosen = [batteries.BATTERIES[name] for name in sorted(names)]
    trials = [("map", one.trials) for one in chosen]
    trials += [(kind, some) for one in chosen for kind, some in one.text_trials.items()]
    return limits | {f"{kind} under {name}": expected for kind, some in trials for name, expected in some.items()}


def _of_strata() -> dict[str, Any]:
    return {
        "answers": strata.MOST, "measures": strata.MEASURES, "resamples": strata.RESAMPLES,
        "fixed_threshold": strata.FIXED, "thresholds": curves.THRESHOLDS, "recalls": curves.RECALLS,
        "tolerances": curves.TOLERANCES, "hit": curves.HIT, "folds": strata.FOLDS, "score_bins": strata.BINS,
        "fewest_boxes": strata.LEAST_BOXES,
    }  # fmt: skip


def _of_coordinates() -> dict[str, Any]:
    return {
        "answers": coordinates.MOST, "cells": coordinates.SIDE, "least_gain": coordinates.LEAST_GAIN,
        "fewest_patients": coordinates.LEAST_PATIENTS, "level": coordinates.LEVEL,
    }  # fmt: skip
