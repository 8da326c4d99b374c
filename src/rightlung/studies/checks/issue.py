"""Issues with check, severity, file, row, field and study, and the ledger that collects them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rightlung.core import FrozenMapping, InputError, Problem
from rightlung.core.errors import unknown_name

MOST_KEPT = 10_000
"""How many findings of one check are kept with their places; the rest is counted, to bound memory."""


class Severity(StrEnum):
    """How certain it is that something is wrong, and how much it matters."""

    ERROR = "error"
    """Certainly wrong, or the row cannot be read."""
    WARNING = "warning"
    """Very likely wrong."""
    HINT = "hint"
    """Unusual; worth a look."""


ERROR, WARNING, HINT = _ORDER = tuple(Severity)


def parse_severity(text: str) -> Severity:
    """Return the severity with this name."""
    try:
        return Severity(text)
    except ValueError:
        raise unknown_name("severity", str(text), [*Severity]) from None


CHECKS: Mapping[str, tuple[Severity, str]] = FrozenMapping(
    {
        "row": (ERROR, "a row that cannot be read"),
        "field-name": (WARNING, "a key that looks like a misspelt field"),
        "placeholder": (WARNING, "a placeholder value such as 'nan'"),
        "duplicate-id": (ERROR, "the same id twice"),
        "patient-splits": (ERROR, "a patient in two splits"),
        "exam-patients": (ERROR, "an examination with two patients, or in two splits"),
        "patient-missing": (WARNING, "rows without a patient, or all with the same one"),
        "split-name": (WARNING, "a split's name in two spellings"),
        "split-missing": (WARNING, "rows without a split among rows that have one"),
        "missing-image": (ERROR, "a missing image file"),
        "unreadable-image": (ERROR, "an image that cannot be decoded"),
        "blank-image": (ERROR, "an image that is empty, completely or in part"),
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
        "box-side": (WARNING, "a box on the other side than its words or region say"),
        "box-level": (WARNING, "a box far above or below its region"),
        "box-layout": (ERROR, "all boxes together look mirrored, transposed or wrongly scaled"),
        "missing-mask": (ERROR, "a missing mask file"),
        "unreadable-mask": (ERROR, "a mask that cannot be decoded"),
        "mask-size": (ERROR, "a mask whose size differs from its image"),
        "mask-empty": (WARNING, "a mask without any pixel"),
        "mask-full": (WARNING, "a mask of nearly all pixels, or of the background"),
        "mask-box": (WARNING, "a mask that does not match the boxes of its phrase or region"),
        "empty-report": (WARNING, "a report without words"),
        "empty-section": (WARNING, "a section without words"),
        "phrase-text": (HINT, "a phrase that is not in its report"),
        "label-value": (ERROR, "an invalid value"),
        "label-name": (WARNING, "an unknown name of a finding or region"),
        "label-contradiction": (WARNING, "labels that contradict each other"),
    }
)
"""Every check by name: its usual severity, and what it finds."""


def visible(text: str) -> str:
    """Return a quoted text with visible blanks where they are easy to overlook: at an end, or several together.

    >>> print(visible("Subcutaneous  Emphysema "), visible("Lung Opacity"))
    'Subcutaneous␣␣Emphysema␣' 'Lung Opacity'
    """
    return repr(re.sub(r"^ +| {2,}| +$", lambda blanks: "␣" * len(blanks[0]), text))


@dataclass(frozen=True, slots=True)
class Origin:
    """The file and row of a study, as far as the source knows."""

    file: str
    row: int | None = None
    study: str | None = None

    def __str__(self) -> str:
        """Describe the place within its file."""
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
        told = {"field": self.field, "message": self.message}
        return {"check": self.check, "severity": str(self.severity), **asdict(self.place), **told}


class Tally(Counter[str]):
    """How often each name occurs; ``first`` is the place and field where it was first seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, tuple[Origin, str]] = {}

    def note(self, name: str, place: Origin, field: str) -> None:
        """Count a name once more."""
        self[name] += 1
        self.first.setdefault(name, (place, field))


class Ledger:
    """All findings of a run by check, in the order of discovery; at most `MOST_KEPT` per check are kept."""

    def __init__(self, least: Severity = HINT) -> None:
        self.least = least
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self._kept: dict[str, list[Issue]] = {}

    def add(self, check: str, place: Origin, field: str | None, message: str, severity: Severity | None = None) -> None:
        """Add a finding; below the requested severity it is not even counted."""
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
        """The number of findings, kept or only counted."""
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Issue]:
        """Iterate over the kept findings: errors first, then in the order of `CHECKS`."""
        for severity in _ORDER:
            for check in CHECKS:
                yield from (found for found in self._kept.get(check, ()) if found.severity is severity)
