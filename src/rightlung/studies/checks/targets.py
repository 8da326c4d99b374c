"""The targets of a study for the checks, with the field of each box and mask, for any kind of source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as made
from functools import partial

from rightlung.core import Box, FrozenMapping, InputError, Mask, Polarity, Study
from rightlung.lexicon import region
from rightlung.studies.checks.issue import Origin
from rightlung.studies.manifest import load_masks
from rightlung.studies.rows import ManifestRow
from rightlung.studies.storage import StoredFile


@dataclass(frozen=True, slots=True)
class LintTarget:
    """A phrase, a label or a region (``kind``) with its boxes and mask.

    ``text`` may name a side. The fields of boxes and mask are named as in the source's file.
    """

    kind: str
    field: str
    text: str
    boxes: tuple[tuple[str, Box], ...] = ()
    mask: tuple[str, Mask] | None = None
    regions: tuple[str, ...] = ()
    findings: Mapping[str, Polarity] = made(default_factory=FrozenMapping)


@dataclass(frozen=True, slots=True)
class Item:
    """A study with its origin and targets; ``raw`` is its row in the file, ``void`` the fields that are faulty."""

    place: Origin
    study: Study
    targets: tuple[LintTarget, ...]
    raw: Mapping[str, object] | None = None
    image_field: str | None = None
    void: frozenset[str] = frozenset()

    def boxes(self) -> Iterator[tuple[LintTarget, str, Box]]:
        """Yield the valid boxes with their targets and fields."""
        for target in self.targets:
            yield from ((target, name, box) for name, box in target.boxes if name not in self.void)


def region_name(given: str) -> str | None:
    """Return the lexicon's name of a region, None if it is unknown."""
    try:
        return region(given).name
    except InputError:
        return None


def study_targets(study: Study) -> Iterator[LintTarget]:
    """Yield the targets of a study's phrases and regions."""
    for index, phrase in enumerate(study.phrases):
        place = f"phrases[{index}]"
        boxes = tuple((f"{place}.boxes[{number}]", box) for number, box in enumerate(phrase.boxes))
        mask = None if phrase.mask is None else (f"{place}.mask", phrase.mask)
        yield LintTarget("phrase", place, phrase.text, boxes, mask, phrase.regions, phrase.findings)
    for name, box in study.regions.items():
        yield LintTarget("region", f"regions.{name}", name, ((f"regions.{name}", box),), regions=(name,))


def row_targets(row: ManifestRow, study: Study, files: Mapping[str, StoredFile]) -> Iterator[LintTarget]:
    """Yield the targets of a manifest row, including labelled boxes and masks; ``files`` are by field."""
    yield from study_targets(study)
    for index, (label, box) in enumerate(row.boxes):
        place = f"boxes[{index}]"
        yield LintTarget("label", place, label, ((f"{place}.box", box),), findings={label: Polarity.POSITIVE})
    for index, (label, _) in enumerate(row.masks):
        name = f"masks[{index}].file"
        mask = name, Mask.deferred(partial(load_masks, row.id, (files[name],)))
        yield LintTarget("label", f"masks[{index}]", label, mask=mask, findings={label: Polarity.POSITIVE})
