"""Gates of an audit: which conditions apply to a source, and the verdicts that their answers give (docs/gates.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rightlung.audit.signs import SignEffect, sign_sentences
from rightlung.core import InputError
from rightlung.core.files import plain_fields
from rightlung.models.untrained import untrained
from rightlung.probes.twins import SIGNS, TWIN
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.results.estimator import Deferred, Estimator, Floats
from rightlung.results.gates import (
    ALL,
    ELSEWHERE_SHARE,
    GATES,
    IMAGE_GATES,
    PLAIN,
    RELEVANT,
    RELEVANT_FALL,
    UNTRAINED,
    USES,
    GateColumns,
    GateResult,
    fewest_patients,
    judge,
)
from rightlung.results.groups import FEW_PATIENTS
from rightlung.results.measured import Measured
from rightlung.studies import Source

LOCATION_PRIOR, CENTRE_PRIOR = "location-prior", "centre-prior"
"""Names of the image-blind priors among the effects: the response of the prior instead of the model's."""
PRIORS = (LOCATION_PRIOR, CENTRE_PRIOR)
RESPONSE = "response"
"""The name of the response among the measures that twins change."""
CENTRE_COLUMN = "centre_mass_inside"
"""The column of the instances table with the response of the centre prior."""
TWINS = tuple(name for name in GATES if name.startswith(TWIN))
_SIGNS = {*GATES} - {"swap-sides", "exchange-image", "random-sentence"}
"""Conditions that show that gates were asked for; the others are asked in any audit, or for other reasons."""
_TWIN_MEASURES = ("average_precision", "peak_on_side", "similarity_global", "similarity_local", "abstention")


@dataclass(frozen=True)
class Gates:
    """The verdicts of one task; the first result is that of all findings together."""

    results: Sequence[GateResult]
    response: str
    """What the response is."""
    change: str
    """What the change of an answer is."""
    not_asked: Mapping[str, str] = field(default_factory=dict)
    """Gates that were not asked, with the reason."""
    twins: Mapping[str, Mapping[str, Mapping[str, Comparison]]] = field(default_factory=dict)
    """Exact causal effects: the change of each measure, by finding and twin."""
    signs: Sequence[SignEffect] = ()
    """Exact causal effects of planted signs (`rightlung.audit.signs`)."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, with the limits of the rules."""
        return plain_fields(self, rules=limits(self.level))

    @property
    def level(self) -> float:
        """The level of the intervals."""
        levels = [one.level for result in self.results for one in result.effects.values()]
        return levels[0] if levels else BootstrapSettings().level

    @property
    def fewest(self) -> int:
        """From how many patients on there is a verdict."""
        return fewest_patients(self.level)

    @property
    def sentence(self) -> str:
        """The verdicts in one sentence, by verdict."""
        findings = [one for one in self.results if one.name != ALL]
        named = {use: [one.name for one in findings if one.use == use] for use in USES}
        parts = [f"{use} for {', '.join(names)}" for use, names in named.items() if names]
        shortcuts = "".join(f" {one.text}" for one in sign_sentences(self.signs) if one.mark == "no")
        return f"Gates: all findings together: {self.results[0].use}. By finding: {'; '.join(parts)}.{shortcuts}"


def limits(level: float) -> dict[str, float]:
    """Return the limits of the rules behind the verdicts, with intervals of a level."""
    return {
        "relevant_change": RELEVANT, "relevant_fall": RELEVANT_FALL, "share_elsewhere": ELSEWHERE_SHARE,
        "fewest_patients": fewest_patients(level),
    }  # fmt: skip


def gate_conditions(model: object, source: Source, with_words: bool = True) -> tuple[list[str], dict[str, str]]:
    """Return the gates that can be asked, and why the others cannot."""
    left_out = reasons_not_asked(source, with_words)
    try:
        untrained(model)
    except InputError:
        left_out[UNTRAINED] = "the model has no weights of PyTorch"
    signs = [name for name, (_, sign) in SIGNS.items() if sign in source.signs and not with_words]
    return [*(name for name in GATES if name not in left_out), *signs], left_out


def reasons_not_asked(source: Source, with_words: bool = True) -> dict[str, str]:
    """Return why gates do not apply to the questions about a source."""
    found = {}
    if not source.has_twins:
        found = dict.fromkeys(TWINS, "only the sources phantom?… and painted:… render exact twins")
    if not with_words:
        words = [name for name in GATES if name not in (*IMAGE_GATES, UNTRAINED)]
        found |= dict.fromkeys([*words, "exchange-same-finding"], "the question has no words")
    return found


def have_gates(conditions: Iterable[str]) -> bool:
    """Return whether some answers were asked for to be judged by gates."""
    return bool(_SIGNS & {*conditions})


def map_gates(
    measured: Measured, settings: BootstrapSettings, source: Source, left_out: Mapping[str, str] | None = None
) -> Gates | None:
    """Return the verdicts about a model's heatmaps, None if no gate was asked.

    ``measured`` holds the ``model``, and the image-blind ``prior`` if it was measured.
    """
    if not have_gates(measured.conditions):
        return None
    target, scored = measured.targets[0], measured.has(measured.targets[0]) & measured.asked("model")
    value = partial(measured.value, "model", target=target)

    def response(condition: str, slug: str = "model") -> Floats:
        inside, declined = (measured.value(slug, name, target, condition) for name in ("mass_inside", "abstention"))
        return inside * (1 - np.nan_to_num(declined))

    conditions = [name for name in GATES if name in measured.conditions]
    responses = {name: response(name) for name in (PLAIN, *conditions)}
    responses |= {LOCATION_PRIOR: response(PLAIN, "prior"), CENTRE_PRIOR: value(CENTRE_COLUMN)}
    changes = {name: value("moved_mass", condition=name) for name in conditions}
    findings = [tuple(names or ()) for names in measured.fact("findings")]
    members = members_of(scored, findings)
    results = judged(measured.estimator(settings), members, responses, changes)
    names = [name for name in _TWIN_MEASURES if not np.isnan(value(name)).all()]
    columns = {name: {PLAIN: value(name)} | {one: value(name, condition=one) for one in TWINS} for name in names}
    twins = twin_effects(measured.estimator(settings), members, {RESPONSE: responses} | columns)
    return Gates(
        results, "share of the map's mass that lies in the target; what the model abstains from counts as outside",
        "map change: total variation between the map and the original one, 0 to 1",
        without_answers(conditions, reasons_not_asked(source) | {**(left_out or {})}), twins,
    )  # fmt: skip


def members_of(scored: Any, findings: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return which instances are about all findings, and about each, the most frequent first."""
    counted = np.array([bool(names) for names in findings], dtype=bool) & scored
    names = sorted({name for one, there in zip(findings, counted, strict=True) if there for name in one})
    inside = {name: counted & np.array([name in one for one in findings], dtype=bool) for name in names}
    return {ALL: counted} | dict(sorted(inside.items(), key=lambda item: -int(item[1].sum())))


def judged(
    estimator: Estimator, members: Mapping[str, Any], responses: Mapping[str, Floats], changes: Mapping[str, Floats]
) -> list[GateResult]:
    """Return the verdicts about groups of instances, from their responses and changes by condition."""
    groups = []
    for name, inside in members.items():
        within = ({key: np.where(inside, one, np.nan) for key, one in some.items()} for some in (responses, changes))
        groups.append(GateColumns(name, *within))
    return judge(groups, estimator)


def twin_effects(
    estimator: Estimator, members: Mapping[str, Any], columns: Mapping[str, Mapping[str, Floats]]
) -> dict[str, dict[str, dict[str, Comparison]]]:
    """Return the mean change of each measure under each twin, by finding; groups of few patients are left out."""
    deferred = Deferred(estimator)
    requests = []
    for name, inside in members.items():
        for twin in TWINS:
            for measure, by_condition in columns.items():
                after, before = (by_condition.get(one, np.full(len(inside), np.nan)) for one in (twin, PLAIN))
                used = inside & ~np.isnan(after - before)
                if len(np.unique(estimator.clusters[used])) >= FEW_PATIENTS:
                    after, before = (np.where(used, one, np.nan) for one in (after, before))
                    requests.append((name, twin, measure, deferred.difference(after, before)))
    found: dict[str, dict[str, dict[str, Comparison]]] = {}
    for name, twin, measure, build in requests:
        found.setdefault(name, {}).setdefault(twin, {})[measure] = build()
    return found


def without_answers(asked: Iterable[str], reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the gates that were not asked, with the reason."""
    return {name: reasons.get(name, "not asked") for name in GATES if name not in {*asked}}
