"""What a page consists of. Whoever makes a page builds these values; one renderer each writes them down."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from PIL.Image import Image as Picture

Kind = Literal["text", "number", "paper", "curve"]
"""How a column is laid out: words, our numbers, a paper's numbers, or training curves."""

FACTS_TITLE = "Source and settings"
"""Heading of a page's facts."""


@dataclass(frozen=True)
class Cell:
    """One entry: what is read, the interval or remark below it, and the value itself for the JSON file."""

    text: str
    detail: str = ""
    value: Any = None
    strong: bool = False
    items: Sequence[str] = ()
    """Further lines, as a list below the text."""
    curve: Sequence[tuple[float, float]] = ()
    """Points (step, value) of a small line, in a column of the kind ``curve``."""


@dataclass(frozen=True)
class Column:
    """What stands above a column; ``help`` explains it on hovering."""

    title: str
    kind: Kind = "number"
    help: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``folded`` ones are closed until they are opened."""

    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    folded: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all the numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "header": [column.title for column in self.columns],
            "rows": [[cell.text if cell.value is None else cell.value for cell in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Figure:
    """A matplotlib figure, drawn when the page is rendered. ``caption`` says in words what it shows."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Drawing]
    folded: bool = False
    numbers: Any = None
    """What is drawn, for the JSON file, where no table holds it."""


@dataclass(frozen=True)
class Case:
    """Pictures side by side that belong together (an image with the truth, a map, another map), each with a label."""

    title: str
    pictures: Sequence[tuple[str, Callable[[], Picture]]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Gallery:
    """Cases to look at."""

    name: str
    title: str
    caption: str
    cases: Sequence[Case]
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, a list of sentences, code to copy, and tables, figures and galleries."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    items: Sequence[str] = ()
    parts: Sequence[Table | Figure | Gallery] = ()
    code: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.paragraphs or self.items or self.parts or self.code)


@dataclass(frozen=True)
class Page:
    """A whole page. Sections without content are left out."""

    title: str
    lead: str
    """One or two sentences: what was measured on what."""
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)
    """Where everything comes from: source, protocol, counts; shown at the end."""
    warning: str = ""
    """What has to be read before anything else, or nothing."""

    def __post_init__(self) -> None:
        for kind in (Table, Figure, Gallery):
            counts = Counter(part.name for part in self.parts(kind))
            if twice := [name for name, count in counts.items() if count > 1]:
                raise ValueError(f"two of the page's {kind.__name__} parts have the same name: {', '.join(twice)}")

    @property
    def shown(self) -> list[Section]:
        """The sections that have content."""
        return [section for section in self.sections if not section.empty]

    def parts(self, kind: type) -> list[Any]:
        """Return all tables, figures or galleries."""
        return [part for section in self.shown for part in section.parts if isinstance(part, kind)]

    def as_json(self) -> dict[str, Any]:
        """Return what the page says in numbers: its tables, and what its figures draw where no table holds it."""
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "warning": self.warning,
            "tables": {table.name: table.as_json() for table in self.parts(Table)},
            "figures": {figure.name: figure.numbers for figure in self.parts(Figure) if figure.numbers is not None},
        }


def slugs(names: Iterable[str]) -> list[str]:
    """Return names that can be part of an address or a file name, no two of them alike.

    >>> slugs(["noise image (50 %)", "Noise image 50", "ß"])
    ['noise-image-50', 'noise-image-50-2', 'part']
    """
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "part"
        further = (f"{slug}-{count}" for count in range(2, len(found) + 3))
        found.append(next(other for other in (slug, *further) if other not in found))
    return found
