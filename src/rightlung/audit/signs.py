"""Shortcuts: does the probability of a finding depend on a planted sign that is not the finding?

The phantom renders the same image without a sign that it has, and with one that it lacks (docs/phantom.md). Everything
else is equal to the pixel, so a change of a finding's probability is the exact causal effect of the sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.core.files import plain_fields
from rightlung.pages.content import MarkedSentence
from rightlung.pages.numbers import span
from rightlung.probes.twins import SIGNS
from rightlung.results.estimate import BootstrapSettings, Comparison
from rightlung.results.estimator import Estimator
from rightlung.results.gates import PLAIN, RELEVANT, fewest_patients
from rightlung.results.groups import FEW_PATIENTS


@dataclass(frozen=True)
class SignEffect:
    """The change of a finding's probability under a condition that changes a sign."""

    sign: str
    condition: str
    finding: str
    change: Comparison

    @property
    def shortcut(self) -> bool:
        """Whether a relevant change is shown: the whole interval is at least `RELEVANT` away from zero."""
        return self.change.shown and min(abs(self.change.low), abs(self.change.high)) >= RELEVANT

    @property
    def excluded(self) -> bool:
        """Whether a relevant change is excluded, by enough patients."""
        enough = self.change.patients >= fewest_patients(self.change.level)
        return enough and max(abs(self.change.low), abs(self.change.high)) < RELEVANT

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return plain_fields(self, shortcut=self.shortcut)


def sign_effects(table: pa.Table, settings: BootstrapSettings) -> list[SignEffect]:
    """Return the effect of each sign on each finding, with Holm's correction over all of them."""
    scores: dict[str, dict[tuple[str, str], float]] = {}
    patients: dict[str, str] = {}
    for row in table.select(["study", "patient", "condition", "target", "finding_score"]).to_pylist():
        if row["condition"] in (PLAIN, *SIGNS) and row["finding_score"] is not None:
            scores.setdefault(row["condition"], {})[row["study"], row["target"]] = row["finding_score"]
            patients[row["study"]] = row["patient"] or f"study {row['study']}"
    studies, findings = [*patients], sorted({finding for _, finding in scores.get(PLAIN, {})})
    pairs = [(condition, finding) for condition in SIGNS if condition in scores for finding in findings]
    before = [np.array([scores[PLAIN].get((study, finding), np.nan) for study in studies]) for _, finding in pairs]
    after = [np.array([scores[name].get((study, finding), np.nan) for study in studies]) for name, finding in pairs]
    if not pairs:
        return []
    estimator = Estimator([patients[study] for study in studies], settings)
    changes = estimator.differences(after, before)
    changes = estimator.adjusted(changes, [one.patients >= FEW_PATIENTS for one in changes])
    return [SignEffect(SIGNS[name][1], name, finding, one) for (name, finding), one in zip(pairs, changes, strict=True)]


def sign_sentences(effects: Iterable[SignEffect]) -> list[MarkedSentence]:
    """Say of each sign whether the model relies on it, and how strongly."""
    by_sign: dict[str, list[SignEffect]] = {}
    for one in effects:
        by_sign.setdefault(one.sign, []).append(one)
    found = []
    for sign, some in by_sign.items():
        strongest = sorted(some, key=lambda one: -abs(np.nan_to_num(one.change.value)))
        named = [*dict.fromkeys(one.finding for one in strongest if one.shortcut)]
        shown = [one for one in strongest if one.finding in named][:4] or strongest[:1]
        how = {one.condition: one.condition.replace("-", " the ") for one in shown}
        changes = [f"{how[one.condition]}, {one.finding} {span(one.change, signed=True)}" for one in shown]
        detail = f"Change of the probability: {'; '.join(changes)}."
        if named:
            text = f"Shortcut: the {sign} changes the probability of {', '.join(named)}."
            found.append(MarkedSentence("no", text, detail))
        elif all(one.excluded for one in some):
            found.append(MarkedSentence("yes", f"The {sign} is no shortcut.", detail))
        else:
            found.append(MarkedSentence("unclear", f"No shortcut is shown: the {sign}.", detail))
    return found
