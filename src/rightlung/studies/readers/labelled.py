"""Labels as findings, labelled boxes and masks as phrases, and JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rightlung.core import Box, InputError, Mask, Phrase, Polarity
from rightlung.lexicon.labels import label_set
from rightlung.lexicon.prompts import prompt
from rightlung.studies.files import read_regular
from rightlung.studies.tables import TableRow

CHEXPERT = "chexpert-14"
MAX_JSON_BYTES = 2**30
_STRENGTH = (Polarity.NEGATIVE, Polarity.UNCERTAIN, Polarity.POSITIVE)
# The 14 labels of an exam are stored as 14 bytes, because there are 227,000 exams.
_VALUES = (None, 0, 1, -1)
_CODES = {"": 0, "0.0": 1, "0": 1, "1.0": 2, "1": 2, "-1.0": 3, "-1": 3}
_POLARITIES = {1: Polarity.POSITIVE, 0: Polarity.NEGATIVE, -1: Polarity.UNCERTAIN}


@cache
def meanings(*sets: str) -> Mapping[str, str]:
    """Return the canonical finding of each label of one or more label sets."""
    return {label: meaning for name in sets for label, meaning in label_set(name).findings.items()}


def as_findings(labels: Mapping[str, Polarity], *sets: str) -> dict[str, Polarity]:
    """Return labels as canonical findings; if two labels mean one finding, the stronger one counts."""
    known = meanings(*sets)
    findings: dict[str, Polarity] = {}
    for label, polarity in labels.items():
        name = known[label]
        findings[name] = max(findings.get(name, polarity), polarity, key=_STRENGTH.index)
    return findings


def chexpert_codes(row: TableRow) -> bytes:
    """Return a row's 14 CheXpert labels (1, 0, -1 or empty) as one byte each, for `chexpert_values`."""
    labels = label_set(CHEXPERT).labels
    cells = zip(labels, row.texts(labels), strict=True)
    return bytes([_CODES[text] if text in _CODES else _unusual_code(row, label) for label, text in cells])


def _unusual_code(row: TableRow, label: str) -> int:
    value = row.whole(label)
    if value not in _VALUES:
        raise row.error(label, f"must be 1, 0, -1 or empty; got {row.text(label)!r}", "label-value")
    return _VALUES.index(value)


def chexpert_values(codes: bytes) -> dict[str, int]:
    """Return the labels that are not empty, with their values."""
    known = zip(label_set(CHEXPERT).labels, codes, strict=True)
    return {label: value for label, code in known if (value := _VALUES[code]) is not None}


def chexpert_findings(values: Mapping[str, int]) -> dict[str, Polarity]:
    """Return CheXpert's labels (1, 0, -1) as canonical findings.

    >>> chexpert_findings({"Edema": 1, "Lung Opacity": -1})
    {'edema': <Polarity.POSITIVE: 'positive'>, 'lung opacity': <Polarity.UNCERTAIN: 'uncertain'>}
    """
    return as_findings({label: _POLARITIES[value] for label, value in values.items()}, CHEXPERT)


def presence(is_there: object) -> Polarity:
    """Return the polarity of a finding that was looked for."""
    return Polarity.POSITIVE if is_there else Polarity.NEGATIVE


def finding_phrase(
    finding: str,
    boxes: Iterable[Box] = (),
    mask: Mask | None = None,
    polarity: Polarity = Polarity.POSITIVE,
) -> Phrase:
    """Return the phrase for a finding with a location, in the lexicon's words."""
    return Phrase(prompt(finding), tuple(boxes), mask, findings={finding: polarity})


def read_json(path: Path, kind: type, what: str) -> Any:
    """Return the content of a JSON file whose outermost value must be of ``kind``."""
    try:
        content = json.loads(read_regular(path, str(path), MAX_JSON_BYTES).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not readable JSON: {error}") from None
    if not isinstance(content, kind):
        raise InputError(f"{path} must contain {what}; got {type(content).__name__}")
    return content
