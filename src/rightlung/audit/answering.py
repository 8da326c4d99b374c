"""Answering and declining: phrases with no, one or several targets, and what it is worth to decline.

A model declines a phrase if its abstention is at least one half. Over all phrases, a declined one with a target scores
0; "if answered", it does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rightlung.audit.batteries import DECLINES
from rightlung.core.files import plain
from rightlung.measuring.regions import LEAST
from rightlung.pages.content import Cell, Column, Figure, Section, Table
from rightlung.pages.curves import Curve, curve_figure
from rightlung.pages.numbers import estimate_cell, percent, span
from rightlung.results.estimate import BootstrapSettings, Estimate
from rightlung.results.estimator import Flags, Floats
from rightlung.results.measured import Measured
from rightlung.scoring.selective import RiskCoverage
from rightlung.scoring.statistics import bootstrap_columns

KINDS = {"none": "no target", "one": "one target", "several": "several targets", "all": "all"}
_TITLES = {
    "declined": "declined",
    "pointing": "pointing",
    "pointing_answered": "pointing, if answered",
    "average_precision": "average precision",
    "average_precision_answered": "average precision, if answered",
    "region_f1": "region F1",
    "region_f1_answered": "region F1, if answered",
}
_CONFIDENCES = {"abstention": -1.0, "similarity_local": 1.0, "similarity_global": 1.0, "grid_entropy": -1.0}
"""Columns by which answers can be ranked, and whether more is more confident."""
_WHO = {"model": "model", "prior": "image-blind prior"}
RESAMPLES, COVERAGES = 1000, tuple(n / 10 for n in range(1, 11))


@dataclass(frozen=True)
class Answering:
    """Measures by kind of phrase and model, and areas under the risk–coverage curves by model and confidence."""

    measures: Mapping[str, Mapping[str, Mapping[str, Estimate]]]
    areas: Mapping[str, Estimate]
    curves: Mapping[str, Curve]
    difference: Estimate | None
    """AURC of the model's first confidence minus that of the prior."""

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        found: dict[str, Any] = plain({"measures": self.measures, "aurc": self.areas})
        return found | ({} if self.difference is None else {"aurc_difference": self.difference.as_json()})

    def sentences(self) -> Iterator[str]:
        """Yield what the model does with phrases without a target, and what declining is worth."""
        if "none" in self.measures:
            each = ", ".join(f"{_WHO[who]} {percent(one['declined'])}" for who, one in self.measures["none"].items())
            yield f"No-target accuracy (declined phrases without a target): {each}."
        if self.areas:
            listed = "; ".join(f"{name} {span(one)}" for name, one in self.areas.items())
            more = "" if self.difference is None else f"; model − prior {span(self.difference, signed=True)}"
            yield f"Area under the risk–coverage curve (lower is better): {listed}{more}."


def answering(measured: Measured, settings: BootstrapSettings) -> Answering | None:
    """Return the numbers; None if all phrases have one target and the model never abstains."""
    boxes, there = measured.fact("target_boxes"), measured.has(measured.targets[0])
    without = ~there & (boxes == 0) & (measured.fact("polarity").astype(str) == "negative")
    number = np.select([without, there & (boxes > 1), there], ["none", "several", "one"], "unknown")
    abstention = _value(measured, "model", "abstention")
    asked = ~np.isnan(abstention) & measured.asked("model")
    kinds = {kind: asked & (number == kind) for kind in ("none", "one", "several")}
    kinds["all"] = np.logical_or.reduce([*kinds.values()])
    if not (kinds["none"].any() or kinds["several"].any() or (abstention[kinds["all"]] > 0).any()):
        return None
    used = kinds["all"] & ((number == "none") | ~np.isnan(_value(measured, "model", "pointing")))
    measures: dict[str, dict[str, dict[str, Estimate]]] = {}
    areas, curves = {}, {}
    first: dict[str, RiskCoverage] = {}
    estimator = measured.estimator(replace(settings, resamples=min(RESAMPLES, settings.resamples)))
    for who in (one.slug for one in measured.models):
        for kind, flags in kinds.items():
            if flags.any():
                measures.setdefault(kind, {})[who] = _measures(measured, who, flags, settings)
        loss = np.where(number == "none", 1.0, 1.0 - _value(measured, who, "pointing"))
        for name, sign in _CONFIDENCES.items():
            confidence = sign * _value(measured, who, name)[used]
            if len(np.unique(confidence)) > 1 and not np.isnan(confidence + loss[used]).any():
                label, answers = f"{_WHO[who]}, by {name.replace('_', ' ')}", RiskCoverage(confidence, loss[used])
                areas[label] = estimator.aggregate(answers.area, used, method="percentile")
                if first.setdefault(who, answers) is answers:
                    risks = (partial(answers.risk, coverage=coverage) for coverage in COVERAGES)
                    found = [estimator.aggregate(risk, used, method="percentile") for risk in risks]
                    curves[label] = [*zip(COVERAGES, found, strict=True)]
    difference = None
    if len(first) == 2:
        one, two = first.values()
        difference = estimator.aggregate(lambda c: one.area(c) - two.area(c), used, method="percentile")
    return Answering(measures, areas, curves, difference)


def _value(measured: Measured, who: str, name: str) -> Floats:
    return measured.value(who, name, measured.targets[0])


def _measures(measured: Measured, who: str, flags: Flags, settings: BootstrapSettings) -> dict[str, Estimate]:
    """Return the measures of some phrases; F1 of regions is a mean of 2 hits / (called + true) with these weights."""
    value = partial(_value, measured, who)
    declined, estimator = value("abstention") >= DECLINES, measured.estimator(settings)
    columns = {"declined": declined.astype(np.float64)}
    for name in ("pointing", "average_precision"):
        columns[name] = value(name) * ~declined
        columns[f"{name}_answered"] = np.where(declined, np.nan, value(name))
    found = dict(zip(columns, estimator.means([np.where(flags, one, np.nan) for one in columns.values()]), strict=True))
    hit, called = value("regions_hit") * ~declined, value("regions_called") * ~declined
    regions = called + measured.fact("target_boxes")
    for name, some in (("region_f1", flags), ("region_f1_answered", flags & ~declined)):
        used = some & (regions > 0)
        ratio = 2 * hit[used] / regions[used]
        options = {"clusters": estimator.clusters[used], "weights": regions[used], **settings.as_options()}
        found[name] = Estimate.of(bootstrap_columns(ratio[:, None], **options)[0])
    return found


def answering_sections(found: Answering | None) -> list[Section]:
    """Return the section of the page."""
    if found is None:
        return []
    rows = [
        [Cell(KINDS[kind]), Cell(_WHO[who]), Cell(f"{some['declined'].n:,}"), Cell(f"{some['declined'].patients:,}")]
        + [estimate_cell(some[name]) for name in _TITLES]
        for kind, by in found.measures.items()
        for who, some in by.items()
    ]
    columns = [
        Column("target", "text"),
        Column("who", "text"),
        *map(Column, ("phrases", "patients", *_TITLES.values())),
    ]
    caption = (
        "A phrase without a target negates all its findings: declining it is right. A declined phrase with a target "
        f"scores 0, except if answered. Region F1: boxes that hit a target with an IoU of at least {LEAST:g}."
    )
    table = Table("answering", "Phrases with no, one or several targets", caption, columns, rows)
    if not found.areas:
        return [_section(found, [table])]
    caption = "Risk: share of the given answers that point outside the target, or answer a phrase without one."
    figure = curve_figure("risk-coverage", "Risk and coverage", caption, ("coverage", "risk"), found.curves)
    listed = [[Cell(name), estimate_cell(one, digits=3)] for name, one in found.areas.items()]
    titles = [Column("confidence", "text"), Column("AURC")]
    areas = Table("aurc", "Area under the risk–coverage curve", "Lower is better.", titles, listed)
    return [_section(found, [table, figure, areas])]


def _section(found: Answering, parts: Sequence[Table | Figure]) -> Section:
    return Section("answering", "Answering and declining", items=[*found.sentences()], parts=parts, folded=True)
