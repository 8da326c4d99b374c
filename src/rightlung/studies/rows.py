"""One row of a manifest: from a line of JSON to checked values, each fault with the field it is in.

The same function checks the rows when a source is opened and reads them when a study is asked for, so that what
passed the check is what comes out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rightlung.core import Box, Heatmap, InputError, Mask, Phrase, Polarity
from rightlung.core.checks import check_number, check_size
from rightlung.core.errors import unknown_name
from rightlung.studies.files import relative_name

KNOWN_FIELDS = frozenset({
    "id", "file", "patient", "study", "view", "split", "age", "sex", "findings", "boxes", "masks", "text", "sections",
    "phrases", "regions", "gaze", "region_findings",
})  # fmt: skip

Value = TypeVar("Value")


class FieldError(InputError):
    """What is wrong with one field of a row; ``field`` is ``None`` where it is the row as a whole.

    ``kind`` is the check of `rightlung.studies.checks.issue` that it belongs to, where that is known.
    """

    def __init__(self, field: str | None, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.field, self.kind = field, kind


@dataclass(frozen=True, slots=True)
class PhraseRow:
    """A phrase as the manifest gives it, its mask still the name of a file."""

    text: str
    boxes: tuple[Box, ...]
    mask: str | None
    regions: tuple[str, ...]
    findings: Mapping[str, Polarity]
    locations: Mapping[str, tuple[str, ...]]

    def build(self, mask: Mask | None) -> Phrase:
        """Return the phrase with its mask."""
        return Phrase(self.text, self.boxes, mask, self.regions, self.findings, self.locations)


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A row's checked values. ``phrases`` is ``None`` where the row has none and they are made from the rest."""

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
        """Yield the field and name of every file the row needs."""
        yield "file", self.file
        for index, (_, name) in enumerate(self.masks):
            yield f"masks[{index}].file", name
        for index, phrase in enumerate(self.phrases or ()):
            if phrase.mask is not None:
                yield f"phrases[{index}].mask", phrase.mask


def parse_row(line: bytes) -> ManifestRow:
    """Read one line of a manifest, raising `FieldError` at the first thing that is wrong."""
    row = _parse_json(line)
    return ManifestRow(
        id=_identifier(row),
        file=_checked("file", relative_name, _required(row, "file")),
        patient=_label(row, "patient"),
        exam=_label(row, "study"),
        view=_label(row, "view"),
        split=_label(row, "split"),
        age=None if row.get("age") is None else _checked("age", _age, row["age"]),
        sex=_label(row, "sex"),
        findings=_findings("findings", row.get("findings")),
        boxes=tuple(
            (_text(f"{place}.label", entry.get("label")), _box(f"{place}.box", entry.get("box")))
            for place, entry in _objects("boxes", row.get("boxes"), ("label", "box"))
        ),
        masks=tuple(
            (_text(f"{place}.label", entry.get("label")), _file(f"{place}.file", entry.get("file")))
            for place, entry in _objects("masks", row.get("masks"), ("label", "file"))
        ),
        text=_prose("text", row.get("text")),
        sections={
            name: section
            for name, value in _mapping("sections", row.get("sections")).items()
            if (section := _prose(f"sections.{name}", value)) is not None
        },
        phrases=None if row.get("phrases") is None else tuple(_phrases(row["phrases"])),
        regions={
            _text("regions", name): _box(f"regions.{name}", value)
            for name, value in _mapping("regions", row.get("regions")).items()
            if value is not None
        },
        gaze=None if row.get("gaze") is None else _gaze(_mapping("gaze", row["gaze"])),
        region_findings={
            _text("region_findings", name): _findings(f"region_findings.{name}", value)
            for name, value in _mapping("region_findings", row.get("region_findings")).items()
        },
        extra={name: value for name, value in row.items() if name not in KNOWN_FIELDS},
    )


def _parse_json(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldError(None, f"the line is not UTF-8 (byte {error.start + 1} of the line)") from None
    except UnicodeEncodeError:
        raise FieldError(None, "the line has half a surrogate pair, which is not a character") from None
    except json.JSONDecodeError as error:
        raise FieldError(
            None, f"the line is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FieldError(None, f"the line is not JSON that can be read: {error}") from None
    if not isinstance(row, dict):
        raise FieldError(None, f"a row must be a JSON object; got {_kind(row)}")
    return row


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _checked(field: str, check: Callable[[Any], Value], value: object) -> Value:
    try:
        return check(value)
    except InputError as error:
        raise FieldError(field, str(error)) from None


def _age(value: object) -> float:
    age = check_number(value, "age")
    if not 0 <= age <= 130:
        raise InputError(f"age must be 0 to 130 years; got {value}")
    return age


def _required(row: Mapping[str, Any], name: str) -> object:
    if row.get(name) is None:
        raise FieldError(name, "is missing; every row must have it")
    return row[name]


def _identifier(row: Mapping[str, Any]) -> str:
    value = _text("id", _required(row, "id"))
    if not value.isprintable():
        raise FieldError("id", f"must not have control characters; got {value!r}")
    return value


def _text(field: str, value: object) -> str:
    if value is None:
        raise FieldError(field, "is missing")
    if not isinstance(value, str) or not value.strip():
        raise FieldError(field, f"must be a text with at least one character; got {_kind(value)}")
    return value


def _prose(field: str, value: object) -> str | None:
    """A text that may be absent; one of blanks only is as good as none."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(field, f"must be a text; got {_kind(value)}")
    return value if value.strip() else None


def _label(row: Mapping[str, Any], name: str) -> str | None:
    return _prose(name, row.get(name))


def _file(field: str, value: object) -> str:
    return _checked(field, relative_name, _text(field, value))


def _box(field: str, value: object) -> Box:
    if not isinstance(value, list):
        raise FieldError(field, f"a box must be [x0, y0, x1, y1]; got {_kind(value)}")
    return _checked(field, Box.from_sequence, value)


def _list(field: str, value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(field, f"must be a list; got {_kind(value)}")
    return value


def _mapping(field: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError(field, f"must be an object; got {_kind(value)}")
    return value


def _objects(field: str, value: object, known: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a list. A key that is not known is refused: a misspelt ``boxes`` would lose the target."""
    for index, entry in enumerate(_list(field, value)):
        place = f"{field}[{index}]"
        if not isinstance(entry, dict):
            raise FieldError(place, f"must be an object; got {_kind(entry)}")
        for key in entry:
            if key not in known:
                raise FieldError(place, str(unknown_name("key", key, known)))
        yield place, entry


def _findings(field: str, value: object) -> dict[str, Polarity]:
    """A list names what is present; an object gives each name's polarity, ``null`` for unknown."""
    if isinstance(value, dict):
        return {
            _text(field, name): _polarity(f"{field}.{name}", polarity)
            for name, polarity in value.items()
            if polarity is not None
        }
    if value is not None and not isinstance(value, list):
        raise FieldError(field, f"must be a list of names or an object of polarities; got {_kind(value)}")
    names = _list(field, value)
    return {_text(f"{field}[{index}]", name): Polarity.POSITIVE for index, name in enumerate(names)}


def _polarity(field: str, value: object) -> Polarity:
    try:
        return Polarity(value)  # type: ignore[arg-type]  # anything but the three texts raises ValueError
    except ValueError:
        raise FieldError(field, str(unknown_name("polarity", str(value), [*Polarity]))) from None


def _gaze(entry: dict[str, Any]) -> Heatmap:
    """A map as whole numbers of ``1 / units``, row by row, which takes a third of the room of decimal fractions."""
    for key in entry:
        if key not in ("grid", "values", "units"):
            raise FieldError("gaze", str(unknown_name("key", key, ("grid", "values", "units"))))
    rows, columns = _checked(
        "gaze.grid", lambda value: check_size(value, "grid"), _list("gaze.grid", entry.get("grid"))
    )
    values = [
        _checked(f"gaze.values[{index}]", lambda number: check_number(number, "a value"), value)
        for index, value in enumerate(_list("gaze.values", entry.get("values")))
    ]
    units = _checked("gaze.units", lambda value: check_number(value, "units"), entry.get("units", 1))
    if len(values) != rows * columns or units <= 0:
        raise FieldError(
            "gaze", f"a grid of {rows} x {columns} needs as many values, in positive units; got {len(values)}"
        )
    return _checked("gaze", Heatmap, (np.array(values) / units).reshape(rows, columns))


def _phrases(value: object) -> Iterator[PhraseRow]:
    for place, entry in _objects("phrases", value, ("text", "boxes", "mask", "regions", "findings", "locations")):
        boxes = _list(f"{place}.boxes", entry.get("boxes"))
        findings = _findings(f"{place}.findings", entry.get("findings"))
        yield PhraseRow(
            text=_text(f"{place}.text", entry.get("text")),
            boxes=tuple(_box(f"{place}.boxes[{index}]", box) for index, box in enumerate(boxes)),
            mask=None if entry.get("mask") is None else _file(f"{place}.mask", entry["mask"]),
            regions=_names(f"{place}.regions", entry.get("regions")),
            findings=findings,
            locations=_locations(f"{place}.locations", entry.get("locations"), findings),
        )


def _names(field: str, value: object) -> tuple[str, ...]:
    return tuple(_text(f"{field}[{index}]", name) for index, name in enumerate(_list(field, value)))


def _locations(field: str, value: object, findings: Mapping[str, Polarity]) -> dict[str, tuple[str, ...]]:
    """The regions of each finding; a finding that the phrase does not name is refused, as a misspelt one would be."""
    given = _mapping(field, value)
    for name in given:
        if name not in findings:
            raise FieldError(f"{field}.{name}", str(unknown_name("finding of this phrase:", name, findings)))
    return {name: _names(f"{field}.{name}", regions) for name, regions in given.items()}
