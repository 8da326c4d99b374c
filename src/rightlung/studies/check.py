"""The checks behind ``rightlung data check``. ``docs/checks.md`` describes them.

Studies are checked one at a time. A manifest is read line by line, so that rows that the reader rejects are explained
and checked, too; other sources are checked by the studies they yield and their ``problems``. Ids, patients and splits
are compared over the whole data set, whatever ``split`` and ``limit`` the address has: other sources are opened a
second time without them, without loading images.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, urlencode

from rightlung.core import Image, InputError, Study
from rightlung.core.progress import Progress, no_progress
from rightlung.studies.checks.coordinates import CoordinateChecks
from rightlung.studies.checks.images import ImageChecks
from rightlung.studies.checks.issue import HINT, WARNING, Issue, Ledger, Origin, Severity, Tally, visible
from rightlung.studies.checks.labels import LabelChecks
from rightlung.studies.checks.manifest import misspelt_fields, raw_rows, report_faults, row_item
from rightlung.studies.checks.masks import MaskChecks
from rightlung.studies.checks.patients import PatientChecks
from rightlung.studies.checks.reports import ReportChecks
from rightlung.studies.checks.sides import SideChecks
from rightlung.studies.checks.targets import Item, study_targets
from rightlung.studies.manifest import manifest_lines, manifest_storage
from rightlung.studies.sources import Address, Source, open_source, parse_address


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check. ``counts`` has all findings by check and severity, ``findings`` those that were kept."""

    address: str
    rows: int
    studies: int
    images: int
    findings: tuple[Issue, ...]
    counts: dict[tuple[str, Severity], int]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number of findings."""
        return sum(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        severities = dict.fromkeys(map(str, Severity), 0)
        checks: Counter[str] = Counter()
        for (check, severity), count in self.counts.items():
            severities[str(severity)] += count
            checks[check] += count
        return {
            "address": self.address,
            "rows": self.rows,
            "studies": self.studies,
            "images": self.images,
            "total": self.total,
            "severities": severities,
            "checks": dict(checks.most_common()),
            "findings": [finding.as_dict() for finding in self.findings],
            "notes": list(self.notes),
        }


def check_source(
    address: str,
    *,
    images: bool = True,
    limit: int | None = None,
    least: Severity = HINT,
    progress: Progress = no_progress,
) -> CheckResult:
    """Check every study of a source, or the first ``limit``.

    Without ``images``, no image and no mask is decoded. Findings below the severity ``least`` are left out.
    """
    run = _CheckRun(Ledger(least), images, limit, progress)
    parsed = parse_address(address)
    if parsed.scheme == "manifest":
        run.check_manifest(parsed)
    else:
        run.check_other(parsed)
    counted = run.patients.rows, run.studies, run.image_checks.decoded
    return CheckResult(address, *counted, tuple(run.ledger), dict(run.ledger.counts), tuple(run.notes))


@dataclass
class _CheckRun:
    """One check of one source."""

    ledger: Ledger
    images: bool
    limit: int | None
    progress: Progress
    studies: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.patients = PatientChecks(self.ledger)
        self.coordinates = CoordinateChecks(self.ledger)
        self.sides = SideChecks(self.ledger)
        self.labels = LabelChecks(self.ledger)
        self.reports = ReportChecks(self.ledger)
        self.image_checks = ImageChecks(self.ledger)
        self.masks = MaskChecks(self.ledger, self.sides)
        self.ids: dict[str, Origin] = {}

    def check_manifest(self, address: Address) -> None:
        """Check a manifest line by line."""
        storage = manifest_storage(address)
        limit = min((n for n in (self.limit, address.whole_number("limit", minimum=1)) if n is not None), default=None)
        total = sum(1 for _ in manifest_lines(storage))
        if not total:
            raise InputError(f"{address}: {storage.manifest_name} has no rows")
        split = address.parameters.get("split")
        found_split = split is None
        files: dict[str, Origin] = {}
        misspelt = Tally()
        for done, found in enumerate(raw_rows(storage), start=1):
            row, image = found.row, None
            if row is not None:
                if "id" not in found.void:
                    self._note_id(found.place, row.id)
                if "patient" in found.void:  # given but unreadable is not missing
                    self.patients.rows += 1
                else:
                    self.patients.note(found.place, row.patient, row.exam, row.split)
                wanted = split is None or row.split == split
                found_split |= wanted
                if wanted and (limit is None or self.studies < limit):
                    item, missing = row_item(found, row, storage, str(address))
                    # With images, the same pixels are found whatever their names.
                    if not self.images and "file" not in found.void:
                        first = files.setdefault(row.file, found.place)
                        if first is not found.place:
                            message = f"the same file as for {first.study!r} (line {first.row})"
                            self.ledger.add("duplicate-image", found.place, "file", message)
                    image = self._check(item)
                    report_faults(self.ledger, self.coordinates, found, missing, None)
                    for key, meant in misspelt_fields(found.raw):
                        misspelt.note(f"{key!r} looks like the field {meant!r}", found.place, key)
            report_faults(self.ledger, self.coordinates, found, found.faults, image)
            self.progress("checking", done, total)
        if not found_split:
            raise InputError(f"{address}: no row of {storage.manifest_name} has the split {split!r}")
        for told, count in misspelt.items():
            ignored = f"it is kept in extra and otherwise ignored ({count:,} rows, this is the first)"
            self.ledger.add("field-name", *misspelt.first[told], f"{told}; {ignored}")
        self._finish(Origin(storage.manifest_name))

    def check_other(self, address: Address) -> None:
        """Check the studies and problems of a source."""
        source = open_source(str(address))
        total = len(source) if self.limit is None else min(self.limit, len(source))
        narrowed = self.limit is not None or bool({"split", "limit"} & set(address.parameters))
        whole = self._note_all(address) if narrowed else False
        for study in source:
            if self.studies >= total:
                break
            item = Item(_place_of(source, study.id), study, tuple(study_targets(study)), image_field="image")
            if not whole:
                self._note_study(item.place, study)
            self._check(item)
            self.progress("checking", self.studies, total)
        for problem in source.problems:
            place = Origin(problem.file, problem.line)
            self.ledger.add(problem.kind or "row", place, problem.field, problem.message)
        self._finish(_place_of(source, None))

    def _note_all(self, address: Address) -> bool:
        """Note who is in which split over the whole source; return whether that was possible."""
        parameters = {name: value for name, value in address.parameters.items() if name not in ("split", "limit")}
        query = urlencode(parameters, safe="/", quote_via=quote)
        path = f":{address.path}" if address.path else ""
        try:
            source = open_source(f"{address.scheme}{path}?{query}" if query or path else address.scheme)
        except InputError as error:
            self.notes.append(f"patients were compared only within the address: {error}")
            return False
        for study in source:
            self._note_study(_place_of(source, study.id), study)
        return True

    def _note_study(self, place: Origin, study: Study) -> None:
        self._note_id(place, study.id)
        self.patients.note(place, study.patient, study.exam, study.split)

    def _check(self, item: Item) -> Image | None:
        """Check one study; return its image if it was loaded."""
        self.studies += 1
        for _, _, box in item.boxes():
            self.coordinates.note_good(box.as_tuple())
        self._check_whole_boxes(item)
        self.labels.check(item)
        self.reports.check(item)
        self.sides.check(item)
        if not self.images:
            return None
        image = self.image_checks.check(item) if item.image_field not in item.void else None
        self.masks.check(item, image)
        if image is not None:
            self._check_box_sizes(item, image)
        return image

    def _check_whole_boxes(self, item: Item) -> None:
        """Find boxes that cover the whole image: a placeholder for boxes that nobody drew."""
        drawn = [(name, box) for target, name, box in item.boxes() if target.kind != "region"]
        if drawn and all(box.width > 0.999 and box.height > 0.999 for _, box in drawn):
            boxes = "the box is" if len(drawn) == 1 else f"all {len(drawn)} boxes of the study are"
            self.ledger.add("box-size", item.place, drawn[0][0], f"{boxes} the whole image", HINT)

    def _check_box_sizes(self, item: Item, image: Image) -> None:
        height, width = image.shape
        for _, name, box in item.boxes():
            # What is left at the image's edge of a region outside it is thin, which is not a fault.
            at_edge = min(box.x0, box.y0) <= 0.0 or max(box.x1, box.y1) >= 1.0
            if not at_edge and (box.width * width < 0.5 or box.height * height < 0.5):
                size = f"{box.width * width:.2g} x {box.height * height:.2g} pixels"
                self.ledger.add("box-size", item.place, name, f"the box is {size}: less than one pixel", WARNING)

    def _note_id(self, place: Origin, name: str) -> None:
        first = self.ids.setdefault(name.strip().casefold(), place)
        if first is not place and first.study in (None, name):
            self.ledger.add("duplicate-id", place, "id", f"{name!r} was already used on {first}; this row is left out")
        elif first is not place:
            message = f"{visible(name)} differs from {visible(str(first.study))} ({first}) only by case or blanks"
            self.ledger.add("duplicate-id", place, "id", message, WARNING)

    def _finish(self, place: Origin) -> None:
        self.patients.finish(place)
        if not self.coordinates.finish(place):
            self.sides.finish(place)
        self.labels.finish()
        self.reports.finish()
        self.masks.finish()
        self.image_checks.finish(place)


def _place_of(source: Source, study_id: str | None) -> Origin:
    """Return the table and line of a study, as far as the source knows."""
    known = None if study_id is None else source.place(study_id)
    if known is not None:
        return Origin(*known, study_id)
    return Origin(PurePath(parse_address(source.address).path).name or source.address, None, study_id)
