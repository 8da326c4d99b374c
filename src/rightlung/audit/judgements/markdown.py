"""A study of judgements as Markdown: the same sentences and tables as the page, without the plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.judgements.content import Part, sections, settings


def render_markdown(result: Mapping[str, Any]) -> str:
    """Return a study's result as a Markdown page."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# Judgements of heatmaps", "", NOT_A_MEDICAL_DEVICE, "")
    for section in sections(result):
        yield from (f"## {section.title}", "")
        for text in section.sentences:
            yield from (_plain(text), "")
        if section.listed:
            yield from (f"- {_plain(text)}" for text in section.listed)
            yield ""
        for part in section.tables:
            yield from _table(part)
    yield from ("## Settings", "")
    yield from (f"- {name}: {_plain(value)}" for name, value in settings(result))


def _table(part: Part) -> Iterator[str]:
    yield from (f"### {_plain(part.title)}", "", _plain(part.caption), "")
    yield _row(part.header)
    yield _row(["---", *["---:"] * (len(part.header) - 1)])
    yield from (_row([row.name, *row.cells]) for row in part.rows)
    yield ""


def _row(cells: Iterable[str] | Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is: what came from a file must not become markup."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
