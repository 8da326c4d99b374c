"""Gates of findings in images or regions: the probabilities of a classifier, or the scores of a detector's boxes.

An instance is a finding that an image or a region shows. Twins and occlusions change one finding of each image, and
only answers about that finding count there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rightlung.audit.gates import (
    RESPONSE,
    TWINS,
    Gates,
    have_gates,
    judged,
    members_of,
    reasons_not_asked,
    twin_effects,
    without_answers,
)
from rightlung.audit.signs import sign_effects
from rightlung.core import Study
from rightlung.probes.twins import TWIN, changed_finding, occluded_finding
from rightlung.results.estimate import BootstrapSettings
from rightlung.results.estimator import Estimator
from rightlung.results.gates import ELSEWHERE, GATES, PLAIN, REMOVALS
from rightlung.studies import Source

NO_FINDING = "no finding"
_COLUMNS = {
    "box_scores": ("box_scores", "box_matches", "box_targets"),
    "finding_score": ("finding_score", "finding_label"),
}
"""The columns that answers are made of, by the first of them; every table has the last."""
_TITLES = {
    "finding_score": (
        "probability of the finding in images or regions that show it", "absolute difference of the probability",
    ),
    "box_scores": (
        "highest score of a box of the finding that overlaps it (IoU of 0.1 or more), 0 without such a box",
        "absolute difference of that score, or of the finding's highest score anywhere if that is larger",
    ),
}  # fmt: skip
"""What the response and the change of an answer are."""


def finding_gates(
    table: pa.Table, settings: BootstrapSettings, source: Source, left_out: Mapping[str, str] | None = None
) -> Gates | None:
    """Return the verdicts about findings in images, None if no gate was asked or the table is about something else."""
    conditions = [name for name in GATES if name in set(table["condition"].to_pylist())]
    kind = next((name for name in _COLUMNS if name in table.column_names), None)
    if kind is None or not have_gates(conditions):
        return None
    answers: dict[str, dict[tuple[str, str, str], tuple[float, float]]] = {name: {} for name in (PLAIN, *conditions)}
    patients: dict[tuple[str, str, str], str] = {}
    for row in table.select(["study", "query", "patient", "condition", "target", *_COLUMNS[kind]]).to_pylist():
        key = row["study"], row["query"], row["target"]
        if row["condition"] in answers and (answer := _answer(row)) is not None:
            answers[row["condition"]][key] = answer
            patients[key] = row["patient"] or f"study {row['study']}"
    if not (keys := [*patients]):
        return None
    drawn = _drawn_findings(source, conditions, {study for study, *_ in keys})
    values = {}
    for name, found in answers.items():
        subjects = drawn.get(name)
        used = [key in found and (subjects is None or subjects.get(key[0]) == key[2]) for key in keys]
        values[name] = np.array([found[key] if there else (np.nan,) * 2 for key, there in zip(keys, used, strict=True)])
    responses = {name: one[:, 0] for name, one in values.items()}
    changes = {name: abs(values[name] - values[PLAIN]).max(axis=1) for name in conditions}
    estimator = Estimator([patients[key] for key in keys], settings)
    members = members_of(~np.isnan(responses[PLAIN]), [(finding,) for *_, finding in keys])
    reasons = reasons_not_asked(source, with_words=False) | {**(left_out or {})}
    return Gates(
        judged(estimator, members, responses, changes), *_TITLES[kind], without_answers(conditions, reasons),
        twin_effects(estimator, members, {RESPONSE: responses}), sign_effects(table, settings),
    )  # fmt: skip


def _answer(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the response of an answer, and its score of the finding; None if the image does not show the finding."""
    if row["target"] == NO_FINDING:
        return None
    if "box_scores" not in row:
        return (row["finding_score"], row["finding_score"]) if row["finding_label"] == 1 else None
    if row["box_scores"] is None or not row["box_targets"] > 0:
        return None
    hits = [score for score, matches in zip(row["box_scores"], row["box_matches"], strict=True) if matches & 1]
    return max(hits, default=0.0), max(row["box_scores"], default=0.0)


def _drawn_findings(source: Source, conditions: Iterable[str], studies: set[str]) -> dict[str, dict[str, str | None]]:
    """Return the finding that each twin and each occlusion changes, by condition and study."""

    def occluded(study: Study) -> str | None:
        covered = occluded_finding(study)
        return None if covered is None else next(iter(covered.findings))

    rules: dict[str, Callable[[Study], str | None]] = dict.fromkeys((REMOVALS[1], ELSEWHERE), occluded)
    rules |= {name: partial(changed_finding, phrase=None, change=name.removeprefix(TWIN)) for name in TWINS}
    found: dict[str, dict[str, str | None]] = {name: {} for name in conditions if name in rules}
    for study in source if found else ():
        if study.id in studies:
            for name, of_study in found.items():
                of_study[study.id] = rules[name](study)
    return found
