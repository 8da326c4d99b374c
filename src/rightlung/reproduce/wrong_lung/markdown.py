"""The results as Markdown with PNG figures, as a code host shows them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.reproduce.wrong_lung.figures import Drawing, bars
from rightlung.reproduce.wrong_lung.report import (
    EXAMPLES,
    LEFT_OUT,
    OTHER_DATA,
    OVER_PATIENTS,
    SAME_VERDICTS,
    SEED_BY_SEED,
    TITLE,
    TURNED_VERDICTS,
    WITHOUT,
    Report,
    sureness_words,
)
from rightlung.reproduce.wrong_lung.tables import NOT_COMPARABLE, Cell, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def escaped(text: str) -> str:
    """Return text that Markdown shows as it stands, in a table, too.

    >>> escaped("a|b <c> *")
    'a\\\\|b &lt;c&gt; \\\\*'
    """
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def render_markdown(report: Report, examples: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report as Markdown; ``examples`` are files beside it, with their captions."""
    return "\n".join(_lines(report, examples)) + "\n"


def _lines(report: Report, examples: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from (f"# {TITLE}", "")
    if report.warning:
        yield from (f"> **{escaped(report.warning)}**", "")
    yield from (f"**{NOT_A_MEDICAL_DEVICE}**", "")
    yield from (f"- {escaped(name)}: {_code(value)}" for name, value in report.facts.items())
    for title, counts in ((LEFT_OUT, report.left_out), (WITHOUT, report.without)):
        if counts:
            yield from ("", title, "", *(f"- {escaped(reason)}: {count:,}" for reason, count in counts.items()))
    if report.commands:
        yield from (
            "",
            "```sh",
            *(" ".join(command.splitlines()).replace("```", "") for command in report.commands),
            "```",
        )
    yield from ("", "## What was found", "", *(f"- {escaped(sentence)}" for sentence in report.found))
    if report.absent:
        yield from ("", "## What is missing", "", *(f"- {escaped(sentence)}" for sentence in report.absent))
    yield from ("", "## The claims", "", f"{OTHER_DATA} {OVER_PATIENTS} {SEED_BY_SEED}", "")
    yield from _claims(report)
    if any(not model.get("comparable", True) for model in report.models):
        yield from ("", escaped(NOT_COMPARABLE))
    if report.labels_table is not None:
        yield from ("", "## How much of the story is its labels", "", escaped(report.labels_figures), "")
        yield from (escaped(TURNED_VERDICTS if report.labels_matter else SAME_VERDICTS), "")
        yield from (f"- {escaped(sentence)}" for sentence in report.labels_matter)
        yield from ("", *_table(report.labels_table))
    for section in report.sections:
        yield from ("", f"## {escaped(section.title)}", "")
        if section.introduction:
            yield from (escaped(section.introduction), "")
        for part in section.parts:
            yield from _drawing(part) if isinstance(part, Drawing) else _table(part)
    if examples:
        yield from ("", f"## {EXAMPLES}", "")
        for file, caption in examples:
            yield from (f"![{escaped(caption)}]({file})", "", escaped(caption), "")
    yield from ("", NOT_A_MEDICAL_DEVICE)


def _code(value: str) -> str:
    return f"`{value}`" if value and "`" not in value and "\n" not in value and "?" in value else escaped(value)


def _claims(report: Report) -> Iterator[str]:
    yield "| claim | where | the paper's figures | region boxes | exact masks |"
    yield "| --- | --- | --- | --- | --- |"
    for one in report.judged:
        parts = []
        for target in ("regions", "exact"):
            judgement = one.judgements.get(target)
            if judgement is None:
                parts.append("–")
                continue
            why = " ".join((judgement.sentence, sureness_words(one, target)))
            parts.append(f"**{one.verdict(target)}**. {escaped(why)}")
        claim = one.claim
        texts = (" ".join(part for part in (claim.text, claim.stands_in) if part), claim.where, claim.paper)
        said = [escaped(text) or "–" for text in texts]
        yield f"| {' | '.join((*said, *parts))} |"


def _drawing(drawing: Drawing) -> Iterator[str]:
    picture = f"![{escaped(drawing.title)}](figures/{drawing.name}.png)"
    yield from _maybe_folded(drawing.title, [picture, "", escaped(drawing.described)], drawing.folded)


def _table(table: Table) -> Iterator[str]:
    right = {"number": "---:", "paper": "---:"}
    lines = [
        escaped(table.caption),
        "",
        "| " + " | ".join(escaped(heading.text) for heading in table.header) + " |",
        "| " + " | ".join(right.get(heading.kind, "---") for heading in table.header) + " |",
        *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows),
    ]
    for note in table.notes:
        lines += ["", escaped(note)]
    yield from _maybe_folded(table.title, lines, table.folded)


def _maybe_folded(title: str, lines: Sequence[str], folded: bool) -> Iterator[str]:
    if folded:
        yield from ("<details>", f"<summary>{html.escape(title)}</summary>", "", *lines, "", "</details>", "")
    else:
        yield from (f"### {escaped(title)}", "", *lines, "")


def _cell(cell: Cell) -> str:
    if cell.kind == "curve":
        return bars(cell.value)
    text = f"**{escaped(cell.text)}**" if cell.best else escaped(cell.text)
    return f"{text} ({escaped(cell.detail)})" if cell.detail else text
