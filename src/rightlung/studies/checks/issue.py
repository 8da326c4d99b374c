"""What the lint finds: each issue with its check, severity, file, row, field and study, and the ledger of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rightlung.core import FrozenMapping, InputError, Problem
from rightlung.core.errors import unknown_name

MOST_KEPT = 10_000
"""How many findings of one check are kept with their places; the rest is counted. Memory stays bounded."""


class Severity(StrEnum):
    """How sure it is that something is wrong, and how much it matters."""

    ERROR = "error"
    """Wrong for certain, or the row cannot be read."""
    WARNING = "warning"
    """Very likely wrong."""
    HINT = "hint"
    """Unusual: look at it."""


ERROR, WARNING, HINT = _ORDER = tuple(Severity)


def parse_severity(text: str) -> Severity:
    """Return the severity of this name."""
    try:
        return Severity(text)
    except ValueError:
        raise unknown_name("severity", str(text), [*Severity]) from None


CHECKS: Mapping[str, tuple[Severity, str]] = FrozenMapping(
    {
        "row": (ERROR, "a row that cannot be read"),
        "field-name": (WARNING, "a key that looks like a misspelt field"),
        "placeholder": (WARNING, "a value such as 'nan' that stands for nothing"),
        "duplicate-id": (ERROR, "the same id twice"),
        "patient-splits": (ERROR, "a patient in two splits"),
        "exam-patients": (ERROR, "an examination of two patients, or in two splits"),
        "patient-missing": (WARNING, "rows without patient, or all of one"),
        "split-name": (WARNING, "a split's name in two spellings"),
        "split-missing": (WARNING, "rows without split among rows that have one"),
        "missing-image": (ERROR, "an image file that is not there"),
        "unreadable-image": (ERROR, "an image that cannot be decoded"),
        "blank-image": (ERROR, "an image that shows nothing, wholly or in part"),
        "duplicate-image": (WARNING, "the same image under two ids"),
        "mirrored-image": (HINT, "the heart on the wrong side of the image"),
        "turned-image": (HINT, "an image upside down or on its side"),
        "inverted-image": (HINT, "black and white exchanged"),
        "odd-image": (HINT, "an image that does not look like a whole frontal radiograph"),
        "box-form": (ERROR, "a box that is not four numbers"),
        "box-range": (ERROR, "a box that leaves the image"),
        "box-scale": (ERROR, "pixels or percent instead of fractions"),
        "box-order": (ERROR, "coordinates in the wrong order"),
        "box-size": (ERROR, "a box without area"),
        "box-side": (WARNING, "a box on the other side than its words or region"),
        "box-level": (WARNING, "a box far above or below its region"),
        "box-layout": (ERROR, "all boxes together look mirrored, transposed or wrongly scaled"),
        "missing-mask": (ERROR, "a mask file that is not there"),
        "unreadable-mask": (ERROR, "a mask that cannot be decoded"),
        "mask-size": (ERROR, "a mask of another size than its image"),
        "mask-empty": (WARNING, "a mask without a pixel"),
        "mask-full": (WARNING, "a mask of nearly all pixels, or of the background"),
        "mask-box": (WARNING, "a mask beside the boxes of the same phrase or region"),
        "empty-report": (WARNING, "a report that says nothing"),
        "empty-section": (WARNING, "a section without a word"),
        "phrase-text": (HINT, "a phrase that is not in its report"),
        "label-value": (ERROR, "a value outside its set"),
        "label-name": (WARNING, "a finding's or region's name outside its set"),
        "label-contradiction": (WARNING, "labels that contradict each other"),
    }
)
"""Every check by name: the severity it usually has, and what it finds."""


def visible(text: str) -> str:
    """Return a text in quotes, its blanks visible where they would be overlooked: at an end, or several together.

    >>> print(visible("Subcutaneous  Emphysema "), visible("Lung Opacity"))
    'Subcutaneous␣␣Emphysema␣' 'Lung Opacity'
    """
    return repr(re.sub(r"^ +| {2,}| +$", lambda blanks: "␣" * len(blanks[0]), text))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a study comes from: a file and a row of it, as far as the source knows."""

    file: str
    row: int | None = None
    study: str | None = None

    def __str__(self) -> str:
        """Name it for people, within its file."""
        if self.row is not None:
            return f"line {self.row}"
        return f"study {self.study!r}" if self.study is not None else self.file


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is, or may be, wrong."""

    check: str
    severity: Severity
    place: Origin
    field: str | None
    message: str

    def __str__(self) -> str:
        of_study = self.place.row is None and self.place.study is not None
        file = f"{self.place.file}, study {self.place.study!r}" if of_study else self.place.file
        return str(Problem(file, self.message, self.place.row, self.field))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        place = {"file": self.place.file, "row": self.place.row, "study": self.place.study}
        told = {"field": self.field, "message": self.message}
        return {"check": self.check, "severity": str(self.severity), **place, **told}


class Ledger:
    """All findings of a run, by check, in the order they were made; at most `MOST_KEPT` of each check are kept."""

    def __init__(self, least: Severity = HINT) -> None:
        self.least = least
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self._kept: dict[str, list[Issue]] = {}

    def add(self, check: str, place: Origin, field: str | None, message: str, severity: Severity | None = None) -> None:
        """Note a finding; below the least severity asked for it is not even counted."""
        if check not in CHECKS:
            raise InputError(f"there is no check {check!r}")
        severity = CHECKS[check][0] if severity is None else severity
        if _ORDER.index(severity) > _ORDER.index(self.least):
            return
        self.counts[check, severity] += 1
        kept = self._kept.setdefault(check, [])
        if len(kept) < MOST_KEPT:
            kept.append(Issue(check, severity, place, field, " ".join(message.split())))

    @property
    def total(self) -> int:
        """How many findings there are, kept or only counted."""
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Issue]:
        """Go through the kept findings: errors first, then in the order of `CHECKS`."""
        for severity in _ORDER:
            for check in CHECKS:
                yield from (found for found in self._kept.get(check, ()) if found.severity is severity)
