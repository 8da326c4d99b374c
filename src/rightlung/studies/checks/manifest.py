"""The rows of a manifest as they stand in the file: what the reader refuses is explained, and looked at all the same.

The reader names the first fault of a row and leaves the row out. Here the fault is set aside and the row read again,
until all of its faults are known and the rest of it can be checked like any other.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rightlung.core import Image, InputError, Mask, Report, Study
from rightlung.core.errors import MissingFileError
from rightlung.studies.checks.issue import Origin
from rightlung.studies.checks.targets import Item, row_targets
from rightlung.studies.manifest import MAX_LINE_BYTES, StoredImage, StoredMask, manifest_lines
from rightlung.studies.rows import KNOWN_FIELDS, FieldError, ManifestRow, parse_row
from rightlung.studies.storage import FolderFile, Storage, StoredFile

_MOST_FAULTS = 200
_ENTRY = re.compile(r"(boxes|masks|phrases)\[(\d+)\](?:\.(\w+)(?:\[(\d+)\]|\.(.+))?)?", re.DOTALL)
_FIELD_WORDS = {
    "bbox": "boxes", "bboxes": "boxes", "box": "boxes", "bounding_boxes": "boxes", "mask": "masks",
    "segmentation": "masks", "finding": "findings", "label": "findings", "labels": "findings", "phrase": "phrases",
    "sentences": "phrases", "patient_id": "patient", "patientid": "patient", "subject_id": "patient",
    "study_id": "study", "exam": "study", "exam_id": "study", "examination": "study", "accession": "study",
    "accession_number": "study", "report": "text", "image": "file", "filename": "file", "path": "file",
    "image_id": "id", "gender": "sex", "viewposition": "view", "view_position": "view", "fold": "split",
    "subset": "split", "section": "sections", "region": "regions",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowFault:
    """What the reader refuses in a row: the field, its sentence, and the value as it stands in the file."""

    field: str | None
    message: str
    value: object
    missing: bool = False
    """Whether it is a file that is not there."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A line of a manifest. ``row`` is what can be read of it with the faults set aside, ``void`` their fields."""

    place: Origin
    raw: dict[str, Any]
    row: ManifestRow | None
    faults: tuple[RowFault, ...]
    void: frozenset[str]


def raw_rows(storage: Storage) -> Iterator[RawRow]:
    """Yield every line of a manifest that is not blank."""
    for number, _, line in manifest_lines(storage):
        place = Origin(storage.manifest_name, number)
        if len(line) > MAX_LINE_BYTES:
            fault = RowFault(None, f"the line is longer than the limit of {MAX_LINE_BYTES:,} bytes", None)
            yield RawRow(place, {}, None, (fault,), frozenset())
            continue
        yield _read(place, line)


def _read(place: Origin, line: bytes) -> RawRow:
    try:
        row = parse_row(line)
    except FieldError as error:
        return _read_faulty(place, line, error)
    return RawRow(Origin(place.file, place.row, row.id), json.loads(line), row, (), frozenset())


def _read_faulty(place: Origin, line: bytes, error: FieldError) -> RawRow:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        raw = None
    if error.field is None or not isinstance(raw, dict):
        return RawRow(place, {}, None, (RowFault(error.field, str(error), None),), frozenset())
    name = raw.get("id")
    place = Origin(place.file, place.row, name if isinstance(name, str) else None)
    mended, faults, void = (
        copy.deepcopy(raw),
        [RowFault(error.field, str(error), value_at(raw, error.field))],
        {error.field},
    )
    row: ManifestRow | None = None
    while len(faults) < _MOST_FAULTS and set_aside(mended, faults[-1].field or "", place):
        try:
            row = parse_row(json.dumps(mended).encode())
            break
        except FieldError as next_error:
            field = next_error.field
            if field is None or field in void:
                break
            faults.append(RowFault(field, str(next_error), value_at(raw, field)))
            void.add(field)
    return RawRow(place, raw, row, tuple(faults), frozenset(void))


def value_at(raw: Mapping[str, Any], field: str) -> object:
    """Return the value of a field such as ``phrases[2].boxes[0]`` or ``regions.left lung``, None if there is none."""
    match = _ENTRY.fullmatch(field)
    try:
        if match is None:
            name, dot, key = field.partition(".")
            if dot:
                return raw[name][key]
            listed = re.fullmatch(r"(\w+)\[(\d+)\]", field)
            return raw[listed[1]][int(listed[2])] if listed else raw.get(field)
        value = raw[match[1]][int(match[2])]
        steps: tuple[Any, ...] = (match[3], int(match[4]) if match[4] else None, match[5])
        for step in steps:
            value = value if step is None else value[step]
        return value
    except (KeyError, IndexError, TypeError):
        return None


def set_aside(row: dict[str, Any], field: str, place: Origin) -> bool:
    """Put something readable in the place of a faulty field; whether that was possible."""
    match = _ENTRY.fullmatch(field)
    try:
        if match is not None:
            _set_aside_entry(row, match)
        elif field == "id":
            row["id"] = f"line {place.row}"
        elif field == "file":
            row["file"] = "none"
        elif listed := re.fullmatch(r"(\w+)\[(\d+)\]", field):
            row[listed[1]][int(listed[2])] = "none"
        elif "." in field:
            name, _, key = field.partition(".")
            if name == "gaze":
                row["gaze"] = None
            else:
                row[name][key] = None
        elif field in KNOWN_FIELDS:
            row[field] = None
        else:
            return False
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _set_aside_entry(row: dict[str, Any], match: re.Match[str]) -> None:
    entries, index = row[match[1]], int(match[2])
    whole = {"boxes": {"label": "none", "box": [0, 0, 1, 1]}, "masks": {"label": "none", "file": "none"},
             "phrases": {"text": "none"}}  # fmt: skip
    key = match[3]
    if key is None:
        entries[index] = whole[match[1]]
    elif match[4] is not None:
        entries[index][key][int(match[4])] = [0, 0, 1, 1] if key == "boxes" else "none"
    elif match[5] is not None:
        entries[index][key][match[5]] = None
    elif key in ("text", "label", "file", "box"):
        entries[index][key] = {"box": [0, 0, 1, 1]}.get(key, "none")
    else:
        entries[index][key] = None


@dataclass(frozen=True, slots=True)
class _NoImage:
    """Stands for an image that is known not to be there."""

    def __call__(self) -> Image:
        raise MissingFileError("the image does not exist")


def row_item(found: RawRow, row: ManifestRow, storage: Storage, address: str) -> tuple[Item, list[RowFault]]:
    """Return a row as a study to be checked, and which of its files are not where the row says."""
    files: dict[str, StoredFile] = {}
    faults = []
    for field, name in row.files():
        if field in found.void:
            continue
        try:
            stored = storage.find(name)
            if isinstance(stored, FolderFile) and not stored.path.exists():
                raise MissingFileError(f"file {name!r} does not exist")
            files[field] = stored
        except InputError as error:
            faults.append(RowFault(field, str(error), name, isinstance(error, MissingFileError)))
    masks = {field: Mask.deferred(StoredMask(row.id, (stored,))) for field, stored in files.items() if field != "file"}
    void = found.void | {fault.field for fault in faults if fault.field is not None}
    text = row.text if row.text is not None else " ".join(row.sections.values())
    study = Study(
        id=row.id,
        load=StoredImage(row.id, files["file"]) if "file" in files else _NoImage(),
        patient=row.patient,
        exam=row.exam,
        view=row.view,
        split=row.split,
        age=row.age,
        sex=row.sex,
        report=Report(text, row.sections) if row.text is not None or row.sections else None,
        phrases=tuple(
            phrase.build(masks.get(f"phrases[{index}].mask")) for index, phrase in enumerate(row.phrases or ())
        ),
        regions=row.regions,
        findings=row.findings,
        source=address,
    )
    return Item(found.place, study, tuple(row_targets(row, study, masks)), found.raw, "file", void), faults


def misspelt_fields(raw: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield keys that look like a field under another name, which the row does not have, and that field."""
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
