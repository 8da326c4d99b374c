"""Claims and what becomes of them: comparisons with intervals, judged by the means over seeds and by each seed.

``holds`` and ``does not hold`` need an interval on one side of what is claimed; ``no difference shown`` means that the
interval includes it; ``cannot be told`` that something was not measured, or that the interval is too wide to call a
change small. ``seed-dependent`` means that it holds with one seed of training and does not with another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Literal

from rightlung.pages.numbers import number
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.estimator import Estimator, Floats
from rightlung.results.measured import Measured
from rightlung.results.model import MeasuredModel
from rightlung.results.perturbation import Perturbation

Verdict = Literal["holds", "does not hold", "no difference shown", "cannot be told", "seed-dependent"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
NOT_SHOWN: Verdict = "no difference shown"
UNKNOWN: Verdict = "cannot be told"
TURNS: Verdict = "seed-dependent"
VERDICTS = (HOLDS, FAILS, TURNS, NOT_SHOWN, UNKNOWN)

SMALL = 0.02
"""A change of AUROC of at most two points either way is called small."""
MOST_TOLD = 10
"""Comparisons that are listed for one claim."""
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
    """One number that a verdict rests on."""

    label: str
    found: Estimate
    verdict: Verdict
    unit: str = "points"

    @property
    def said(self) -> str:
        """The number in words, with its interval."""
        if not self.found.defined:
            return f"{self.label}: not measured"
        scale, digits, signed, after = _UNITS[self.unit]
        value, low, high = (
            number(scale * one, digits, signed) for one in (self.found.value, self.found.low, self.found.high)
        )
        span = f" ({low} to {high})" if self.found.has_interval else " (no interval)"
        return f"{self.label}: {value}{after}{span}"


@dataclass(frozen=True)
class Ruling:
    """What becomes of a claim against one kind of target."""

    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    remark: str = ""

    @property
    def told(self) -> list[str]:
        """The figures it was decided by, the decisive ones first; of many only some, the rest being in the JSON."""
        ordered = sorted(self.evidence, key=lambda one: one.verdict != self.verdict)
        shown = [one.said for one in (ordered if len(ordered) > MOST_TOLD else self.evidence)[:MOST_TOLD]]
        rest = len(self.evidence) - len(shown)
        return [*shown, f"and {rest} more comparisons, in results.json"] if rest else shown

    @property
    def sentence(self) -> str:
        """The figures it was decided by, in plain words."""
        said = "; ".join(self.told)
        return " ".join(part for part in (f"{said}." if said else "", self.remark) if part)

    @property
    def after_holm(self) -> bool | None:
        """Whether what decides the verdict survives Holm's adjustment; ``None`` where nothing was tested."""
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
    """The measurements with one model standing for each variant; remembers what was compared and looked at."""

    measured: Measured
    estimator: Estimator
    perturbations: Sequence[Perturbation] = ()
    judgements: Mapping[str, Any] | None = None
    """The analysis of radiologists' judgements, where there is one."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """Variants for which one seed stands instead of the mean over all."""
    tested: list[tuple[Estimate, Floats, Floats]] = field(default_factory=list)
    """The paired differences made so far: their p-values are computed together."""
    asked: set[str] = field(default_factory=set)
    """The variants that were looked at."""

    def model(self, variant: str) -> MeasuredModel | None:
        """Return the model that stands for a variant."""
        self.asked.add(variant)
        slug = self.chosen.get(variant)
        if slug is not None:
            return self.measured.model(slug)
        return next((model for model in self.measured.rows if model.variant == variant), None)

    def of_one_seed(self) -> ClaimView:
        """Return the same with the first seed of each variant for which none was chosen.

        Correlations over instances are asked of single models: means over seeds have less noise, and correlate more.
        """
        first = {row.variant: self.measured.seeds(row.variant)[0].slug for row in self.measured.rows}
        return replace(self, chosen={**first, **self.chosen})

    def has(self, variant: str) -> bool:
        """Return whether a variant was measured."""
        return self.model(variant) is not None

    def name(self, variant: str) -> str:
        """Return how a variant is called."""
        model = self.model(variant)
        return model.label if model is not None else variant

    def _slug(self, variant: str) -> str:
        model = self.model(variant)
        return model.slug if model is not None else ""

    def value(
        self, variant: str, measure: str, target: str | None = None, subset: str = "all", condition: str = "none"
    ) -> Floats:
        """Return a measure of a variant over a subset."""
        found = self.measured.value(self._slug(variant), measure, target, condition)
        return self.measured.within(found, subset)

    def selection(self, variant: str, kind: Literal["local", "global"], subset: str = "all") -> Floats:
        """Return whether a variant selects the right sentence."""
        return self.measured.within(self.measured.selection(self._slug(variant), kind), subset)

    def change(
        self,
        variant: str,
        perturbation: str,
        target: str,
        subset: str | None = None,
        measure: str = "auroc",
        how: Literal["changed", "all"] = "changed",
    ) -> Floats:
        """Return what a perturbation changes, on its own subset unless another is given."""
        found = next(one for one in self.perturbations if one.name == perturbation)
        change = self.measured.change(self._slug(variant), found, measure, target, how)
        return self.measured.within(change, subset or found.subset)

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
    """Something that a paper says, or that we set out to reach."""

    name: str
    where: str
    text: str
    judge: Callable[[ClaimView, str], Ruling]
    targets: tuple[str, ...] = ("regions", "exact")
    """What it is judged against; a claim that needs no target names one and is judged once."""
    paper: str = ""
    """The paper's own figures."""
    ours: bool = False
    reading: bool = False
    """Whether it is not the paper's, but follows from its code."""
    stands_in: str = ""
    """Whom the paper says it of, where another model has to stand in for that."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with what becomes of it against each kind of target."""

    claim: Claim
    rulings: Mapping[str, Ruling]
    each_seed: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    """The verdicts with each seed by itself, where there are several."""

    @property
    def of_paper(self) -> bool:
        """Whether it is one of the paper's own claims."""
        return not (self.claim.ours or self.claim.reading)

    def verdict(self, target: str) -> Verdict:
        """Return the verdict: what all seeds agree on, `TURNS` where two contradict each other, else their means'."""
        seeds = set(self.each_seed.get(target, ()))
        if {HOLDS, FAILS} <= seeds:
            return TURNS
        return next(iter(seeds)) if seeds in ({HOLDS}, {FAILS}) else self.rulings[target].verdict

    def with_each_seed(self, target: str) -> bool:
        """Return whether every seed by itself says what the verdict says."""
        return set(self.each_seed.get(target, ())) == {self.verdict(target)}

    def after_holm(self, target: str) -> bool | None:
        """Return whether its verdict survives Holm's adjustment; ``None`` where it does not rest on a test."""
        ruling = self.rulings[target]
        return ruling.after_holm if ruling.verdict == self.verdict(target) else None

    def certainty(self, target: str) -> list[str]:
        """Say whether the verdict survives the adjustment for all comparisons, and what each seed says by itself."""
        after = self.after_holm(target)
        adjusted = [] if after is None else [f"{'Also' if after else 'Not'} after Holm's adjustment."]
        return adjusted + self.by_seed(target)

    def by_seed(self, target: str) -> list[str]:
        """Say what each seed says by itself, where there are several."""
        seeds = self.each_seed.get(target, ())
        if not set(seeds) - {UNKNOWN}:
            return []
        agreed = f"Each of the {len(seeds)} seeds by itself says so"
        said = agreed if self.with_each_seed(target) else f"Seed by seed: {', '.join(seeds)}"
        means = self.rulings[target].verdict
        return [f"{said}; their means: {means}." if means != self.verdict(target) else f"{said}."]

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
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
    """Judge every claim, with the means over seeds and, where there are several, with each."""
    made = {claim.name: {target: claim.judge(whole, target) for target in claim.targets} for claim in claims}
    compared = _compared(whole)
    seeds = _each_seed(whole.measured)
    return [
        JudgedClaim(
            claim,
            {target: _with_tests(ruling, compared) for target, ruling in made[claim.name].items()},
            {target: _by_seed(whole, claim, target, seeds) for target in claim.targets} if seeds else {},
        )
        for claim in claims
    ]


def _compared(view: ClaimView) -> dict[int, Comparison]:
    """Return every paired difference with its p-value, also after Holm's adjustment for all of them."""
    if not view.tested:
        return {}
    firsts, seconds = [first for _, first, _ in view.tested], [second for _, _, second in view.tested]
    found = view.estimator.adjusted(view.estimator.differences(firsts, seconds))
    return {id(estimate): one for (estimate, _, _), one in zip(view.tested, found, strict=True)}


def _with_tests(ruling: Ruling, compared: Mapping[int, Comparison]) -> Ruling:
    evidence = tuple(replace(one, found=compared.get(id(one.found), one.found)) for one in ruling.evidence)
    return replace(ruling, evidence=evidence)


def _by_seed(
    whole: ClaimView, claim: Claim, target: str, seeds: Sequence[Mapping[str, str | None]]
) -> tuple[Verdict, ...]:
    """Return the verdicts of the seeds that all variants have which a claim looks at; none where these are not several.

    What has one seed only, or none, stands beside each.
    """
    found = []
    for models in seeds:
        chosen = {variant: slug for variant, slug in models.items() if slug is not None}
        view = replace(whole, chosen=chosen, tested=[], asked=set())
        verdict = claim.judge(view, target).verdict
        looked_at = [models[variant] for variant in view.asked if variant in models]
        if looked_at and None not in looked_at:
            found.append(verdict)
    return tuple(found) if len(found) > 1 else ()


def _each_seed(measured: Measured) -> list[dict[str, str | None]]:
    """Return, for each seed, the model of each variant that has several, ``None`` where it has not this one."""
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


def side(found: Estimate, *, above: float | None = None, below: float | None = None) -> Verdict:
    """Return whether an interval lies above (or below) a number.

    >>> side(Estimate(0.3, 0.2, 0.4), above=0.0)
    'holds'
    """
    if not (found.defined and found.has_interval):
        return UNKNOWN
    if above is not None:
        return HOLDS if found.low > above else FAILS if found.high < above else NOT_SHOWN
    assert below is not None
    return HOLDS if found.high < below else FAILS if found.low > below else NOT_SHOWN


def small(found: Estimate, margin: float = SMALL) -> Verdict:
    """Return whether an interval lies within a margin about zero."""
    if not (found.defined and found.has_interval):
        return UNKNOWN
    if -margin <= found.low and found.high <= margin:
        return HOLDS
    return FAILS if found.low > margin or found.high < -margin else UNKNOWN


def together(evidence: Sequence[Evidence], remark: str = "") -> Ruling:
    """Return the ruling on a claim that needs all of its parts."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (FAILS, UNKNOWN, NOT_SHOWN):
        if verdict in verdicts:
            return Ruling(verdict, tuple(evidence), remark)
    return Ruling(HOLDS if verdicts else UNKNOWN, tuple(evidence), remark)


def mostly(evidence: Sequence[Evidence], remark: str = "") -> Ruling:
    """Return the ruling on a claim that needs more than half of its parts; "usually", "generally"."""
    verdicts = [one.verdict for one in evidence]
    for verdict in (HOLDS, FAILS, UNKNOWN):
        if 2 * verdicts.count(verdict) > len(verdicts):
            return Ruling(verdict, tuple(evidence), remark)
    return Ruling(NOT_SHOWN if verdicts else UNKNOWN, tuple(evidence), remark)


Judge = Callable[..., Ruling]


def needs(*variants: str) -> Callable[[Judge], Judge]:
    """Make a rule that cannot be applied where one of these variants was not measured."""

    def decorated(judge: Judge) -> Judge:
        @wraps(judge)
        def judged(view: ClaimView, target: str, **options: Any) -> Ruling:
            return missing(view, *variants) or judge(view, target, **options)

        return judged

    return decorated


def missing(view: ClaimView, *variants: str) -> Ruling | None:
    """Return the ruling where a variant that the claim is about was not measured."""
    absent = [variant for variant in variants if not view.has(variant)]
    return Ruling(UNKNOWN, remark=f"Not measured: {', '.join(absent)}.") if absent else None
