"""Compare one model with an image-blind prior: overall, by group, by side, under each condition, and by abstention.

The models of the `Measured` must be named ``model`` and, optionally, ``prior``. Estimates are requested first and
computed together when they are read (`Deferred`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rightlung.core.errors import InputError
from rightlung.core.files import plain_fields
from rightlung.lexicon import region
from rightlung.measuring import find_measure
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Deferred, Estimator, Flags, Floats
from rightlung.results.measured import Measured
from rightlung.scoring.localisation import METRICS

if TYPE_CHECKING:
    import pandas as pd

HEADLINE = ("average_precision", "pointing", "auroc")
"""The measures shown for every group. AUROC comes last because it is high even for poor maps."""

FEW_PATIENTS = 5
"""Groups of fewer patients are marked and not tested: their intervals are unreliable."""

GROUPINGS = ("finding", "size", "side", "side_named", "region", "polarity", "kind")
MOVED = ("moved_mass", "moved_peak")
"""Map change and peak displacement between the original and the changed question."""

_COLUMNS = ("part", "group", "measure", "quantity")
_ANSWERS = ("abstention", "similarity_global", "similarity_local")
Built = TypeVar("Built")
_NO_CHANGE = (*METRICS, "peak_x", "peak_y", "target_area", "target_extent", "grid_entropy", "kl_random", *MOVED)
"""Columns whose change under a condition is not reported."""
_ORDERS = {
    "size": ("small", "medium", "large"),
    "side": ("left", "right", "both", "midline"),
    "side_named": ("left", "right", "both", "none"),
    "polarity": ("positive", "uncertain", "negative", "none"),
}


class _JsonFields:
    """A dataclass whose JSON has its fields as keys."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self)


@dataclass(frozen=True)
class PriorComparison(_JsonFields):
    """The model's mean and, where a prior was measured, the prior's mean and the paired difference."""

    model: Estimate
    prior: Estimate | None = None
    difference: Comparison | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.prior, self.difference))


@dataclass(frozen=True)
class GroupResult(_JsonFields):
    """The phrases of one finding, size, side…"""

    name: str
    phrases: int
    patients: int
    few: bool
    """Whether there are fewer than `FEW_PATIENTS` patients, too few for a test."""
    abstention: Estimate
    metrics: dict[str, PriorComparison]


@dataclass(frozen=True)
class BeforeAfter(_JsonFields):
    """A measure of the same phrases before and after the change."""

    before: Estimate
    after: Estimate


@dataclass(frozen=True)
class ConditionChanges(_JsonFields):
    """Paired changes under a condition, and the changed scores compared with the prior."""

    questions: int
    change: Mapping[str, Comparison]
    compared_with_prior: Mapping[str, PriorComparison]
    values: Mapping[str, BeforeAfter]
    moved: Mapping[str, Estimate]
    follows_words: Estimate | None = None
    """With sides swapped: how often the peak is on the side now named, among phrases that named the true side."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, without ``follows_words`` where it is undefined."""
        found = super().as_json()
        return found if self.follows_words is not None else {k: v for k, v in found.items() if k != "follows_words"}


@dataclass(frozen=True)
class SideResults(_JsonFields):
    """How often the peak is on the correct side: where the words name it, and where only the image shows it."""

    named: PriorComparison | None
    from_image: PriorComparison | None
    left_out: Mapping[str, int]
    """Phrases without a named side that are not counted: about devices, or with words that imply a side."""


@dataclass(frozen=True)
class Abstention(_JsonFields):
    """How much the model declines to point, for negated and for asserted phrases."""

    negated: Estimate | None
    asserted: Estimate | None
    given: bool
    """Whether the predictions contain abstention values; otherwise zero is assumed."""
    ever: bool
    auroc: Estimate | None


@dataclass(frozen=True)
class Breakdown(_JsonFields):
    """All results of a model compared with its prior."""

    overall: Mapping[str, PriorComparison]
    sides: SideResults
    groups: Mapping[str, list[GroupResult]]
    conditions: Mapping[str, ConditionChanges]
    abstention: Abstention

    def to_pandas(self) -> pd.DataFrame:
        """Return every number as a row of one data frame.

        ``part`` and ``group`` say which answers a number is about (``finding``, ``pleural effusion``), ``measure`` and
        ``quantity`` what it is (``auroc`` of the ``model``, of the ``prior``, their ``difference``; ``before`` and
        ``after`` a condition, the ``change``). The other columns are the fields of `Estimate` and `Comparison`.
        """
        import pandas as pd

        rows = [dict(zip(_COLUMNS, key, strict=True)) | one.as_row() for *key, one in self._numbers() if one]
        return pd.DataFrame(rows)

    def _numbers(self) -> Iterator[tuple[str, str, str, str, Estimate | None]]:
        for name, compared in self.overall.items():
            yield from _quantities("overall", "", name, compared)
        yield from _quantities("sides", "named", "peak_on_side", self.sides.named)
        yield from _quantities("sides", "from_image", "peak_on_side", self.sides.from_image)
        for grouping, groups in self.groups.items():
            for group in groups:
                yield grouping, group.name, "abstention", "model", group.abstention
                for name, compared in group.metrics.items():
                    yield from _quantities(grouping, group.name, name, compared)
        for condition, found in self.conditions.items():
            for name, change in found.change.items():
                yield "condition", condition, name, "change", change
                yield from _quantities("condition", condition, name, found.values[name])
            for name, compared in found.compared_with_prior.items():
                yield from _quantities("condition", condition, name, compared)
            for name, moved in found.moved.items():
                yield "condition", condition, name, "model", moved
            yield "condition", condition, "follows_words", "model", found.follows_words
        yield "abstention", "negated", "abstention", "model", self.abstention.negated
        yield "abstention", "asserted", "abstention", "model", self.abstention.asserted
        yield "abstention", "", "abstention_auroc", "model", self.abstention.auroc


def _quantities(
    part: str, group: str, measure: str, found: PriorComparison | BeforeAfter | None
) -> Iterator[tuple[str, str, str, str, Estimate | None]]:
    for name, one in vars(found).items() if found else ():
        yield part, group, measure, name, one


def break_down(measured: Measured, settings: BootstrapSettings | None = None) -> Breakdown:
    """Return all results of a model: overall, sides, groups, conditions, abstention."""
    if not len(measured):
        raise InputError("no row asks about a phrase of the source, so there is nothing to aggregate")
    requests = _Requests(measured, settings)
    scored = requests.plain & requests.with_target
    overall = {name: requests.compared(scored, name) for name in METRICS if scored.any()}
    sides = requests.sides()
    groups = {name: requests.groups(name) for name in GROUPINGS}
    conditions = {name: requests.changes(name) for name in measured.conditions if name != "none"}
    abstention = requests.abstention()
    return Breakdown(_built(overall), sides(), _built(groups), _built(conditions), abstention())


def _built(parts: Mapping[str, Callable[[], Built]]) -> dict[str, Built]:
    return {name: build() for name, build in parts.items()}


class _Requests:
    """Request the estimates of each part; each method returns a function that builds the result."""

    def __init__(self, measured: Measured, settings: BootstrapSettings | None) -> None:
        self.measured, self.target = measured, measured.targets[0]
        self.estimator: Estimator = measured.estimator(settings)
        self.deferred = Deferred(self.estimator)
        self.plain, self.with_target = measured.asked("model"), measured.has(self.target)
        self.side = measured.fact("target_side", self.target)
        self.one_sided = np.isin(self.side.astype(str), ("left", "right"))
        self.names_side = np.asarray(measured.fact("side_named") == self.side, dtype=bool) & self.one_sided

    def value(self, measure: str, condition: str = "none", slug: str = "model") -> Floats:
        return self.measured.value(slug, measure, self.target, condition)

    def mean(self, values: Floats, flags: Flags) -> Callable[[], Estimate]:
        return self.deferred.mean(np.where(flags, values, np.nan))

    def compared(self, flags: Flags, measure: str, condition: str = "none") -> Callable[[], PriorComparison]:
        own = self.measured.within(self.value(measure, condition), flags)
        prior = self.measured.within(self.value(measure, condition, "prior"), flags)
        model = self.deferred.mean(own)
        if np.isnan(prior).all():
            return lambda: PriorComparison(model())
        other, difference = self.mean(prior, ~np.isnan(own)), self.deferred.difference(own, prior)
        return lambda: PriorComparison(model(), other(), difference())

    def sides(self) -> Callable[[], SideResults]:
        chosen = self.plain & self.one_sided
        source = self.measured.fact("side_told") if "side_told" in self.measured.columns else None
        by = {what: chosen & np.asarray(source == what, dtype=bool) for what in ("image", "device", "words")}
        parts = [
            self.compared(flags, "peak_on_side") if flags.any() else lambda: None
            for flags in (self.plain & self.names_side, by["image"])
        ]
        left_out = {what: int(by[what].sum()) for what in ("device", "words")}
        return lambda: SideResults(parts[0](), parts[1](), left_out)

    def members(self, grouping: str) -> list[Sequence[str]]:
        """Return the groups of each phrase; a phrase may have several findings or regions."""
        if grouping == "finding":
            return [tuple(names or ()) for names in self.measured.fact("findings")]
        if grouping == "region":
            return [tuple(dict.fromkeys(map(_region_name, names or ()))) for names in self.measured.fact("regions")]
        of_target = grouping in ("size", "side", "kind")
        name, target = (f"target_{grouping}", self.target) if of_target else (grouping, None)
        return [() if value is None else (value,) for value in self.measured.fact(name, target)]

    def groups(self, grouping: str) -> Callable[[], list[GroupResult]]:
        inside: dict[str, Flags] = {}
        members = self.members(grouping)
        for phrase in np.flatnonzero(self.plain if grouping == "polarity" else self.plain & self.with_target).tolist():
            for name in members[phrase]:
                inside.setdefault(name, np.zeros(len(self.plain), dtype=bool))[phrase] = True
        order = _ORDERS.get(grouping, ())
        sizes = {name: int(flags.sum()) for name, flags in inside.items()}
        abstention = self.value("abstention")
        parts = []
        for name in sorted(inside, key=lambda name: (order.index(name) if name in order else 0, -sizes[name], name)):
            flags, scored = inside[name], inside[name] & self.with_target
            patients = len(set(self.measured.patients[flags].tolist()))
            metrics = {measure: self.compared(scored, measure) for measure in HEADLINE if scored.any()}
            parts.append((name, patients, self.mean(abstention, flags), metrics))
        return lambda: self.adjusted(
            [GroupResult(n, sizes[n], p, p < FEW_PATIENTS, a(), _built(m)) for n, p, a, m in parts]
        )

    def adjusted(self, groups: list[GroupResult]) -> list[GroupResult]:
        """Apply Holm's correction to the tests of one table; groups with few patients are not tested."""
        for measure in HEADLINE:
            tested = [
                (group, test) for group in groups if group.metrics and (test := group.metrics[measure].difference)
            ]
            found = self.estimator.adjusted([test for _, test in tested], [not group.few for group, _ in tested])
            for (group, _), difference in zip(tested, found, strict=True):
                group.metrics[measure] = replace(group.metrics[measure], difference=difference)
        return groups

    def changes(self, condition: str) -> Callable[[], ConditionChanges]:
        asked = self.measured.asked("model", condition) & self.plain
        change, before, after, moved = {}, {}, {}, {}
        others = [name for name in self.measured.numeric("model") if name not in _NO_CHANGE]
        for name in dict.fromkeys((*HEADLINE, "peak_on_side", *_ANSWERS, *others)):
            new, old = (self.measured.within(self.value(name, one), asked) for one in (condition, "none"))
            if not np.isnan(new - old).all():
                change[name] = self.deferred.difference(new, old)
                before[name], after[name] = self.mean(old, ~np.isnan(new)), self.deferred.mean(new)
        for name in MOVED:
            distances = self.measured.within(self.value(name, condition), asked)
            if not np.isnan(distances).all():
                moved[name] = self.deferred.mean(distances)
        scored, named = asked & self.with_target, asked & self.names_side
        compared = {name: self.compared(scored, name, condition) for name in HEADLINE if scored.any()}
        follows = None
        if condition == "swap-sides" and named.any():
            follows = self.mean(1 - self.value("peak_on_side", condition), named)
        return lambda: ConditionChanges(
            int(asked.sum()),
            _built(change),
            _built(compared),
            {name: BeforeAfter(before[name](), after[name]()) for name in change},
            _built(moved),
            None if follows is None else follows(),
        )

    def abstention(self) -> Callable[[], Abstention]:
        """Request abstention by polarity; uncertain phrases count as asserted."""
        values, polarity = self.value("abstention"), self.measured.fact("polarity").astype(str)
        there = self.plain & ~np.isnan(values)
        negated, asserted = there & (polarity == "negative"), there & np.isin(polarity, ("positive", "uncertain"))
        parts = [self.mean(values, flags) if flags.any() else lambda: None for flags in (negated, asserted)]
        given = bool((self.value("abstention_given")[there] > 0).any())
        ever, used = bool((values[there] > 0).any()), negated | asserted
        auroc = None
        if negated.any() and asserted.any() and ever:
            columns = {"abstention": values[used], "polarity": polarity[used]}
            auroc = self.estimator.aggregate(partial(find_measure("abstention_auroc").of_counts, columns), used)
        return lambda: Abstention(parts[0](), parts[1](), given, ever, auroc)


@lru_cache(maxsize=4096)
def _region_name(name: str) -> str:
    try:
        return region(name).name
    except InputError:
        return name
