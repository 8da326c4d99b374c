"""The numbers of one part of a task: of the model, of the image-blind baselines, under conditions, and by finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rightlung.audit.blind import baselines_of
from rightlung.audit.gates import Gates
from rightlung.audit.report_rows import ReportGate
from rightlung.audit.tasks import CARDIOMEGALY, TaskPart
from rightlung.measuring import Protocol
from rightlung.measuring.run import NO_ANSWER
from rightlung.pages.content import Gallery
from rightlung.results.aggregates import estimate
from rightlung.results.conditions import compare_conditions
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate

PLAIN = "none"


@dataclass(frozen=True)
class Compared:
    """The measures of a baseline or under a condition, and the differences of the main ones.

    For a baseline, the difference is the model minus the baseline; for a condition, the condition minus the original.
    """

    measures: Mapping[str, Estimate]
    difference: Mapping[str, Comparison]

    def as_json(self) -> dict[str, Any]:
        """Return the estimates as plain values."""
        return {"measures": estimates_json(self.measures), "difference": estimates_json(self.difference)}


@dataclass(frozen=True)
class PartResult:
    """What was measured of one part of a task."""

    part: TaskPart
    protocol: Protocol
    table: pa.Table = field(repr=False)
    classes: Sequence[str]
    boxes: Mapping[str, Any]
    """How predicted boxes were post-processed, and what that was tuned on."""
    measures: Mapping[str, Estimate]
    blind: Mapping[str, Compared]
    conditions: Mapping[str, Compared]
    by_class: Mapping[str, Mapping[str, Estimate]]
    """Of each finding: the measure of the model (``model``) and of each baseline."""
    without_cardiomegaly: Mapping[str, Estimate]
    """mAP of the model and of each baseline over the other findings, if there are others."""
    notes: Sequence[str]
    """Why values are undefined."""
    unknown: Sequence[str] = ()
    """Findings of the source that the model does not know, which are not measured."""
    pool: Mapping[str, Any] = field(default_factory=dict)
    """The reports that retrieval chose from, if they are not those of the audited studies."""
    galleries: Sequence[Gallery] = ()
    """Cases with pictures, for the page."""
    uses: Gates | None = None
    """The verdicts about findings, if gates were asked (`rightlung.audit.finding_gates`)."""
    gates: Sequence[ReportGate] = ()
    """What reports depend on, if that was asked (`report_gates`)."""
    clusters: str = "patients"
    """What the bootstrap resamples."""

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as plain values; the main measures also without intervals."""
        found = {
            "title": self.part.title,
            **{name: self.measures[name].value for name in self.part.main},
            "measures": estimates_json(self.measures),
            "blind": {name: one.as_json() for name, one in self.blind.items()},
            "conditions": {name: one.as_json() for name, one in self.conditions.items()},
            "classes": [*self.classes],
            "unknown": [*self.unknown],
            "protocol": self.protocol.as_json(),
            "notes": [*self.notes],
        }
        if self.by_class:
            found["by_class"] = {name: estimates_json(one) for name, one in self.by_class.items()}
        if self.without_cardiomegaly:
            found["without_cardiomegaly"] = {"map": self.without_cardiomegaly["model"].value} | {
                "measures": estimates_json(self.without_cardiomegaly)
            }
        found |= {"pool": dict(self.pool)} if self.pool else {}
        found |= {"gates": [one.as_json() for one in self.gates]} if self.gates else {}
        found |= {} if self.uses is None else {"gates": self.uses.as_json()}
        return found | ({"boxes": dict(self.boxes)} if self.boxes else {})


def estimates_json(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return estimates as plain values; their ``n`` counts instances."""
    found = {}
    for name, one in estimates.items():
        values = one.as_json()
        found[name] = {"instances" if key == "phrases" else key: value for key, value in values.items()}
    return found


def part_result(
    part: TaskPart,
    protocol: Protocol,
    table: pa.Table,
    classes: Sequence[str],
    boxes: Mapping[str, Any],
    settings: BootstrapSettings,
) -> PartResult:
    """Compute the numbers of a part from its instances, which hold the baselines as conditions."""
    conditions = dict.fromkeys(table["condition"].to_pylist())
    baselines = [name for name in baselines_of(part) if name in conditions]

    def measures(condition: str) -> dict[str, Estimate]:
        return {name: estimate(table, name, condition, settings=settings) for name in protocol.measures}

    def differences(first: str, second: str) -> dict[str, Comparison]:
        return {name: compare_conditions(table, name, first, second, settings) for name in part.main}

    blind = {one: Compared(measures(one), differences(PLAIN, one)) for one in baselines}
    changed = {
        one: Compared(measures(one), differences(one, PLAIN)) for one in conditions if one not in (PLAIN, *baselines)
    }
    by_class = {}
    for finding in classes if part.by_class else ():
        rows = table.filter(pc.equal(table["target"], finding))
        by_class[finding] = _of_all(part.by_class or "", rows, baselines, settings)
    others: dict[str, Estimate] = {}
    if part.method == "detect" and CARDIOMEGALY in classes and len(classes) > 1:
        others = _of_all("map", table.filter(pc.not_equal(table["target"], CARDIOMEGALY)), baselines, settings)
    reasons = dict.fromkeys(reason for reason in table["reason"].to_pylist() if reason)
    notes = [reason for reason in reasons if not reason.startswith(NO_ANSWER)]
    return PartResult(part, protocol, table, classes, boxes, measures(PLAIN), blind, changed, by_class, others, notes)


def _of_all(name: str, rows: pa.Table, baselines: Sequence[str], settings: BootstrapSettings) -> dict[str, Estimate]:
    """Return a measure of the model and of each baseline, from some of the rows."""
    conditions = {"model": PLAIN} | {one: one for one in baselines}
    return {title: estimate(rows, name, one, settings=settings) for title, one in conditions.items()}
