"""What the readers of labelled images share: labels as findings, labelled boxes and masks as phrases, image folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rightlung.core import Box, InputError, Mask, Phrase, Polarity
from rightlung.lexicon.labels import label_set
from rightlung.lexicon.prompts import prompt
from rightlung.studies.files import read_regular

IMAGE_SUFFIXES = (".dicom", ".dcm", ".png", ".jpg", ".jpeg")
"""Names of images end so; the first of these wins where a folder has one image in two formats."""
MAX_JSON_BYTES = 2**30
_STRENGTH = (Polarity.NEGATIVE, Polarity.UNCERTAIN, Polarity.POSITIVE)


@cache
def meanings(*sets: str) -> Mapping[str, str]:
    """Return the canonical finding that each label of one or more label sets means."""
    return {label: meaning for name in sets for label, meaning in label_set(name).findings.items()}


def as_findings(labels: Mapping[str, Polarity], *sets: str) -> dict[str, Polarity]:
    """Return labels as canonical findings; where two labels mean one finding, the stronger claim holds."""
    known = meanings(*sets)
    findings: dict[str, Polarity] = {}
    for label, polarity in labels.items():
        name = known[label]
        if name not in findings or _STRENGTH.index(polarity) > _STRENGTH.index(findings[name]):
            findings[name] = polarity
    return findings


def finding_phrase(
    finding: str,
    boxes: Iterable[Box] = (),
    mask: Mask | None = None,
    polarity: Polarity = Polarity.POSITIVE,
) -> Phrase:
    """Return the phrase for a finding that a data set has marked: the lexicon's words for it, and where it is."""
    return Phrase(prompt(finding), tuple(boxes), mask, findings={finding: polarity})


def folder_images(root: Path, folders: Iterable[str]) -> dict[str, str]:
    """Return the images that lie in folders below ``root``: relative name by name without ending."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in _names(root / folder):
            stem, suffix = os.path.splitext(name)  # noqa: PTH122  (Path objects for 112,000 files take a second)
            if suffix.lower() in IMAGE_SUFFIXES:
                known = found.get(stem)
                if known is None or _rank(suffix) < _rank(os.path.splitext(known)[1]):  # noqa: PTH122
                    found[stem] = f"{folder}/{name}" if folder not in ("", ".") else name
    return found


def _rank(suffix: str) -> int:
    return IMAGE_SUFFIXES.index(suffix.lower())


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  (names, not Path objects)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror or error}") from error


def first_folders(root: Path, *names: str) -> list[str]:
    """Return those of the relative names that are folders."""
    return [name for name in names if (root / name).is_dir()]


def read_json(path: Path, kind: type, what: str) -> Any:
    """Return the content of a JSON file whose outermost value must be of ``kind``."""
    try:
        content = json.loads(read_regular(path, str(path), MAX_JSON_BYTES).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(content, kind):
        raise InputError(f"{path} must hold {what}; got {type(content).__name__}")
    return content
