"""What a claim is judged by: comparisons with intervals, and the five things that can come of them.

``holds`` and ``does not hold`` need an interval on one side of what is claimed; ``no difference shown`` says that the
interval reaches across it; ``cannot be told`` that something was not measured, or that the interval is too wide to call
a change small. ``turns on the seed`` says that it holds with one seed of training and does not with another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rightlung.reproduce.wrong_lung.estimates import Estimate
from rightlung.reproduce.wrong_lung.results import PERTURBATIONS, Change, Floats, Model
from rightlung.reproduce.wrong_lung.tables import Measured, signed_number

Verdict = Literal["holds", "does not hold", "no difference shown", "cannot be told", "turns on the seed"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
NOT_SHOWN: Verdict = "no difference shown"
UNKNOWN: Verdict = "cannot be told"
TURNS: Verdict = "turns on the seed"

SMALL = 0.02
"""A change of AUROC up to two points either way is called small."""
MOST_TOLD = 10
"""Comparisons that are told of one claim."""


@dataclass(frozen=True)
class Evidence:
    """One number that a verdict rests on."""

    label: str
    found: Estimate
    verdict: Verdict
    unit: str = "points"

    @property
    def said(self) -> str:
        """The number in words, with its interval."""
        if math.isnan(self.found["estimate"]):
            return f"{self.label}: not measured"
        scale, digits, signed, after = {
            "points": (100.0, 1, True, " points"),
            "percent": (100.0, 1, False, " %"),
            "nats": (1.0, 3, True, " nats"),
            "correlation": (1.0, 2, False, ""),
        }[self.unit]
        low, high = (signed_number(scale * self.found[end], digits, signed) for end in ("low", "high"))
        span = f" ({low} to {high})" if "–" not in (low, high) else " (no interval)"
        return f"{self.label}: {signed_number(scale * self.found['estimate'], digits, signed)}{after}{span}"


@dataclass(frozen=True)
class Judgement:
    """What came of a claim, against one kind of target."""

    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    remark: str = ""

    @property
    def told(self) -> list[str]:
        """The figures it was decided by, those that decide first; of many only some, the rest being in the JSON."""
        ordered = sorted(self.evidence, key=lambda one: one.verdict != self.verdict)
        shown = [one.said for one in (ordered if len(ordered) > MOST_TOLD else self.evidence)[:MOST_TOLD]]
        rest = len(self.evidence) - len(shown)
        return [*shown, f"and {rest} more comparisons, in results.json"] if rest else shown

    @property
    def sentence(self) -> str:
        """The figures it was decided by, in plain words."""
        said = "; ".join(self.told)
        return " ".join(part for part in (f"{said}." if said else "", self.remark) if part)


@dataclass(frozen=True)
class View:
    """The measurements with one model standing for each variant."""

    measured: Measured
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Variants for which one seed stands instead of the mean over all."""
    tested: list[tuple[Estimate, Floats]] = field(default_factory=list)
    """The paired differences made so far, each with its values: p-values are worked out for all together."""
    asked: set[str] = field(default_factory=set)
    """The variants that were looked at."""

    def model(self, variant: str) -> Model | None:
        """Return the model that stands for a variant."""
        self.asked.add(variant)
        slug = self.chosen.get(variant)
        if slug is not None:
            return self.measured.results.model(slug)
        return next((model for model in self.measured.results.rows if model.variant == variant), None)

    def of_one_seed(self) -> View:
        """Return the same with the first seed of each variant for which none was chosen.

        Correlations over instances are asked of single models: means over seeds have less noise, and correlate more.
        """
        results = self.measured.results
        first = {row.variant: results.seeds(row.variant)[0].slug for row in results.rows}
        return replace(self, chosen={**first, **self.chosen})

    def has(self, variant: str) -> bool:
        """Return whether a variant was measured."""
        return self.model(variant) is not None

    def _slug(self, variant: str) -> str:
        model = self.model(variant)
        return model.slug if model is not None else ""

    def name(self, variant: str) -> str:
        """Return how a variant is called."""
        model = self.model(variant)
        return model.label if model is not None else variant

    def score(self, variant: str, measure: str, target: str, subset: str = "all", condition: str = "none") -> Floats:
        """Return a measure of a variant over a subset."""
        results = self.measured.results
        return results.within(results.score(self._slug(variant), measure, target, condition), subset)

    def answer(self, variant: str, measure: str, subset: str = "all") -> Floats:
        """Return a number of a variant's answers over a subset."""
        results = self.measured.results
        return results.within(results.answer(self._slug(variant), measure), subset)

    def selection(self, variant: str, kind: Literal["local", "global"], subset: str = "all") -> Floats:
        """Return whether a variant selects the right sentence."""
        results = self.measured.results
        return results.within(results.selection(self._slug(variant), kind), subset)

    def change(
        self,
        variant: str,
        perturbation: str,
        target: str,
        subset: str | None = None,
        measure: str = "auroc",
        how: Change = "changed",
    ) -> Floats:
        """Return what a perturbation changes, on its own subset unless another is given."""
        results = self.measured.results
        found = next(one for one in PERTURBATIONS if one.name == perturbation)
        change = results.change(self._slug(variant), found, measure, target, how)
        return results.within(change, subset or found.subset)

    def mean(self, values: Floats) -> Estimate:
        """Return a mean with its interval."""
        return self.measured.estimator.mean(values)

    def difference(self, first: Floats, second: Floats) -> Estimate:
        """Return a paired difference with its interval."""
        found = self.mean(first - second)
        self.tested.append((found, first - second))
        return found


def side(found: Estimate, *, above: float | None = None, below: float | None = None) -> Verdict:
    """Return whether an interval lies above (or below) a number.

    >>> side({"estimate": 0.3, "low": 0.2, "high": 0.4}, above=0.0)
    'holds'
    """
    if math.isnan(found["estimate"]) or math.isnan(found["low"]):
        return UNKNOWN
    low, high = found["low"], found["high"]
    if above is not None:
        return HOLDS if low > above else FAILS if high < above else NOT_SHOWN
    assert below is not None
    return HOLDS if high < below else FAILS if low > below else NOT_SHOWN


def small(found: Estimate, margin: float = SMALL) -> Verdict:
    """Return whether an interval lies within a margin about zero."""
    if math.isnan(found["estimate"]) or math.isnan(found["low"]):
        return UNKNOWN
    if -margin <= found["low"] and found["high"] <= margin:
        return HOLDS
    return FAILS if found["low"] > margin or found["high"] < -margin else UNKNOWN


def together(evidence: Sequence[Evidence], remark: str = "") -> Judgement:
    """Return the judgement of a claim that needs all of its parts."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (FAILS, UNKNOWN, NOT_SHOWN):
        if verdict in verdicts:
            return Judgement(verdict, tuple(evidence), remark)
    return Judgement(HOLDS if verdicts else UNKNOWN, tuple(evidence), remark)


def mostly(evidence: Sequence[Evidence], remark: str = "") -> Judgement:
    """Return the judgement of a claim that needs more than half of its parts; "usually", "generally"."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (HOLDS, FAILS, UNKNOWN):
        if 2 * verdicts.count(verdict) > len(verdicts):
            return Judgement(verdict, tuple(evidence), remark)
    return Judgement(NOT_SHOWN if verdicts else UNKNOWN, tuple(evidence), remark)


def missing(view: View, *variants: str) -> Judgement | None:
    """Return the judgement where a variant that the claim is about was not measured."""
    absent = [variant for variant in variants if not view.has(variant)]
    if not absent:
        return None
    return Judgement(UNKNOWN, remark=f"Not measured: {', '.join(absent)}.")
