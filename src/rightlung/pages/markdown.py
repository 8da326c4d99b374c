"""Render a page as Markdown for code hosting sites."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from rightlung import NOT_A_MEDICAL_DEVICE, __version__
from rightlung.pages.content import FACTS_TITLE, MARKS, Cell, Column, Figure, Gallery, Page, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")
_AT_START = re.compile(r"^([-+=](?=\s|[-+=]|$)|\d+(?=[.)](?:\s|$)))")
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_LENGTH = 16


def escaped(text: str) -> str:
    """Return a text escaped for Markdown, also inside tables.

    >>> escaped("a|b <c> *"), escaped("- x"), escaped("1. x")
    ('a\\\\|b &lt;c&gt; \\\\*', '\\\\- x', '1\\\\. x')
    """
    text = _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
    return _AT_START.sub(lambda found: f"{found[1]}\\" if found[1].isdigit() else f"\\{found[1]}", text)


def picture_key(gallery: Gallery, number: int) -> str:
    """Return the name of the picture of a gallery's case for `render_markdown`; cases count from one."""
    return f"{gallery.name}/{number}"


def render_markdown(page: Page, figures: Mapping[str, str] | None = None) -> str:
    """Return a page as Markdown.

    ``figures`` has the relative path of each picture by the figure's name, or by `picture_key` for the cases of a
    gallery. Pictures without a path are left out.
    """
    return "\n".join(_page(page, figures or {})) + "\n"


def _page(page: Page, figures: Mapping[str, str]) -> Iterator[str]:
    yield from (f"# {escaped(page.title)}", "", escaped(page.lead), "")
    if page.warning:
        yield from (f"> **{escaped(page.warning)}**", "")
    yield from (f"**{NOT_A_MEDICAL_DEVICE}**", "")
    for section in page.shown:
        yield from _section(section, figures)
    if page.facts:
        yield from (f"## {FACTS_TITLE}", "")
        yield from (f"- {escaped(name)}: {escaped(value)}" for name, value in page.facts.items())
        yield ""
    yield f"rightlung {__version__}. {NOT_A_MEDICAL_DEVICE}"


def _section(section: Section, figures: Mapping[str, str]) -> Iterator[str]:
    yield from (f"## {escaped(section.title)}", "")
    if section.verdict:
        said = (f"- {MARKS[one.mark]} **{escaped(one.text)}** {escaped(one.detail)}" for one in section.verdict)
        yield from (*map(str.rstrip, said), "")
    for paragraph in section.paragraphs:
        yield from (escaped(paragraph), "")
    if section.items:
        yield from (*(f"- {escaped(item)}" for item in section.items), "")
    if section.code:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", section.code)), default=0))
        yield from (f"{fence}sh", *section.code.splitlines(), fence, "")
    for part in section.parts:
        if isinstance(part, Table):
            lines = [*_table(part)]
        elif isinstance(part, Figure):
            lines = [*_figure(part, figures)]
        else:
            lines = [*_gallery(part, figures)]
        if part.folded:
            yield from ("<details>", f"<summary>{html.escape(part.title)}</summary>", "", *lines, "</details>", "")
        else:
            heading = [] if part.title == section.title else [f"### {escaped(part.title)}", ""]
            yield from (*heading, *lines)


def _figure(figure: Figure, figures: Mapping[str, str]) -> Iterator[str]:
    if figure.name in figures:
        yield from (f"![{escaped(figure.title)}]({quote(figures[figure.name])})", "")
    yield from (escaped(figure.caption), "")


def _gallery(gallery: Gallery, figures: Mapping[str, str]) -> Iterator[str]:
    yield from (escaped(gallery.caption), "")
    for place, case in enumerate(gallery.cases, start=1):
        yield from (f"**{escaped(case.title)}**", "")
        if (path := figures.get(picture_key(gallery, place))) is not None:
            shown = ", ".join(label for label, _ in case.pictures)
            yield from (f"![{escaped(f'{case.title}: {shown}')}]({quote(path)})", "")
        for note in case.notes:
            yield from (escaped(note), "")


def _table(table: Table) -> Iterator[str]:
    yield from (escaped(table.caption), "")
    yield _row([escaped(column.title) for column in table.columns])
    yield _row(["---:" if column.kind in ("number", "paper") else "---" for column in table.columns])
    for row in table.rows:
        yield _row([_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)])
    yield ""
    for note in table.footnotes:
        yield from (escaped(note), "")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell, column: Column) -> str:
    text = f"**{escaped(cell.text)}**" if cell.strong and cell.text else escaped(cell.text)
    text = f"[{text}]({cell.link})" if cell.link and text else text
    parts = [blocks(cell.curve), text, *(f"• {escaped(item)}" for item in cell.items)]
    detail = escaped(cell.detail)
    if detail and column.kind in ("number", "paper") and not cell.items:
        parts[1] = f"{text} ({detail})"
    else:
        parts.append(detail)
    return "<br>".join(part for part in parts if part)


def blocks(points: Sequence[tuple[float, float]]) -> str:
    """Return a curve as a line of block characters.

    >>> blocks([(0, 4.0), (1, 2.0), (2, 1.0)])
    '█▃▁'
    """
    if len(points) < 2:
        return ""
    step = -(-len(points) // _CURVE_LENGTH)
    values = [value for _, value in points[::step]]
    low, high = min(values), max(values)
    return "".join(_BLOCKS[round((len(_BLOCKS) - 1) * (value - low) / ((high - low) or 1.0))] for value in values)
