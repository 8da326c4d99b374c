"""The parts of a page, as plain data for the renderers."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from rightlung.scoring.statistics import FEW_CLUSTERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from PIL.Image import Image as Picture

Kind = Literal["text", "number", "paper", "curve"]
"""Layout of a column: text, our numbers, a paper's numbers, or training curves."""

FEW = "†"
"""Marks an interval in a table that rests on few patients; the table then explains it (`Table.footnotes`)."""

FEW_NOTE = f"{FEW} Fewer than {FEW_CLUSTERS} patients: the interval is too narrow to rely on."

ONLY_INTERVAL = "‡"
"""Marks "no difference shown" beside an interval that excludes zero; the table then explains it."""

ONLY_INTERVAL_NOTE = (
    f"{ONLY_INTERVAL} The interval excludes zero, and yet no difference is shown, because the sign-flip test over "
    "patients is not significant. Of several comparisons, some intervals exclude zero by chance; the test allows for "
    "all of them (Holm's correction)."
)

FACTS_TITLE = "Source and settings"
"""Heading of the list of facts at the end of a page."""


Mark = Literal["yes", "no", "unclear", "not tested"]
MARKS: Mapping[Mark, str] = {"yes": "✓", "no": "✗", "unclear": "?", "not tested": "–"}


@dataclass(frozen=True)
class MarkedSentence:
    """One sentence of a verdict with its mark, and the numbers it rests on."""

    mark: Mark
    text: str
    detail: str = ""


@dataclass(frozen=True)
class Cell:
    """A table cell: the text, the interval or remark below it, and the value for the JSON file."""

    text: str
    detail: str = ""
    value: Any = None
    strong: bool = False
    help: str = ""
    """An explanation, shown on hovering."""
    items: Sequence[str] = ()
    """Additional lines, as a list below the text."""
    curve: Sequence[tuple[float, float]] = ()
    """Points (step, value) of a sparkline, in a column of kind ``curve``."""
    link: str = ""
    """Relative URL of another page."""


@dataclass(frozen=True)
class Column:
    """A column heading; ``help`` is shown on hovering. ``link`` is the relative URL of another page (HTML only)."""

    title: str
    kind: Kind = "number"
    help: str = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``folded`` tables are collapsed until opened."""

    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    folded: bool = False

    @property
    def footnotes(self) -> list[str]:
        """The notes, and the meaning of the marks that cells have."""
        said = " ".join(cell.detail or cell.text for row in self.rows for cell in row)
        marks = {FEW: FEW_NOTE, ONLY_INTERVAL: ONLY_INTERVAL_NOTE}
        return [*self.notes, *(note for mark, note in marks.items() if mark in said)]

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": [column.title for column in self.columns],
            "rows": [[cell.text if cell.value is None else cell.value for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Figure:
    """A matplotlib figure, drawn when the page is rendered. ``caption`` describes it in words."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Drawing]
    folded: bool = False
    numbers: Any = None
    """The drawn values for the JSON file, if no table has them."""


@dataclass(frozen=True)
class Case:
    """Pictures side by side (e.g. an image with its target, and maps), each with a label."""

    title: str
    pictures: Sequence[tuple[str, Callable[[], Picture]]]
    notes: Sequence[str] = ()
    beside: bool = False
    """Whether the notes stand next to the pictures, not below."""


@dataclass(frozen=True)
class Gallery:
    """A list of cases with pictures."""

    name: str
    title: str
    caption: str
    cases: Sequence[Case]
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, a list of sentences, code to copy, and tables, figures and galleries.

    In HTML, a ``verdict`` is shown side by side with the section's gallery, and a ``folded`` section is collapsed.
    """

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    items: Sequence[str] = ()
    parts: Sequence[Table | Figure | Gallery] = ()
    code: str = ""
    verdict: Sequence[MarkedSentence] = ()
    folded: bool = False

    @property
    def empty(self) -> bool:
        """Whether the section has no content."""
        return not (self.paragraphs or self.items or self.parts or self.code or self.verdict)


@dataclass(frozen=True)
class Page:
    """A whole page. Sections without content are left out."""

    title: str
    lead: str
    """One or two sentences: what was measured on what."""
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)
    """Source, protocol and counts, shown at the end."""
    warning: str = ""
    """A warning shown at the top, if any."""

    def __post_init__(self) -> None:
        for kind in (Table, Figure, Gallery):
            counts = Counter(part.name for part in self.parts(kind))
            if twice := [name for name, count in counts.items() if count > 1]:
                raise ValueError(f"two parts of kind {kind.__name__} have the same name: {', '.join(twice)}")

    @property
    def shown(self) -> list[Section]:
        """The sections with content."""
        return [section for section in self.sections if not section.empty]

    def parts(self, kind: type) -> list[Any]:
        """Return all tables, figures or galleries."""
        return [part for section in self.shown for part in section.parts if isinstance(part, kind)]

    def brief(self) -> Page:
        """Return the page without pictures and without what is folded."""
        sections = []
        for section in self.sections:
            parts = [part for part in section.parts if isinstance(part, Table) and not part.folded]
            if not section.folded and (parts or section.verdict or not section.parts):
                sections.append(replace(section, parts=parts))
        return replace(self, sections=sections)

    def as_json(self) -> dict[str, Any]:
        """Return the tables, and the values of figures that no table has, as JSON values."""
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "warning": self.warning,
            "tables": {table.name: table.as_json() for table in self.parts(Table)},
            "figures": {figure.name: figure.numbers for figure in self.parts(Figure) if figure.numbers is not None},
        }


def relative_link(path: Path, folder: Path) -> str:
    """Return the URL of a file, relative to the folder of a page.

    >>> relative_link(Path("audits/a b/audit.html"), Path("board"))
    '../audits/a%20b/audit.html'
    """
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def slugs(names: Iterable[str]) -> list[str]:
    """Return unique names that are valid in URLs and file names.

    >>> slugs(["noise image (50 %)", "Noise image 50", "ß"])
    ['noise-image-50', 'noise-image-50-2', 'part']
    """
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "part"
        further = (f"{slug}-{count}" for count in range(2, len(found) + 3))
        found.append(next(other for other in (slug, *further) if other not in found))
    return found
