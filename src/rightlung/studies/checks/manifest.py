"""The rows of a manifest as written: what the reader rejects is explained, and the rest of the row is still checked.

The reader reports the first fault of a row and skips the row. Here the faulty field is replaced and the row is read
again, until all faults are known and the rest can be checked.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from rightlung.core import Image, InputError
from rightlung.core.errors import MissingFileError
from rightlung.studies.checks.coordinates import CoordinateChecks
from rightlung.studies.checks.issue import Ledger, Origin
from rightlung.studies.checks.labels import explain_polarity
from rightlung.studies.checks.targets import Item, row_targets
from rightlung.studies.manifest import build_study, manifest_lines, parse_line
from rightlung.studies.rows import KNOWN_FIELDS, FieldError, FieldPath, ManifestRow
from rightlung.studies.storage import FolderFile, Storage, StoredFile

_MOST_FAULTS = 200
_FIELD_WORDS = {
    "bbox": "boxes", "bboxes": "boxes", "box": "boxes", "bounding_boxes": "boxes", "mask": "masks",
    "segmentation": "masks", "finding": "findings", "label": "findings", "labels": "findings", "phrase": "phrases",
    "sentences": "phrases", "patient_id": "patient", "patientid": "patient", "subject_id": "patient",
    "study_id": "study", "exam": "study", "exam_id": "study", "examination": "study", "accession": "study",
    "accession_number": "study", "report": "text", "image": "file", "filename": "file", "path": "file",
    "image_id": "id", "gender": "sex", "viewposition": "view", "view_position": "view", "fold": "split",
    "subset": "split", "section": "sections", "region": "regions",
}  # fmt: skip
_BOX = [0, 0, 1, 1]
_ENTRIES: dict[str, dict[str, Any]] = {
    "boxes": {"label": "none", "box": _BOX}, "masks": {"label": "none", "file": "none"}, "phrases": {"text": "none"},
}  # fmt: skip
"""Replacements for entries that cannot be read, and for their fields."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """A fault of a row: the field, the reader's message, and the value in the file."""

    field: str | None
    message: str
    value: object = None
    missing: bool = False
    """Whether a file is missing."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A line of a manifest. ``row`` is what can be read without the faulty fields, ``void`` the names of these."""

    place: Origin
    raw: dict[str, Any]
    row: ManifestRow | None
    faults: tuple[RowFault, ...] = ()
    void: frozenset[str] = frozenset()


def raw_rows(storage: Storage) -> Iterator[RawRow]:
    """Yield every non-blank line of a manifest."""
    for number, _, line in manifest_lines(storage):
        try:
            row = parse_line(line)
            yield RawRow(Origin(storage.manifest_name, number, row.id), json.loads(line), row)
        except FieldError as error:
            yield _read_faulty(Origin(storage.manifest_name, number), line, error)


def _read_faulty(place: Origin, line: bytes, error: FieldError) -> RawRow:
    if error.field is None:
        return RawRow(place, {}, None, (RowFault(None, str(error)),))
    raw = json.loads(line)
    name = raw.get("id")
    place = Origin(place.file, place.row, name if isinstance(name, str) else None)
    mended, row = copy.deepcopy(raw), None
    faults: dict[str, RowFault] = {}
    while row is None and error.field is not None and error.field not in faults and len(faults) < _MOST_FAULTS:
        faults[error.field] = RowFault(error.field, str(error), _value_at(raw, error.path))
        try:
            _set_aside(mended, error.path, place)
            row = parse_line(json.dumps(mended).encode())
        except FieldError as next_error:
            error = next_error
    return RawRow(place, raw, row, tuple(faults.values()), frozenset(faults))


def _value_at(raw: Mapping[str, Any], path: FieldPath) -> Any:
    """Return the value at a path of keys, None if there is none."""
    try:
        return reduce(getitem, path, raw)  # type: ignore[arg-type]
    except (KeyError, IndexError, TypeError):
        return None


def _set_aside(row: dict[str, Any], path: FieldPath, place: Origin) -> None:
    """Replace a faulty field by a valid one."""
    if path[0] == "gaze":
        path = ("gaze",)
    *way, last = path
    stand_in: object = None
    if not way:
        stand_in = {"id": f"line {place.row}", "file": "none"}.get(str(last))
    elif isinstance(last, int):
        entry = _BOX if way[-1] == "boxes" else "none"
        stand_in = _ENTRIES.get(str(way[0]), entry) if len(way) == 1 else entry
    elif isinstance(way[-1], int):
        stand_in = _ENTRIES[str(way[0])].get(last)
    _value_at(row, tuple(way))[last] = copy.deepcopy(stand_in)


def report_faults(
    ledger: Ledger, coordinates: CoordinateChecks, found: RawRow, faults: Sequence[RowFault], image: Image | None
) -> None:
    """Report the faults of a row; boxes go to ``coordinates`` until all of them are known."""
    size = None if image is None else (float(image.shape[1]), float(image.shape[0]))
    for fault in faults:
        name = fault.field or ""
        if name.endswith(".box") or ".boxes[" in name or name.startswith("regions."):
            coordinates.note_raw(found.place, name, fault.value, size, found.raw)
        else:
            check, message = _explained(name, fault)
            ledger.add(check, found.place, fault.field, message)


def _explained(name: str, fault: RowFault) -> tuple[str, str]:
    """Return the check that a fault belongs to, and its message with the likely cause."""
    value, message, cause = fault.value, fault.message, ""
    if name == "file":
        return "missing-image" if fault.missing or value is None else "row", message
    if name.endswith((".file", ".mask")):
        return "missing-mask" if fault.missing else "row", message
    if ".findings." in f".{name}":
        return "label-value", explain_polarity(value)
    if name == "age":
        if isinstance(value, str):
            has_unit = re.fullmatch(r"\s*\d+[YMWD]\s*", value, re.IGNORECASE)
            cause = "; it looks like a DICOM age with a unit" if has_unit else "; write numbers without quotes"
        elif isinstance(value, int | float) and value > 130:
            cause = "; is it in days or months, or a year of birth?"
        return "label-value", f"{message}{cause}"
    if name == "findings" and isinstance(value, int | float | str):
        cause = "; write several names as a list" if re.search(r"[|;,]", str(value)) else ""
        return "label-value", f"{message}{cause}"
    if name in ("patient", "study", "split", "view", "sex", "id") and isinstance(value, int | float):
        return "label-value", f"{value!r} is a number; {name} must be a string, in quotes"
    return "row", message


def row_item(found: RawRow, row: ManifestRow, storage: Storage, address: str) -> tuple[Item, list[RowFault]]:
    """Return a row as a study to check, and its missing files."""
    files: dict[str, StoredFile] = {}
    faults: list[RowFault] = []
    for field, name in row.files():
        files[field] = FolderFile(Path(name))
        if field in found.void:
            continue
        try:
            files[field] = stored = storage.find(name)
            if isinstance(stored, FolderFile) and not stored.path.exists():
                raise MissingFileError(f"file {name!r} does not exist")
        except InputError as error:
            faults.append(RowFault(field, str(error), name, isinstance(error, MissingFileError)))
    void = found.void | {str(fault.field) for fault in faults}
    study = build_study(replace(row, phrases=row.phrases or ()), address, lambda field, _: files[field])
    return Item(found.place, study, tuple(row_targets(row, study, files)), found.raw, "file", void), faults


def misspelt_fields(raw: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield keys that look like another field that the row does not have, and that field."""
    for key in raw:
        if key in KNOWN_FIELDS:
            continue
        plain = key.strip().casefold().replace("-", "_")
        meant = plain if plain in KNOWN_FIELDS else _FIELD_WORDS.get(plain)
        if meant is None and len(plain) >= 4:
            near = difflib.get_close_matches(plain, sorted(KNOWN_FIELDS), 1, 0.8)
            meant = near[0] if near else None
        if meant is not None and meant not in raw:
            yield key, meant
