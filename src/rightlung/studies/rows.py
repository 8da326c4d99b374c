"""One row of a manifest: from a line of JSON to checked values; faults name their field.

The same function checks the rows when a source is opened and reads them when a study is requested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rightlung.core import Box, Heatmap, InputError, Polarity
from rightlung.core.checks import check_number, check_size
from rightlung.core.errors import BoxFormError, unknown_name
from rightlung.studies.files import relative_name, shown
from rightlung.studies.tables import box_kind

KNOWN_FIELDS = frozenset({
    "id", "file", "patient", "study", "view", "split", "age", "sex", "findings", "boxes", "masks", "text", "sections",
    "phrases", "regions", "gaze", "region_findings",
})  # fmt: skip

Value = TypeVar("Value")
FieldPath = tuple[str | int, ...]


class FieldError(InputError):
    """A fault of one field of a row; ``field`` is None for the row as a whole.

    ``kind`` is the matching check of `rightlung.studies.checks.issue`, if known, and ``path`` the keys of the field in
    a manifest row.
    """

    def __init__(self, field: str | None, message: str, kind: str | None = None, path: FieldPath = ()) -> None:
        super().__init__(message)
        self.field, self.kind, self.path = field, kind, path


@dataclass(frozen=True, slots=True)
class PhraseRow:
    """A phrase of a manifest, with its mask as a file name."""

    text: str
    boxes: tuple[Box, ...]
    mask: str | None
    regions: tuple[str, ...]
    findings: Mapping[str, Polarity]
    locations: Mapping[str, tuple[str, ...]]
    coded: bool


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """The checked values of a row; ``phrases`` is None if they are to be made from the other fields."""

    id: str
    file: str
    patient: str | None
    exam: str | None
    view: str | None
    split: str | None
    age: float | None
    sex: str | None
    findings: Mapping[str, Polarity]
    boxes: tuple[tuple[str, Box], ...]
    masks: tuple[tuple[str, str], ...]
    text: str | None
    sections: Mapping[str, str]
    phrases: tuple[PhraseRow, ...] | None
    regions: Mapping[str, Box]
    gaze: Heatmap | None
    region_findings: Mapping[str, Mapping[str, Polarity]]
    extra: Mapping[str, Any]

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield field and name of every file of the row."""
        yield "file", self.file
        for index, (_, name) in enumerate(self.masks):
            yield f"masks[{index}].file", name
        for index, phrase in enumerate(self.phrases or ()):
            if phrase.mask is not None:
                yield f"phrases[{index}].mask", phrase.mask


class Field:
    """A value inside JSON, with the keys that lead to it; each method checks the value and returns it."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: FieldPath = ()) -> None:
        self.value, self.path = value, path

    def error(self, message: str, kind: str | None = None) -> FieldError:
        """Return the error for a fault of this value; ``kind`` is the matching check, if known."""
        name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return FieldError(name.removeprefix(".") or None, message, kind, self.path)

    def at(self, key: str | int) -> Field:
        """Return a field of an object or list; a missing key of an object is null."""
        value = self.value.get(key) if isinstance(key, str) else self.value[key]
        return Field(value, (*self.path, key))

    def needed(self) -> Field:
        """Return the field itself; it must not be null."""
        if self.value is None:
            raise self.error("is missing; every row must have it")
        return self

    def optional(self, read: Callable[[Field], Value]) -> Value | None:
        """Return what ``read`` returns for the field; None if it is null."""
        return None if self.value is None else read(self)

    def checked(self, check: Callable[[Any], Value]) -> Value:
        """Return what ``check`` returns for the value; its error names the field."""
        try:
            return check(self.value)
        except InputError as error:
            raise self.error(str(error)) from None

    def text(self) -> str:
        """Return a string that is not blank."""
        if self.value is None:
            raise self.error("is missing")
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.error(f"must be a string with at least one character; got {_kind(self.value)}")
        return self.value

    def prose(self) -> str | None:
        """Return an optional string; None if it is blank."""
        if self.value is not None and not isinstance(self.value, str):
            raise self.error(f"must be a string; got {_kind(self.value)}")
        return self.value if self.value and self.value.strip() else None

    def file(self) -> str:
        """Return the relative name of a file."""
        self.text()
        return self.checked(relative_name)

    def box(self) -> Box:
        """Return a box from its four edges."""
        try:
            if not isinstance(self.value, list):
                raise BoxFormError(f"a box must be [x0, y0, x1, y1]; got {_kind(self.value)}")
            return Box.from_sequence(self.value)
        except InputError as error:
            raise self.error(str(error), box_kind(error)) from None

    def entries(self) -> Iterator[Field]:
        """Yield the entries of an optional list."""
        if self.value is not None and not isinstance(self.value, list):
            raise self.error(f"must be a list; got {_kind(self.value)}")
        return (self.at(index) for index in range(len(self.value or ())))

    def fields(self) -> Iterator[tuple[str, Field]]:
        """Yield the fields of an optional object with their names."""
        if self.value is not None and not isinstance(self.value, dict):
            raise self.error(f"must be an object; got {_kind(self.value)}")
        return ((name, self.at(name)) for name in self.value or ())

    def named(self) -> Iterator[tuple[str, Field]]:
        """Yield the fields of an object; reject an empty name."""
        return ((Field(name, self.path).text(), value) for name, value in self.fields())

    def objects(self, *known: str) -> Iterator[Field]:
        """Yield the objects of a list. An unknown key is an error: a misspelt ``boxes`` would lose the target."""
        for entry in self.entries():
            entry.object().check_keys(*known)
            yield entry

    def object(self) -> Field:
        """Return the field itself, which must be an object."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be an object; got {_kind(self.value)}")
        return self

    def check_keys(self, *known: str) -> None:
        """Reject keys of an object that are not known."""
        for key, _ in self.fields():
            if key not in known:
                raise self.error(str(unknown_name("key", key, known)))

    def names(self) -> tuple[str, ...]:
        """Return the strings of a list."""
        return tuple(entry.text() for entry in self.entries())

    def findings(self) -> dict[str, Polarity]:
        """Read findings: a list names present ones; an object gives each polarity, null for unknown."""
        if isinstance(self.value, dict):
            return {name: _polarity(value) for name, value in self.named() if value.value is not None}
        if self.value is not None and not isinstance(self.value, list):
            raise self.error(f"must be a list of names or an object of polarities; got {_kind(self.value)}")
        return dict.fromkeys(self.names(), Polarity.POSITIVE)


def _polarity(field: Field) -> Polarity:
    try:
        return Polarity(field.value)
    except ValueError:
        raise field.error(str(unknown_name("polarity", str(field.value), [*Polarity]))) from None


def parse_row(line: bytes) -> ManifestRow:
    """Parse one line of a manifest; raise `FieldError` for the first fault."""
    row = Field(_parse_json(line))
    boxes, masks = row.at("boxes").objects("label", "box"), row.at("masks").objects("label", "file")
    sections = ((name, value.prose()) for name, value in row.at("sections").fields())
    return ManifestRow(
        id=_identifier(row.at("id").needed()),
        file=row.at("file").needed().checked(relative_name),
        patient=row.at("patient").prose(),
        exam=row.at("study").prose(),
        view=row.at("view").prose(),
        split=row.at("split").prose(),
        age=row.at("age").optional(lambda age: age.checked(_age)),
        sex=row.at("sex").prose(),
        findings=row.at("findings").findings(),
        boxes=tuple((entry.at("label").text(), entry.at("box").box()) for entry in boxes),
        masks=tuple((entry.at("label").text(), entry.at("file").file()) for entry in masks),
        text=row.at("text").prose(),
        sections={name: section for name, section in sections if section is not None},
        phrases=row.at("phrases").optional(lambda phrases: tuple(map(_phrase, phrases.objects(*_PHRASE_FIELDS)))),
        regions={name: value.box() for name, value in row.at("regions").named() if value.value is not None},
        gaze=row.at("gaze").optional(_gaze),
        region_findings={name: value.findings() for name, value in row.at("region_findings").named()},
        extra={name: value for name, value in row.value.items() if name not in KNOWN_FIELDS},
    )


def _parse_json(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_distinct)
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldError(None, f"the line is not UTF-8 (byte {error.start + 1} of the line)") from None
    except UnicodeEncodeError:
        raise FieldError(None, "the line contains half a surrogate pair, which is not a character") from None
    except json.JSONDecodeError as error:
        message = f"the line is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        raise FieldError(None, message) from None
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:
        raise FieldError(None, f"the line is not readable JSON: {error}") from None
    if not isinstance(row, dict):
        raise FieldError(None, f"a row must be a JSON object; got {_kind(row)}")
    return row


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of two values of one key, JSON parsers silently drop the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise FieldError(None, f"key {shown(twice)} occurs twice; remove one of the two")
    return found


def _kind(value: object) -> str:
    if value is None or isinstance(value, list | dict):
        return "null" if value is None else "a list" if isinstance(value, list) else "an object"
    return shown(value)


def _age(value: object) -> float:
    age = check_number(value, "age")
    if not 0 <= age <= 130:
        raise InputError(f"age must be 0 to 130 years; got {value}")
    return age


def _identifier(field: Field) -> str:
    if not field.text().isprintable():
        raise field.error(f"must not have control characters; got {field.value!r}")
    return field.text()


def _gaze(field: Field) -> Heatmap:
    """Read a map of integers in units of ``1 / units``, in row order: a third of the size of decimal fractions."""
    field.check_keys("grid", "values", "units")
    rows, columns = field.at("grid").checked(lambda value: check_size(value, "grid"))
    values = [entry.checked(lambda number: check_number(number, "a value")) for entry in field.at("values").entries()]
    units = Field(field.value.get("units", 1), (*field.path, "units")).checked(lambda one: check_number(one, "units"))
    if len(values) != rows * columns or units <= 0:
        raise field.error(f"a grid of {rows} x {columns} needs as many values, in positive units; got {len(values)}")
    return Field((np.array(values) / units).reshape(rows, columns), field.path).checked(Heatmap)


_PHRASE_FIELDS = ("text", "boxes", "mask", "regions", "findings", "locations")


def _phrase(field: Field) -> PhraseRow:
    boxes = tuple(box.box() for box in field.at("boxes").entries())
    findings = field.at("findings").findings()
    return PhraseRow(
        text=field.at("text").text(),
        boxes=boxes,
        mask=field.at("mask").optional(Field.file),
        regions=field.at("regions").names(),
        findings=findings,
        locations={name: _located(name, value, findings) for name, value in field.at("locations").fields()},
        coded=field.at("findings").value is not None,
    )


def _located(name: str, regions: Field, findings: Mapping[str, Polarity]) -> tuple[str, ...]:
    """Read the regions of a finding; it must be a finding of the phrase, to catch misspellings."""
    if name not in findings:
        raise regions.error(str(unknown_name("finding of this phrase:", name, findings)))
    return regions.names()
