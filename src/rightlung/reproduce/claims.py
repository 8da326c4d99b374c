"""Judge claims by confidence intervals, using the mean over seeds and each seed on its own.

Verdicts: ``holds`` and ``does not hold`` mean that the interval lies on one side of the claimed value. ``no difference
shown`` means that the interval includes it. ``cannot be judged`` means that something was not measured, or that the
interval is too wide to call a change small. ``seed-dependent`` means that some seeds support the claim and others
contradict it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rightlung.pages.numbers import interval, number
from rightlung.results.estimate import BootstrapSettings, Comparison, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.results.measured import Measured, Perturbation
from rightlung.results.model import MeasuredModel
from rightlung.scoring.localisation import METRICS
from rightlung.scoring.statistics import smallest_p

ClaimVerdict = Literal[
    "holds", "does not hold", "no difference shown", "too few patients to tell", "cannot be judged", "seed-dependent"
]
HOLDS: ClaimVerdict = "holds"
FAILS: ClaimVerdict = "does not hold"
NOT_SHOWN: ClaimVerdict = "no difference shown"
TOO_FEW: ClaimVerdict = "too few patients to tell"
UNKNOWN: ClaimVerdict = "cannot be judged"
SEED_DEPENDENT: ClaimVerdict = "seed-dependent"

MAX_EVIDENCE_LINES = 10
"""Comparisons listed on the page for one claim."""
ALPHA = 0.05

_UNITS = {
    "points": (100.0, 1, True, " points"),
    "percent": (100.0, 1, False, " %"),
    "nats": (1.0, 3, True, " nats"),
    "correlation": (1.0, 2, False, ""),
    "rating": (1.0, 2, True, ""),
}


@dataclass(frozen=True)
class Evidence:
    """One estimate that a verdict is based on."""

    label: str
    found: Estimate
    verdict: ClaimVerdict
    unit: str = "points"

    @classmethod
    def judged(cls, label: str, found: Estimate, unit: str = "points", **criterion: float) -> Evidence:
        """Judge an estimate by a criterion of `verdict_on`."""
        return cls(label, found, verdict_on(found, **criterion), unit)

    @property
    def text(self) -> str:
        """The label and the estimate with its interval."""
        if not self.found.defined:
            return f"{self.label}: not measured"
        scale, digits, signed, after = _UNITS[self.unit]
        value, low, high = (
            number(scale * one, digits, signed) for one in (self.found.value, self.found.low, self.found.high)
        )
        ends = interval(self.found, low, high) if self.found.has_interval else "no interval"
        return f"{self.label}: {value}{after} ({ends})"


@dataclass(frozen=True)
class Ruling:
    """The verdict on a claim against one kind of target, with its evidence."""

    verdict: ClaimVerdict
    evidence: tuple[Evidence, ...] = ()
    remark: str = ""

    @property
    def lines(self) -> list[str]:
        """The evidence, one line each. A long list starts with what decided the verdict and is cut off."""
        ordered = sorted(self.evidence, key=lambda one: one.verdict != self.verdict)
        shown = [one.text for one in (ordered if len(ordered) > MAX_EVIDENCE_LINES else self.evidence)]
        rest = shown[MAX_EVIDENCE_LINES:]
        return [*shown[:MAX_EVIDENCE_LINES], f"and {len(rest)} more comparisons, in results.json"] if rest else shown

    @property
    def sentence(self) -> str:
        """The evidence and the remark as running text."""
        evidence = "; ".join(self.lines)
        return " ".join(part for part in (f"{evidence}." if evidence else "", self.remark) if part)

    @property
    def after_holm(self) -> bool | None:
        """Whether the deciding evidence survives Holm's correction; ``None`` where nothing was tested."""
        deciding = [one.found for one in self.evidence if one.verdict == self.verdict]
        p = [
            one.p_adjusted
            for one in deciding
            if isinstance(one, Comparison) and one.p_adjusted is not None and not math.isnan(one.p_adjusted)
        ]
        if self.verdict not in (HOLDS, FAILS) or not p:
            return None
        return bool(max(p) < ALPHA) if self.verdict == HOLDS else bool(min(p) < ALPHA)


@dataclass(frozen=True)
class ClaimView:
    """The measurements as a claim sees them. Records the comparisons made and the variants used."""

    measured: Measured
    estimator: Estimator
    perturbations: Sequence[Perturbation] = ()
    judgements: Mapping[str, Any] | None = None
    """The analysis of radiologists' judgements, if given."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Variants represented by one of their models instead of the mean over seeds."""
    tested: list[tuple[Estimate, Floats, Floats]] = field(default_factory=list)
    """The paired differences made so far; their p-values are computed together."""
    asked: set[str] = field(default_factory=set)
    """The variants used so far."""

    def model(self, variant: str) -> MeasuredModel | None:
        """Return the model that represents a variant."""
        self.asked.add(variant)
        slug = self.chosen.get(variant)
        if slug is not None:
            return self.measured.model(slug)
        return next((model for model in self.measured.rows if model.variant == variant), None)

    def of_one_seed(self) -> ClaimView:
        """Return a view with the first seed of each variant that has no chosen model.

        Correlations over instances use single models: means over seeds have less noise and correlate more strongly.
        """
        first = {row.variant: self.measured.seeds(row.variant)[0].slug for row in self.measured.rows}
        return replace(self, chosen={**first, **self.chosen})

    def has(self, variant: str) -> bool:
        """Return whether a variant was measured."""
        return self.model(variant) is not None

    def name(self, variant: str) -> str:
        """Return the label of a variant."""
        model = self.model(variant)
        return model.label if model is not None else variant

    def values(
        self, variant: str, target: str | None, measure: str = "auroc", *, condition: str = "none",
        perturbation: str | None = None, subset: str | None = None, how: Literal["changed", "all"] = "changed",
    ) -> Floats:  # fmt: skip
        """Return a measure of a variant over a subset (default: all phrases) or its change under a perturbation.

        A change is over the perturbation's own subset unless another is given. ``target`` is ignored for measures of
        the answer alone, such as entropy.
        """
        model = self.model(variant)
        slug = model.slug if model is not None else ""
        if perturbation is None:
            found = self.measured.value(slug, measure, target if measure in METRICS else None, condition)
            return self.measured.within(found, subset or "all")
        changed = next(one for one in self.perturbations if one.name == perturbation)
        found = self.measured.change(slug, changed, measure, target or "", how)
        return self.measured.within(found, subset or changed.subset)

    def mean(self, values: Floats) -> Estimate:
        """Return a mean with its interval."""
        return self.estimator.mean(values)

    def difference(self, first: Floats, second: Floats) -> Estimate:
        """Return a paired difference with its interval."""
        found = self.mean(first - second)
        self.tested.append((found, first, second))
        return found


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, or one of our own aims."""

    name: str
    where: str
    text: str
    judge: Callable[[ClaimView, str], Ruling]
    targets: tuple[str, ...] = ("regions", "exact")
    """The targets it is judged against. A claim that needs no target lists one, and is judged once."""
    paper: str = ""
    """The numbers that the paper reports."""
    ours: bool = False
    reading: bool = False
    """Whether it follows from the paper's code instead of its text."""
    stands_in: str = ""
    """A note where the claim is judged on another model than the paper's."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its rulings, by target."""

    claim: Claim
    rulings: Mapping[str, Ruling]
    each_seed: Mapping[str, tuple[ClaimVerdict, ...]] = field(default_factory=dict)
    """The verdicts of the single seeds, where there are several."""

    @property
    def of_paper(self) -> bool:
        """Whether it is one of the paper's own claims."""
        return not (self.claim.ours or self.claim.reading)

    def verdict(self, target: str) -> ClaimVerdict:
        """Return what all seeds agree on, `SEED_DEPENDENT` if two contradict, else the verdict of the means."""
        seeds = set(self.each_seed.get(target, ()))
        if {HOLDS, FAILS} <= seeds:
            return SEED_DEPENDENT
        return next(iter(seeds)) if seeds in ({HOLDS}, {FAILS}) else self.rulings[target].verdict

    def with_each_seed(self, target: str) -> bool:
        """Return whether every single seed gives the verdict."""
        return set(self.each_seed.get(target, ())) == {self.verdict(target)}

    def after_holm(self, target: str) -> bool | None:
        """Return whether the verdict survives Holm's correction; ``None`` where it does not rest on a test."""
        ruling = self.rulings[target]
        return ruling.after_holm if ruling.verdict == self.verdict(target) else None

    def robustness(self, target: str) -> list[str]:
        """Say whether the verdict survives the correction for multiple comparisons, and what the single seeds show."""
        after = self.after_holm(target)
        corrected = [] if after is None else [f"{'Still' if after else 'Not'} significant after Holm's correction."]
        return corrected + self.by_seed(target)

    def by_seed(self, target: str) -> list[str]:
        """Return the verdicts of the single seeds as a sentence, where there are several."""
        seeds = self.each_seed.get(target, ())
        if not set(seeds) - {UNKNOWN}:
            return []
        same = f"Same verdict for each of the {len(seeds)} seeds"
        text = same if self.with_each_seed(target) else f"By seed: {', '.join(seeds)}"
        means = self.rulings[target].verdict
        return [f"{text}; mean over seeds: {means}." if means != self.verdict(target) else f"{text}."]

    def as_json(self) -> dict[str, Any]:
        """Return the claim, its rulings and all evidence as JSON values."""
        names = ("name", "where", "paper", "stands_in", "ours", "reading")
        return {
            "claim": self.claim.text,
            **{name: getattr(self.claim, name) for name in names},
            "judgements": {
                target: {
                    "verdict": self.verdict(target),
                    "verdict_of_means": ruling.verdict,
                    "sentence": ruling.sentence,
                    "after_holm": self.after_holm(target),
                    "each_seed": list(self.each_seed.get(target, ())),
                    "evidence": [
                        {"label": one.label, "verdict": one.verdict, "unit": one.unit, **one.found.as_json()}
                        for one in ruling.evidence
                    ],
                }
                for target, ruling in self.rulings.items()
            },
        }


def judge_all(claims: Sequence[Claim], whole: ClaimView) -> list[JudgedClaim]:
    """Judge every claim with the means over seeds and, where there are several seeds, with each of them."""
    made = {claim.name: {target: claim.judge(whole, target) for target in claim.targets} for claim in claims}
    compared, seeds = _compared(whole), _each_seed(whole.measured)

    def tested(ruling: Ruling) -> Ruling:
        evidence = tuple(replace(one, found=compared.get(id(one.found), one.found)) for one in ruling.evidence)
        return replace(ruling, evidence=evidence)

    return [
        JudgedClaim(
            claim,
            {target: tested(ruling) for target, ruling in made[claim.name].items()},
            {target: _by_seed(whole, claim, target, seeds) for target in claim.targets} if seeds else {},
        )
        for claim in claims
    ]


def _compared(view: ClaimView) -> dict[int, Comparison]:
    """Return every paired difference with its p-value, also after Holm's correction over all of them."""
    if not view.tested:
        return {}
    firsts, seconds = [first for _, first, _ in view.tested], [second for _, _, second in view.tested]
    found = view.estimator.adjusted(view.estimator.differences(firsts, seconds))
    return {id(estimate): one for (estimate, _, _), one in zip(view.tested, found, strict=True)}


def _by_seed(
    whole: ClaimView, claim: Claim, target: str, seeds: Sequence[Mapping[str, str | None]]
) -> tuple[ClaimVerdict, ...]:
    """Return the verdict for each seed that all variants of the claim share; empty where fewer than two are shared.

    A variant with a single seed is used with every seed of the others.
    """
    found = []
    for models in seeds:
        chosen = {variant: slug for variant, slug in models.items() if slug is not None}
        view = replace(whole, chosen=chosen, tested=[], asked=set())
        verdict = claim.judge(view, target).verdict
        used = [models[variant] for variant in view.asked if variant in models]
        if used and None not in used:
            found.append(verdict)
    return tuple(found) if len(found) > 1 else ()


def _each_seed(measured: Measured) -> list[dict[str, str | None]]:
    """Return for each seed the model of every variant with several seeds, ``None`` where it lacks this one."""
    several = {row.variant: measured.seeds(row.variant) for row in measured.rows}
    several = {variant: models for variant, models in several.items() if len(models) > 1}
    seeds = sorted({model.seed for models in several.values() for model in models if model.seed is not None})
    return [
        {
            variant: next((model.slug for model in models if model.seed == seed), None)
            for variant, models in several.items()
        }
        for seed in seeds
    ]


def verdict_on(
    found: Estimate, *, above: float | None = None, below: float | None = None, within: float | None = None,
    beyond: float | None = None,
) -> ClaimVerdict:  # fmt: skip
    """Judge an interval by one criterion: above or below a value, within a margin around zero, or beyond it.

    >>> verdict_on(Estimate(0.3, 0.2, 0.4), above=0.0)
    'holds'
    """
    if not (found.defined and found.has_interval):
        return UNKNOWN
    if found.patients and smallest_p(found.patients, BootstrapSettings().flips) >= ALPHA:
        return TOO_FEW
    if above is not None:
        return HOLDS if found.low > above else FAILS if found.high < above else NOT_SHOWN
    if below is not None:
        return HOLDS if found.high < below else FAILS if found.low > below else NOT_SHOWN
    margin = within if within is not None else beyond
    assert margin is not None
    inside = -margin <= found.low and found.high <= margin
    if not inside and found.low <= margin and found.high >= -margin:
        return UNKNOWN
    return HOLDS if inside == (within is not None) else FAILS


def all_of(evidence: Sequence[Evidence], remark: str = "") -> Ruling:
    """Return the ruling on a claim that requires all of its parts."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (FAILS, UNKNOWN, TOO_FEW, NOT_SHOWN):
        if verdict in verdicts:
            return Ruling(verdict, tuple(evidence), remark)
    return Ruling(HOLDS if verdicts else UNKNOWN, tuple(evidence), remark)


def most_of(evidence: Sequence[Evidence], remark: str = "") -> Ruling:
    """Return the ruling on a claim that requires more than half of its parts ("usually", "generally")."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (HOLDS, FAILS, UNKNOWN, TOO_FEW):
        if 2 * verdicts.count(verdict) > len(verdicts):
            return Ruling(verdict, tuple(evidence), remark)
    return Ruling(NOT_SHOWN if verdicts else UNKNOWN, tuple(evidence), remark)


def missing(view: ClaimView, *variants: str) -> Ruling | None:
    """Return the ruling for variants that were not measured, ``None`` if all were."""
    absent = [variant for variant in variants if not view.has(variant)]
    return Ruling(UNKNOWN, remark=f"Not measured: {', '.join(absent)}.") if absent else None
