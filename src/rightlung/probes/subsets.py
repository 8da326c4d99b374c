"""Which instances a figure is about: the subsets of "That's the Wrong Lung!", appendix A.6.

An instance is a study and one of its phrases.
"""

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
"""Findings that make nothing abnormal: tubes and lines are told of healthy lungs, too."""

ReportKey = TypeVar("ReportKey", bound=Hashable)


def is_abnormal(phrase: Phrase) -> bool:
    """Whether a sentence is abnormal (A.6): it says that a condition is, or may be, there (`names_condition`).

    A condition in a positive context counts, and so does the label "abnormal" itself. What is uncertain counts: Chest
    ImaGenome's context is yes or no, and hedged sentences are "yes" and "abnormal" in it ("there is the suggestion of
    emphysema", table 5). A positive "normal" or "no finding" does not count, and neither do tubes and lines.
    """
    return names_condition(name for name, polarity in phrase.findings.items() if polarity != Polarity.NEGATIVE)


def names_condition(findings: Iterable[str]) -> bool:
    """Whether any of these findings is a condition.

    This is the one definition of "abnormal": evaluation asks it of a phrase (`is_abnormal`), and training of the
    findings that a sentence says are, or may be, there (``text: abnormal`` and ``abnormal-first`` of a recipe).
    """
    return any(_meaning(name) not in NO_CONDITION for name in findings)


@cache
def _meaning(name: str) -> str:
    found = find(name)  # "normal" means "no finding"
    return name if found is None else found.name


def is_one_lung(phrase: Phrase) -> bool:
    """Whether the phrase's regions, with those that contain them, have the left lung or the right one, and not both."""
    regions = with_containing(phrase.regions)
    return sum(lung in regions for lung in LUNGS) == 1


def mean_overlap(masks: Sequence[NDArray[np.bool_]]) -> float | None:
    """Return the mean IoU of all pairs of a report's label masks; None where there is no pair, or nothing in one."""
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

    ``overlaps`` is `mean_overlap` of each report and ``instances`` how many each has. Reports come whole, the last as
    long as the share is not yet reached; ties go by their key. Reports without a pair cannot be diverse.
    """
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1; got {share}")
    wanted = share * sum(instances.values())
    order: list[Any] = sorted((overlap, str(key), key) for key, overlap in overlaps.items() if overlap is not None)
    before = accumulate((instances[key] for _, _, key in order), initial=0)
    return [key for (_, _, key), taken in zip(order, before, strict=False) if taken < wanted]
