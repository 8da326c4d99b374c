"""Which check a problem of a reader belongs to: what the reader says, else what its sentence says."""

from __future__ import annotations

import re

from rightlung.core.problem import Problem
from rightlung.studies.checks.issue import CHECKS

_CUES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (check, re.compile(pattern, re.IGNORECASE))
    for check, pattern in (
        ("duplicate-id", r"already used|\btwice\b|duplicate|was there before"),
        ("missing-mask", r"\bmask\b.*does not exist"),
        ("missing-image", r"\bimage\b.*does not exist|there is no image|no image in|image .*not found"),
        ("box-size", r"\bbox\b.*has no area"),
        ("box-range", r"\bbox\b.*leaves the image"),
        ("box-form", r"a box must"),
        (
            "label-value",
            r"unknown (?:finding|label|polarity|value|category)|is not one of|"
            r"must be (?:one of|1, 0|0 or 1|True or False)",
        ),
        ("unreadable-image", r"\bimage\b.*(?:cannot be read|is not a readable|is truncated|is not an image)"),
    )
)
_AGE = re.compile(r"(?:.*\W)?age(?:\W.*)?", re.IGNORECASE)


def check_of(problem: Problem) -> str:
    """Return the name of the check under which a problem is told.

    >>> check_of(Problem("train.csv", "must be 1, 0, -1 or empty; got '7.0'", 2, "Edema"))
    'label-value'
    >>> check_of(Problem("boxes.json", "the file has no list of boxes"))
    'row'
    """
    if problem.kind in CHECKS:
        return str(problem.kind)
    if problem.field is not None and _AGE.fullmatch(problem.field) and "must be" in problem.message:
        return "label-value"
    return next((check for check, cue in _CUES if cue.search(problem.message)), "row")
