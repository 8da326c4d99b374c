"""The `manifest` reader: your own data in a folder or tar archive with a ``manifest.jsonl``, one row per image.

Opening reads the archive's headers and scans the rows once; only their offsets stay in memory. A study's row is read on
request, its image when ``study.image`` is first used, and masks likewise.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from rightlung.core import Image, InputError, Mask, Phrase, Polarity, Report, Study
from rightlung.core.errors import MaskSizeError, unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.images import read_mask, read_radiograph
from rightlung.studies.report_text import descriptive_sections, descriptive_sentences
from rightlung.studies.rows import FieldError, ManifestRow, parse_row
from rightlung.studies.sources import Address, Source
from rightlung.studies.storage import Storage, StoredFile, open_storage

Found = TypeVar("Found")
MAX_LINE_BYTES = 16 * 2**20
"""The longest row that is read: a file without line ends must not fill the memory."""


def load_image(study_id: str, file: StoredFile) -> Image:
    """Read and decode a study's image."""
    what = f"study {study_id!r}: image {file}"
    return read_radiograph(file.read(what), what)


def load_masks(study_id: str, files: tuple[StoredFile, ...]) -> Mask:
    """Read, decode and unite the mask files of a phrase."""

    def load(file: StoredFile) -> Mask:
        name = f"study {study_id!r}: mask {file}"
        return read_mask(file.read(name), name=name)

    united = load(files[0])
    for file in files[1:]:
        try:
            united = united.union(load(file))
        except MaskSizeError as error:
            message = f"study {study_id!r}: mask {file} cannot be united with mask {files[0]}: {error}"
            raise MaskSizeError(message) from None
    return united


def manifest_storage(address: Address) -> Storage:
    """Open the storage of ``manifest:PATH``, a folder or a tar archive."""
    address.check_parameters(("split", "limit"))
    if not address.path:
        raise InputError(f"address {address} needs a path: manifest:/path/to/folder or manifest:/path/to/archive.tar")
    return open_storage(address.path)


class ManifestSource(Source):
    """The usable rows of a manifest as studies, in the manifest's order."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        limit = address.whole_number("limit", minimum=1)
        self._storage = manifest_storage(address)
        self._ids: list[str] = []
        self._offsets, self._lengths, self._lines = array("Q"), array("Q"), array("Q")
        self._index_rows(address.parameters.get("split"), limit)

    @property
    def ids(self) -> list[str]:
        """The ids of all studies, in the manifest's order."""
        return self._ids

    def _index_rows(self, split: str | None, limit: int | None) -> None:
        """Scan all rows once; keep the offsets of the requested ones and the problems of the bad ones."""
        first_lines: dict[str, int] = {}
        splits: set[str] = set()
        for line_number, offset, line in manifest_lines(self._storage):
            try:
                row = parse_line(line)
                for field, name in row.files():
                    _in_field(field, self._storage.check, name)
                if row.id in first_lines:
                    raise FieldError("id", f"{row.id!r} was already used on line {first_lines[row.id]}")
            except FieldError as error:
                self.problems.append(self._problem(line_number, error))
                continue
            first_lines[row.id] = line_number
            if row.split is not None:
                splits.add(row.split)
            if (split is None or row.split == split) and (limit is None or len(self._ids) < limit):
                self._ids.append(row.id)
                self._offsets.append(offset)
                self._lengths.append(len(line))
                self._lines.append(line_number)
        self._check_some_rows(len(first_lines), splits, split)

    def _check_some_rows(self, usable: int, splits: set[str], split: str | None) -> None:
        if self._ids:
            return
        manifest = f"{self.address}: {self._storage.manifest_name}"
        if self.problems:
            of_split = f" of split {split!r}" if usable else ""
            raise InputError(
                f"{manifest} has no usable row{of_split}; {len(self.problems):,} have problems, the first: "
                f"{self.problems[0]}"
            )
        if not usable:
            raise InputError(f"{manifest} has no rows")
        if not splits:
            raise InputError(f"{manifest} has no splits; remove split={split}")
        raise unknown_name("split", str(split), splits)

    def _problem(self, line_number: int, error: FieldError) -> Problem:
        return Problem(self._storage.manifest_name, str(error), line_number, error.field)

    def image_identity(self, position: int) -> str | None:
        """Return the size and modification time of a study's image file, or of the archive."""
        try:
            return self._storage.find(self._row(position).file).identity()
        except InputError:
            return None

    def _row(self, position: int) -> ManifestRow:
        what = f"{self._storage.manifest.path}, manifest line {self._lines[position]}"
        line = self._storage.manifest.read(self._offsets[position], self._lengths[position], what)
        try:
            row = parse_row(line)
            if row.id != self._ids[position]:
                raise FieldError("id", f"was {self._ids[position]!r} when the source was opened; open it again")
            return row
        except FieldError as error:
            raise ProblemError(self._problem(self._lines[position], error)) from error

    def _build(self, position: int) -> Study:
        try:
            find = self._storage.find
            return build_study(self._row(position), self.address, lambda field, name: _in_field(field, find, name))
        except FieldError as error:
            raise ProblemError(self._problem(self._lines[position], error)) from error


def _in_field(field: str, look: Callable[[str], Found], name: str) -> Found:
    try:
        return look(name)
    except InputError as error:
        raise FieldError(field, str(error)) from None


def manifest_lines(storage: Storage) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and content of each non-blank line; lines over the limit are cut off."""
    position, end = storage.manifest_offset, storage.manifest_offset + storage.manifest_size
    number = 0
    with Path(storage.manifest.path).open("rb", buffering=2**20) as file:
        file.seek(position)
        if file.read(3) == b"\xef\xbb\xbf" and end - position >= 3:
            position += 3
        file.seek(position)
        while position < end:
            line = file.readline(min(end - position, MAX_LINE_BYTES + 1))
            if not line:
                raise InputError(f"{storage.manifest.path}: {storage.manifest_name} is truncated after line {number}")
            number, start = number + 1, position
            position += len(line)
            rest = line
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n") and position < end:
                rest = file.readline(min(end - position, MAX_LINE_BYTES + 1))
                position += len(rest)
            content = line.rstrip()
            if content:
                yield number, start, content


def parse_line(line: bytes) -> ManifestRow:
    """Parse a line from `manifest_lines`; raise `FieldError` for the first fault."""
    if len(line) > MAX_LINE_BYTES:
        raise FieldError(None, f"the line is longer than the limit of {MAX_LINE_BYTES:,} bytes")
    return parse_row(line)


_AS_GIVEN = (
    "patient", "exam", "view", "split", "age", "sex", "regions", "findings", "gaze", "extra", "region_findings",
)  # fmt: skip
FindFile = Callable[[str, str], StoredFile]
"""Finds the file that a field names."""


def build_study(row: ManifestRow, address: str, find: FindFile) -> Study:
    """Return the study of a row."""
    return Study(
        id=row.id,
        load=partial(load_image, row.id, find("file", row.file)),
        report=_report(row),
        phrases=tuple(_phrases(row, find)),
        located_findings=() if row.phrases is None else tuple(_located_findings(row, find)),
        source=address,
        **{name: getattr(row, name) for name in _AS_GIVEN},
    )


def _report(row: ManifestRow) -> Report | None:
    if row.text is None and not row.sections:
        return None
    text = row.text if row.text is not None else " ".join(descriptive_sections(row.sections))
    return Report(text=text, sections=row.sections)


def _phrases(row: ManifestRow, find: FindFile) -> Iterator[Phrase]:
    if row.phrases is None:
        yield from _labelled_phrases(row, find)
        yield from map(Phrase, descriptive_sentences(row.text, row.sections))
    for index, phrase in enumerate(row.phrases or ()):
        files = () if phrase.mask is None else (find(f"phrases[{index}].mask", phrase.mask),)
        mask = stored_mask(row.id, *files)
        yield Phrase(
            phrase.text, phrase.boxes, mask, phrase.regions, phrase.findings, phrase.locations, coded=phrase.coded
        )


def stored_mask(study_id: str, *files: StoredFile) -> Mask | None:
    """Return the union of masks that are loaded on first use, None without files."""
    return Mask.deferred(partial(load_masks, study_id, files)) if files else None


def _located_findings(row: ManifestRow, find: FindFile) -> Iterator[Phrase]:
    from rightlung.lexicon import find as known_finding

    for phrase in _labelled_phrases(row, find):
        if any(
            known_finding(name) is not None for name in phrase.findings
        ):  # masks of lungs and heart are labelled, too
            yield phrase


def _labelled_phrases(row: ManifestRow, find: FindFile) -> Iterator[Phrase]:
    """Yield one phrase per distinct label, with all its boxes and the union of its masks."""
    from rightlung.lexicon.prompts import prompt

    files: dict[str, list[StoredFile]] = {}
    for index, (label, name) in enumerate(row.masks):
        files.setdefault(label, []).append(find(f"masks[{index}].file", name))
    for label in dict.fromkeys([*(label for label, _ in row.boxes), *files]):
        boxes = tuple(box for name, box in row.boxes if name == label)
        mask = stored_mask(row.id, *files.get(label, ()))
        yield Phrase(prompt(label), boxes, mask, findings={label: Polarity.POSITIVE})
