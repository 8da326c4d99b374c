"""Check ids, patients, examinations and splits over a whole data set, whichever split is requested.

Memory holds one entry per patient and examination, not per row.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from rightlung.studies.checks.issue import Ledger, Origin, Tally

_SAME_SPLIT = ({"train", "training"}, {"val", "valid", "validate", "validation", "dev"}, {"test", "testing"})


@dataclass(slots=True)
class _Seen:
    """Where a patient or an examination was first seen."""

    name: str
    place: Origin
    split: str | None
    patient: str | None = None
    reported: bool = False


class PatientChecks:
    """Patients, examinations and their splits."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.rows = 0
        self._missing = Tally()
        self._patients: dict[str, _Seen] = {}
        self._exams: dict[str, _Seen] = {}
        self._splits = Tally()

    def note(self, place: Origin, patient: str | None, exam: str | None, split: str | None) -> None:
        """Add one row."""
        self.rows += 1
        if split is None:
            self._missing.note("split", place, "split")
        else:
            self._splits.note(split, place, "split")
        if patient is None:
            self._missing.note("patient", place, "patient")
        else:
            self._note_patient(place, patient, split)
        if exam is not None:
            self._note_exam(place, patient, exam, split)

    def _note_patient(self, place: Origin, patient: str, split: str | None) -> None:
        # "P17" and "p17 " are one person to the author of the table, but two to a program that makes splits.
        seen = self._patients.setdefault(patient.strip().casefold(), _Seen(patient, place, split))
        if seen.split is None:
            seen.split, seen.place, seen.name = split, place, patient
        # Rows without a split are reported once for all.
        if seen.reported or split is None or _meaning(seen.split) == _meaning(split):
            return
        seen.reported = True
        spelt = "" if seen.name == patient else f", there written {seen.name!r}"
        message = f"patient {patient!r} is in split {split!r} here and in {seen.split!r} ({seen.place}{spelt})"
        self.ledger.add("patient-splits", place, "patient", message)

    def _note_exam(self, place: Origin, patient: str | None, exam: str, split: str | None) -> None:
        seen = self._exams.setdefault(exam, _Seen(exam, place, split, patient))
        seen.split = split if seen.split is None else seen.split
        told = None
        if seen.patient != patient:
            told = f"of patient {patient!r} here and of {seen.patient!r}"
        elif patient is None and split is not None and _meaning(seen.split) != _meaning(split):
            told = f"in split {split!r} here and in {seen.split!r}"
        if told and not seen.reported:
            seen.reported = True
            self.ledger.add("exam-patients", place, "study", f"examination {exam!r} is {told} ({seen.place})")

    def finish(self, place: Origin) -> None:
        """Report what only all rows together show."""
        for field, given, effect in (
            ("patient", self._patients, "confidence intervals and splits treat each as a separate patient"),
            ("split", self._splits, "no split= selects them"),
        ):
            if given and self._missing[field]:
                share = f"{self._missing[field]:,} of {self.rows:,} rows have no {field}"
                self.ledger.add(
                    f"{field}-missing", *self._missing.first[field], f"{share}, this is the first; {effect}"
                )
        if len(self._patients) == 1 and self.rows >= 10 and not self._missing["patient"]:
            (only,) = self._patients.values()
            self.ledger.add("patient-missing", place, "patient", f"all {self.rows:,} rows have patient {only.name!r}")
        self._finish_splits()

    def _finish_splits(self) -> None:
        by_meaning: dict[str | None, list[str]] = {}
        for name in self._splits:
            by_meaning.setdefault(_meaning(name), []).append(name)
        for names in by_meaning.values():
            usual = max(names, key=lambda name: self._splits[name])
            for name in names:
                if name != usual:
                    self._report_split(name, f"is written {usual!r} elsewhere ({self._splits[usual]:,} rows)")
        for name, count in self._splits.items():
            frequent = [other for other, uses in self._splits.items() if count * 10 <= uses]
            near = difflib.get_close_matches(name.casefold(), [other.casefold() for other in frequent], 1, 0.75)
            meant = next((other for other in frequent if other.casefold() in near), None)
            if meant is not None and _meaning(name) != _meaning(meant):
                self._report_split(name, f"looks like a misspelt {meant!r}")

    def _report_split(self, name: str, told: str) -> None:
        message = f"split {name!r} ({self._splits[name]:,} rows) {told}"
        self.ledger.add("split-name", *self._splits.first[name], message)


def _meaning(split: str | None) -> str | None:
    """Return one name for all spellings of a split, so that 'Train' and 'training' count as the same."""
    if split is None:
        return None
    plain = split.strip().casefold()
    return next((min(names) for names in _SAME_SPLIT if plain in names), plain)
