"""Subsets of instances of "That's the Wrong Lung!", appendix A.6. An instance is a study and one of its phrases."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError, Phrase, Polarity
from rightlung.lexicon import find
from rightlung.lexicon.regions import LUNGS, with_containing

NO_CONDITION = frozenset({"no finding", "support devices"})
"""Findings that are not abnormal: tubes and lines occur with healthy lungs, too."""

ReportKey = TypeVar("ReportKey", bound=Hashable)


def is_abnormal(phrase: Phrase) -> bool:
    """Whether a phrase says that a condition is, or may be, present (A.6; see `names_condition`).

    Uncertain findings count: Chest ImaGenome labels hedged sentences "yes" and "abnormal" ("there is the suggestion of
    emphysema", table 5). The label "abnormal" counts; "normal", "no finding", tubes and lines do not.
    """
    return names_condition(name for name, polarity in phrase.findings.items() if polarity != Polarity.NEGATIVE)


def names_condition(findings: Iterable[str]) -> bool:
    """Whether any of these findings is a condition.

    The one definition of "abnormal", for evaluation (`is_abnormal`) and training (``text: abnormal`` in a recipe).
    """
    return any(_meaning(name) not in NO_CONDITION for name in findings)


@cache
def _meaning(name: str) -> str:
    found = find(name)  # "normal" means "no finding"
    return name if found is None else found.name


def is_one_lung(phrase: Phrase) -> bool:
    """Whether the phrase's regions, with those that contain them, include exactly one lung."""
    regions = with_containing(phrase.regions)
    return sum(lung in regions for lung in LUNGS) == 1


def mean_overlap(masks: Sequence[NDArray[np.bool_]]) -> float | None:
    """Return the mean IoU of all pairs of a report's target masks; None if there is no pair."""
    values = []
    for one, other in combinations(masks, 2):
        if one.shape != other.shape:
            raise InputError(f"the masks of one report differ in size: {one.shape} and {other.shape}")
        union = int(np.count_nonzero(one | other))
        if union:
            values.append(np.count_nonzero(one & other) / union)
    return float(np.mean(values)) if values else None


def most_diverse_reports(
    overlaps: Mapping[ReportKey, float | None], instances: Mapping[ReportKey, int], share: float = 0.1
) -> list[ReportKey]:
    """Return the reports with the smallest mean overlap that together hold ``share`` of all instances.

    ``overlaps`` is `mean_overlap` and ``instances`` the number of instances of each report. Reports are complete; ties
    go by key. Reports without a pair are left out.
    """
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1; got {share}")
    wanted = share * sum(instances.values())
    order: list[Any] = sorted((overlap, str(key), key) for key, overlap in overlaps.items() if overlap is not None)
    before = accumulate((instances[key] for _, _, key in order), initial=0)
    return [key for (_, _, key), taken in zip(order, before, strict=False) if taken < wanted]
