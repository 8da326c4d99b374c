"""Compare models on the instances that all of them have: paired differences, by finding, with Holm's correction.

A measure that is not a mean (AUROC, mAP, BLEU) is computed by its aggregate, from the statistics of all instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from rightlung.measuring import Measure, Protocol, find_measure
from rightlung.probes.rules import MOVED_RULES
from rightlung.results.aligned import Aligned
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator, Flags, Floats
from rightlung.results.groups import FEW_PATIENTS
from rightlung.results.tables import ResultTable, check_alike

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
"""The group of all instances."""
FLIPS_PER_TEST = 40
"""Random swaps for each test of a family, so that a p-value can survive Holm's correction."""


@dataclass(frozen=True)
class Pair:
    """Two models by one measure, on all instances or those of one finding."""

    group: str
    first: str
    second: str
    values: tuple[Estimate, Estimate]
    difference: Comparison

    def as_json(self) -> dict[str, Any]:
        """Return the estimates as plain values; their ``n`` counts instances."""
        estimates = [
            {"instances" if key == "phrases" else key: value for key, value in one.as_json().items()}
            for one in (*self.values, self.difference)
        ]
        names = {"group": self.group, "first": self.first, "second": self.second}
        return names | {"values": estimates[:2], "difference": estimates[2]}


@dataclass(frozen=True)
class ComparedPart:
    """One part of the results, compared."""

    name: str
    target: str | None
    """The target rule, if the results have several."""
    protocol: Protocol
    models: tuple[str, ...]
    instances: int
    patients: int
    dropped: Mapping[str, int]
    """Instances of each model that not all others have."""
    pairs: Mapping[str, Sequence[Pair]]
    """By measure: each pair of models on all instances, then by finding."""
    notes: Sequence[str]
    settings: BootstrapSettings = field(default_factory=BootstrapSettings)

    @property
    def title(self) -> str:
        """The name for headings."""
        name = self.name or self.protocol.name
        return name if self.target is None else f"{name}, target {self.target}"

    def of(self, measure: str, group: str = ALL) -> list[Pair]:
        """Return the pairs of a group."""
        return [one for one in self.pairs.get(measure, ()) if one.group == group]

    def groups(self, measure: str) -> list[str]:
        """Return the findings that were compared."""
        return [*dict.fromkeys(one.group for one in self.pairs.get(measure, ()) if one.group != ALL)]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "title": self.title,
            "protocol": self.protocol.as_json(),
            "instances": self.instances,
            "patients": self.patients,
            "dropped": dict(self.dropped),
            "measures": {name: [one.as_json() for one in pairs] for name, pairs in self.pairs.items()},
            "notes": [*self.notes],
        }


def compare_tables(
    tables: Sequence[ResultTable],
    main: Sequence[str],
    settings: BootstrapSettings,
    condition: str = "none",
) -> list[ComparedPart]:
    """Compare the models of one part; by finding for the ``main`` measures, which come first.

    Results with several target rules give one comparison for each.
    """
    check_alike(tables)
    protocol = tables[0].protocol
    rules = [rule for rule in protocol.rules if rule not in MOVED_RULES] if len(protocol.rules) > 1 else [None]
    return [_compared(Aligned(tables, condition, rule), main, settings) for rule in rules]


def _compared(aligned: Aligned, main: Sequence[str], settings: BootstrapSettings) -> ComparedPart:
    """Compare all measures that have a direction."""
    pairs: dict[str, list[Pair]] = {}
    notes, undefined = aligned.dropped_notes(), dict[tuple[int, ...], list[str]]()
    directed = [name for name in aligned.protocol.measures if find_measure(name).better is not None]
    for name in [*(one for one in main if one in directed), *(one for one in directed if one not in main)]:
        measure = find_measure(name)
        if not aligned.has(measure):
            continue
        defined, own = aligned.defined(measure)
        used: Flags = np.logical_and.reduce(defined)
        missing = tuple(int((np.logical_or.reduce(defined) & ~one).sum()) for one in defined)
        if not used.any():
            if any(own):
                notes.append(f"{measure.title} is not compared: no instance has a value in all results")
        elif measure.of_corpus and max(own) > used.sum():
            notes.append(
                f"{measure.title} is not compared: it depends on all instances of a result, and the results have "
                "different ones"
            )
        else:
            if any(missing):
                undefined.setdefault(missing, []).append(measure.title)
            groups = aligned.groups(used) if name in main else {}
            found = _Comparer(aligned, measure, used, settings).pairs(groups)
            if any(value.defined for pair in found for value in pair.values):
                pairs[name] = found
            else:
                notes.append(f"{measure.title} is not compared: {found[0].values[0].reason or 'it is undefined'}")
    notes += [aligned.undefined_note(counts, titles) for counts, titles in undefined.items()]
    return ComparedPart(
        aligned.tables[0].part, aligned.rule, aligned.protocol, aligned.models, len(aligned.patients),
        len(set(aligned.patients)), aligned.dropped, pairs, notes, settings,
    )  # fmt: skip


class _Comparer:
    """Compares all pairs of models by one measure."""

    def __init__(self, aligned: Aligned, measure: Measure, used: Flags, settings: BootstrapSettings) -> None:
        self.aligned, self.measure, self.used = aligned, measure, used
        self.estimator = Estimator(aligned.patients, settings)
        self.couples = [*combinations(range(len(aligned.models)), 2)]

    def pairs(self, groups: Mapping[str, Flags]) -> list[Pair]:
        """Return all pairs, and those by finding; either is a family of Holm's correction."""
        found = self._family({ALL: self.used})
        return found + (self._family(groups) if groups else [])

    def _family(self, groups: Mapping[str, Flags]) -> list[Pair]:
        tests = len(groups) * len(self.couples)
        values, differences = self._means(groups) if self.measure.aggregate is None else self._aggregates(groups, tests)
        clusters = self.estimator.clusters
        few = [
            len(np.unique(clusters[flags])) < FEW_PATIENTS or not differences[group, couple].has_interval
            for group, flags in groups.items()
            for couple in self.couples
        ]
        places = [(group, couple) for group in groups for couple in self.couples]
        adjusted = self.estimator.adjusted([differences[place] for place in places], [not one for one in few])
        models = self.aligned.models
        return [
            Pair(group, models[one], models[two], (values[group, one], values[group, two]), difference)
            for (group, (one, two)), difference in zip(places, adjusted, strict=True)
        ]

    def _means(self, groups: Mapping[str, Flags]) -> tuple[dict[Any, Estimate], dict[Any, Comparison]]:
        columns = [frame[self.measure.columns[0]].to_numpy(dtype=np.float64) for frame in self.aligned.frames]

        def within(model: int, group: str) -> Floats:
            return np.where(groups[group], columns[model], np.nan)

        each = [(group, model) for group in groups for model in range(len(columns))]
        places = [(group, couple) for group in groups for couple in self.couples]
        values = self.estimator.means([within(model, group) for group, model in each])
        differences = self.estimator.differences(
            [within(one, group) for group, (one, _) in places], [within(two, group) for group, (_, two) in places]
        )
        return dict(zip(each, values, strict=True)), dict(zip(places, differences, strict=True))

    def _aggregates(self, groups: Mapping[str, Flags], tests: int) -> tuple[dict[Any, Estimate], dict[Any, Comparison]]:
        values: dict[Any, Estimate] = {}
        differences: dict[Any, Comparison] = {}
        flips = max(self.estimator.settings.resamples, FLIPS_PER_TEST * tests)
        for group, flags in groups.items():
            columns = [columns_of(frame[flags], self.measure) for frame in self.aligned.frames]
            statistics = [self.measure.statistic(one) for one in columns]
            for model, statistic in enumerate(statistics):
                values[group, model] = self.estimator.aggregate(statistic, flags)
            for one, two in self.couples:
                pooled = self.measure.statistic(pooled_columns(columns[one], columns[two], self.measure.ranked))
                differences[group, (one, two)] = self.estimator.paired_aggregate(
                    statistics[one], statistics[two], pooled, flags, flips
                )
        return values, differences


def columns_of(frame: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """Return the columns of a measure, and the finding, within which scores are ranked."""
    return {name: frame[name].to_numpy() for name in dict.fromkeys([*measure.columns, "target"])}


def pooled_columns(first: Mapping[str, Any], second: Mapping[str, Any], ranked: str | None) -> dict[str, Any]:
    """Return the results of one model followed by those of another, whose scores become ranks within each model."""
    parts = [dict(one) for one in (first, second)]
    for number, part in enumerate(parts):
        if "study" in part:  # one study answered by two models is two studies
            part["study"] = np.array([f"{number} {study}" for study in part["study"]], dtype=object)
        if ranked is not None:
            part[ranked] = _ranks(part[ranked], part["target"])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _ranks(scores: Any, findings: Any) -> Any:
    """Return scores (or lists of scores) as ranks from 0 to 1 among those about the same finding."""
    import pandas as pd

    flat = pd.DataFrame({"score": scores, "finding": findings}).explode("score")
    ranks = flat["score"].astype(np.float64).groupby(flat["finding"].to_numpy()).rank(pct=True)
    if len(scores) and np.ndim(scores[0]):
        lists = np.empty(len(scores), dtype=object)
        ends = np.cumsum([max(1, len(one)) for one in scores])  # an empty list is exploded to one NaN
        for place, (one, some) in enumerate(zip(scores, np.split(ranks.to_numpy(), ends[:-1]), strict=True)):
            lists[place] = some[: len(one)]
        return lists
    return ranks.to_numpy()
