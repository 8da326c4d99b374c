"""Does a model use the image? The rules that turn gates into one verdict for each finding (docs/gates.md).

A gate is a condition under which the answer should change, or should not. Each answer has a **response** (how strongly
it points at the finding: the map's score at the finding's place, the finding's probability, whether the report states
it) and, under each condition, an amount of **change** from 0 (the same answer) to 1. Every verdict needs evidence for
it; where the intervals allow several, it is "too few patients to tell".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from rightlung.core.files import plain_fields
from rightlung.results.estimate import Comparison, Estimate
from rightlung.results.estimator import Deferred, Estimator, Floats
from rightlung.results.groups import FEW_PATIENTS
from rightlung.scoring.statistics import fewest_clusters

Use = Literal[
    "uses the image selectively", "uses it unstably", "ignores it", "unclear from covering", "too few patients to tell",
    "not asked",
]  # fmt: skip
Dependence = Literal["yes", "no", "too few patients to tell", "not asked"]
SELECTIVE: Final = "uses the image selectively"
UNSTABLE: Final = "uses it unstably"
IGNORES: Final = "ignores it"
NOT_TOLD: Final = "unclear from covering"
TOO_FEW: Final = "too few patients to tell"
NOT_ASKED: Final = "not asked"

TWO_READINGS = (
    "with the finding covered, the response stays: either the model does not use the finding, or the cover looks like "
    "the finding to it; only the same image without the finding (an exact twin) can tell"
)
"""What ``unclear from covering`` means."""

ALL = "all findings"
"""Name of the summary of all findings (`judge`)."""
USES: tuple[Use, ...] = (SELECTIVE, UNSTABLE, IGNORES, NOT_TOLD, TOO_FEW)
PLAIN, COVERED, ELSEWHERE = "none", "occlude-target", "occlude-elsewhere"
REMOVALS = ("twin-removed", COVERED)
"""Conditions that take the finding out of the image; the first that was asked of enough patients decides."""
IMAGE_GATES = (
    *REMOVALS, "twin-moved", "twin-worse", ELSEWHERE, "exchange-image", "exchange-same-finding", "noise-image",
    "mean-image",
)  # fmt: skip
WORD_GATES = ("nonsense-prompt", "empty-prompt", "random-sentence")
SIDE_GATES = ("swap-sides",)
UNTRAINED = "untrained"
GATES = (*IMAGE_GATES, *WORD_GATES, *SIDE_GATES, UNTRAINED)
"""All conditions of the gates, in the order of tables."""
RELEVANT = 0.05
"""The smallest relevant mean change of an answer."""
RELEVANT_FALL = 0.25
"""The smallest relevant fall of the response when the finding is taken away, as a share of the response."""
ELSEWHERE_SHARE = 0.5
"""What a place elsewhere changes is compared with this share of what the finding changes."""


@dataclass(frozen=True)
class GateColumns:
    """The answers about one finding: a value for each instance of the estimator, NaN where not asked."""

    name: str
    response: Mapping[str, Floats]
    """By condition, with ``none``; higher is stronger. Negative values are not allowed."""
    change: Mapping[str, Floats]
    """By condition: how much the answer differs from the unchanged one, 0 to 1."""


@dataclass(frozen=True)
class GateResult:
    """The verdicts about one finding, with every number that they rest on."""

    name: str
    patients: int
    response: Estimate
    """The mean response to the unchanged question."""
    use: Use = NOT_ASKED
    words: Dependence = NOT_ASKED
    side: Dependence = NOT_ASKED
    reason: str = ""
    """The rule that decided, with its numbers' names."""
    removal: str | None = None
    """The condition that took the finding away."""
    effects: dict[str, Comparison] = field(default_factory=dict)
    """By condition: the response under it minus the response to the unchanged question."""
    changes: Mapping[str, Estimate] = field(default_factory=dict)
    """By condition: the mean change of the answer."""
    contrasts: dict[str, Comparison] = field(default_factory=dict)
    """By removal: half the fall of the response under it minus the fall when an equal area elsewhere is covered.

    Under ``occlude-elsewhere``: half the change of the answer with the finding covered minus that with a place
    elsewhere covered.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self)


def judge(groups: Sequence[GateColumns], estimator: Estimator, relevant: float = RELEVANT) -> list[GateResult]:
    """Return the verdicts about each group of answers, with Holm's correction over the groups for every test.

    A group named "all findings" is a summary: it is not corrected and does not count for the others.
    """
    deferred = Deferred(estimator)
    made = [_requested(group, deferred) for group in groups]
    results = [build(estimator) for build in made]
    single = [one for one in results if one.name != ALL]
    _correct([one.effects for one in single], estimator)
    _correct([one.contrasts for one in single], estimator)
    fewest = fewest_patients(estimator.settings.level)
    return [_judged(one, relevant, fewest) for one in results]


def fewest_patients(level: float) -> int:
    """Return from how many patients on a gate is answered: those with which a sign-flip test can be significant."""
    return max(FEW_PATIENTS, fewest_clusters(level))


def _correct(tests: Sequence[dict[str, Comparison]], estimator: Estimator) -> None:
    """Apply Holm's correction to the tests of each condition, in place; those of few patients are not tested."""
    for condition in dict.fromkeys(name for of_group in tests for name in of_group):
        some = [of_group for of_group in tests if condition in of_group]
        found = [of_group[condition] for of_group in some]
        corrected = estimator.adjusted(found, [test.patients >= FEW_PATIENTS for test in found])
        for of_group, test in zip(some, corrected, strict=True):
            of_group[condition] = test


def _requested(group: GateColumns, deferred: Deferred) -> Callable[[Estimator], GateResult]:
    """Request every number about a group; the result builds it without verdicts."""
    before = group.response[PLAIN]
    asked = ~np.isnan(before)
    level = deferred.mean(before)
    effects = {
        name: deferred.difference(after, before)
        for name, after in group.response.items()
        if name != PLAIN and not np.isnan(after - before).all()
    }
    changes = {name: deferred.mean(some) for name, some in group.change.items() if not np.isnan(some).all()}
    contrasts = {}
    if ELSEWHERE in effects:
        elsewhere = before - group.response[ELSEWHERE]
        for name in REMOVALS:
            if name in effects and not np.isnan(fall := before - group.response[name] + 0 * elsewhere).all():
                contrasts[name] = deferred.difference(ELSEWHERE_SHARE * fall, elsewhere)
    if COVERED in changes and ELSEWHERE in changes:
        contrasts[ELSEWHERE] = deferred.difference(ELSEWHERE_SHARE * group.change[COVERED], group.change[ELSEWHERE])

    def build(estimator: Estimator) -> GateResult:
        patients = len(np.unique(estimator.clusters[asked]))
        return GateResult(
            group.name,
            patients,
            level(),
            effects={name: effects[name]() for name in sorted(effects, key=_order)},
            changes={name: changes[name]() for name in sorted(changes, key=_order)},
            contrasts={name: contrast() for name, contrast in contrasts.items()},
        )

    return build


def _order(condition: str) -> int:
    return GATES.index(condition) if condition in GATES else len(GATES)


def _judged(one: GateResult, relevant: float, fewest: int) -> GateResult:
    """Return the result with its verdicts."""
    removal = next((name for name in REMOVALS if name in one.effects and one.effects[name].patients >= fewest), None)
    use, reason = _use(one, removal, relevant, fewest)
    words, side = (_dependence(one, gates, relevant, fewest) for gates in (WORD_GATES, SIDE_GATES))
    return replace(one, use=use, words=words, side=side, reason=reason, removal=removal)


def _use(one: GateResult, removal: str | None, relevant: float, fewest: int) -> tuple[Use, str]:
    """Return the verdict about the image and the rule behind it, in the order of docs/gates.md."""
    changes = {name: one.changes[name] for name in IMAGE_GATES if name in one.changes}
    if not changes:
        return NOT_ASKED, "no condition changes the image"
    if max(change.patients for change in changes.values()) < fewest:
        return TOO_FEW, f"fewer than {fewest} patients"
    counted = {name: change for name, change in changes.items() if change.patients >= fewest}
    if all(change.high < relevant for change in counted.values()):
        return IGNORES, f"no change of the image changes the answer by {relevant:g} or more"
    moving = [name for name, change in counted.items() if change.low >= relevant]
    contrast = one.contrasts.get(removal or "")
    if removal is None or contrast is None or contrast.patients < fewest:
        missing = "the finding taken away" if removal is None else "an equal area elsewhere covered"
        return TOO_FEW, f"fewer than {fewest} patients with {missing}"
    effect = one.effects[removal]
    margin = RELEVANT_FALL * one.response.value
    small = -effect.low < margin  # the whole interval of the fall
    if effect.shown and effect.value < 0 and contrast.shown and contrast.value > 0 and not small:
        return (
            SELECTIVE,
            "without the finding, the response falls more than twice as much as with a place elsewhere covered",
        )
    if moving and small and removal != COVERED:
        return UNSTABLE, f"the answer changes under {moving[0]}, but three quarters of the response need no finding"
    if ELSEWHERE in moving and ELSEWHERE in one.contrasts and one.contrasts[ELSEWHERE].high < 0:
        return UNSTABLE, "covering a place elsewhere changes the answer at least half as much as covering the finding"
    if moving and small:
        return NOT_TOLD, TWO_READINGS
    return TOO_FEW, "the intervals allow more than one verdict"


def _dependence(one: GateResult, gates: Sequence[str], relevant: float, fewest: int) -> Dependence:
    """Return whether the answer changes under any of some conditions."""
    changes = [one.changes[name] for name in gates if name in one.changes]
    if not changes:
        return NOT_ASKED
    counted = [change for change in changes if change.patients >= fewest]
    if any(change.low >= relevant for change in counted):
        return "yes"
    return "no" if counted and all(change.high < relevant for change in counted) else TOO_FEW
