"""Split a report into its sections, even if headings vary, or some or all of them are missing.

``docs/lexicon.md`` describes which headings are recognised; `headings` lists their spellings. Missing headings are
handled as in the splitter behind MIMIC-CXR's labels (MIT-LCP/mimic-cxr, ``txt/section_parser.py``), reimplemented with
these departures, each for a fault seen there:

- "LUNGS:" and the like subdivide the findings; there, they cut off everything that follows.
- Addenda and wet reads are separate parts, so that a preliminary impression never replaces the final one.
- Several sections of one name are joined; there, the last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from rightlung.lexicon.data_files import check_text
from rightlung.lexicon.headings import (
    DESCRIPTIVE_SECTIONS,
    IN_PASSING,
    MAIN_CAPITALISED,
    MAIN_UPPER,
    SECTIONS,
    normalised,
    section_name,
)

Part = Literal["report", "addendum", "wet read"]

_PREAMBLE = "preamble"
_CONTINUED = (*DESCRIPTIVE_SECTIONS, "organ", "title", "addendum", "wet read")
_LINE = re.compile(r"[^\r\n\x85\u2028\u2029]*")
_RULE = re.compile(r"\s*(?:_{5,}|[_=*~-]{8,})\s*")
_RULE_AFTER = re.compile(r"\s[_=*~-]{5,}$")  # three underscores stand for a de-identified word
_BEFORE = re.compile(r"[\s*#=\[<_|>-]*(?:(?:\d{1,2}|[IVX]{1,4}|[A-H])[.)]\s+)?[*#\[_]*")
_LABEL = re.compile(r"([A-Za-z][A-Za-z0-9 ,/&()'+.-]{1,60}?)\s*(?:[\]*#_=]*\s*:[*_]*|\s[-–—]\s)")
_ALONE = re.compile(r"([A-Za-z][A-Za-z /&()]{2,40}?)[\s*#=\]_<>-]*")
_BARE = re.compile(rf"({MAIN_UPPER})\s+(?=[A-Z0-9\"'_(])")
_MAIN = rf"{MAIN_UPPER}|{MAIN_CAPITALISED}"
_FENCED = rf"[\[<]({_MAIN})[\]>](?:\s*[:=;])?"
_MARKED = re.compile(rf"\s*(?:{_FENCED}|({_MAIN})\s*[=;](?!=))")
_LIST_ITEM = re.compile(r"\d{1,2}[.)](?!\d)")
_INNER = re.compile(rf"(?<![\w/&-])({MAIN_UPPER})\s*:|(?<=[.!?])\s+({MAIN_CAPITALISED})\s*:|{_FENCED}")
_BLANK_LINE = re.compile(r"(?:\r?\n[ \t\f]*){2,}")
_SEEN = re.compile(
    r"\b(?:lungs?|heart|cardiac|cardiomediastinal|mediastin\w+|pleural|effusions?|pneumothora\w+|consolidations?|"
    r"opacit\w+|atelectas\w+|edema|tube|catheter|hil\w+)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ReportSection:
    """The text ``[start, end)`` of a report below one heading, stripped.

    ``name`` is one of `headings.SECTIONS`, ``preamble``, or the lower-case text of an unknown heading; ``heading`` is
    as written, empty if the section has none.
    """

    name: str
    heading: str
    start: int
    end: int
    text: str
    part: Part = "report"


class _Mark(NamedTuple):
    """Where a section begins: a heading, or a horizontal rule, whose ``name`` is None."""

    name: str | None
    heading: str
    start: int
    end: int


def find_sections(text: str) -> list[ReportSection]:
    """Split a report at its headings; return non-empty sections in order, with positions.

    >>> [(s.name, s.text) for s in find_sections("INDICATION: Cough.\\nFindings\\nClear lungs.")]
    [('indication', 'Cough.'), ('findings', 'Clear lungs.')]
    """
    check_text(text, "the text to split into sections")
    sections = list(_cut(text, list(_marks(text))))
    if sections and all(section.part != "report" for section in sections):
        # There is nothing but a preliminary report or an addendum: then that is the report.
        first = sections[0].part
        sections = [replace(section, part="report") if section.part == first else section for section in sections]
    return _with_findings(text, _settle_titles(sections))


def report_sections(text: str) -> dict[str, str]:
    """Return a report's sections by name; several of one name are joined by an empty line.

    An addendum or wet read is returned whole, with its headings; its sections do not count as the report's.
    """
    found = find_sections(text)
    named: dict[str, list[str]] = {}
    for section in found:
        if section.part == "report":
            named.setdefault(section.name, []).append(section.text)
    for part in ("addendum", "wet read"):
        if groups := [_joined(text, group) for group in _runs(found, part)]:
            named[part] = groups
    return {name: "\n\n".join(texts) for name, texts in named.items()}


def descriptive_texts(text: str) -> list[str]:
    """Return the texts of findings and impression, in this order; empty if the report has neither."""
    named = report_sections(text)
    return [named[name] for name in DESCRIPTIVE_SECTIONS if name in named]


def added_text(addendum: str) -> list[str]:
    """Return the descriptive texts of an addendum: its own text, findings and impression."""
    told = (*DESCRIPTIVE_SECTIONS, _PREAMBLE, "addendum")
    return [section.text for section in find_sections(addendum) if section.name in told]


def _joined(text: str, group: list[ReportSection]) -> str:
    start = group[0].start
    if group[0].name != group[0].part and group[0].heading:  # keep the heading of "ADDENDUM: INDICATION: …"
        start = text.rindex(group[0].heading, 0, start)
    return text[start : group[-1].end].strip()


def _runs(sections: Iterable[ReportSection], part: str) -> list[list[ReportSection]]:
    """Return the sections of each addendum or wet read; its own heading begins a new one."""
    runs: list[list[ReportSection]] = [[]]
    for section in sections:
        if section.part != part or section.name == part:
            runs.append([])
        if section.part == part:
            runs[-1].append(section)
    return [run for run in runs if run]


def _marks(text: str) -> Iterator[_Mark]:
    """Yield the headings and horizontal rules of a text in order."""
    ended = True
    for line in _LINE.finditer(text):
        content = line[0]
        stripped = content.strip()
        if not stripped:
            # There is also an empty match at every line end; only an empty line ends a sentence.
            ended = ended or line.start() == 0 or text[line.start() - 1] in "\r\n\x85\u2028\u2029"
            continue
        if _RULE.fullmatch(content):
            yield _Mark(None, "", line.start(), line.end())
            ended = True
            continue
        after = 0
        if (first := _at_start(content, line.start(), ended)) is not None:
            yield first
            after = first.end - line.start()
        for inner in _INNER.finditer(content, after):
            group = inner.lastindex or 0
            start = inner.start() if group == 3 else inner.start(group)
            yield _Mark(section_name(inner[group]), inner[group], line.start() + start, line.start() + inner.end())
        ended = stripped[-1] in ".:!?"


def _at_start(line: str, offset: int, ended: bool) -> _Mark | None:
    """Return the heading at the start of a line, if any; ``ended`` says that the previous line was complete."""
    if marked := _MARKED.match(line):
        label = marked[1] or marked[2]
        return _Mark(section_name(label), label, offset, offset + marked.end())
    before = _BEFORE.match(line)
    start = before.end() if before is not None else 0
    # In wrapped text, lower-case words ("findings:") may start lines, too.
    if labelled := _LABEL.match(line, start):
        label, end = labelled[1], labelled.end()
        colon = ":" in line[labelled.end(1) : end]
        name = section_name(label) if ended or label[0].isupper() else None
        if name in ("organ", "title") and not colon:
            name = None
        if name is None and colon and label == label.upper() and re.search(r"[A-Z]{4}", label):
            name = " ".join(label.casefold().split())
        if name is not None and (not line[end : end + 1].isdigit() or _LIST_ITEM.match(line, end)):
            return _Mark(name, label, offset, offset + end)
    if alone := _ALONE.fullmatch(line, start):
        name = section_name(alone[1]) if ended or alone[1][0].isupper() else None
        if name not in (None, "organ", "title") and normalised(alone[1]) not in IN_PASSING:
            return _Mark(name, alone[1], offset, offset + len(line))
    bare = _BARE.match(line, start)
    if bare is not None and any(letter.islower() for letter in line[bare.end() :]):
        return _Mark(section_name(bare[1]), bare[1], offset, offset + bare.end())
    return None


def _cut(text: str, marks: list[_Mark]) -> Iterator[ReportSection]:
    """Yield the sections between marks, each with its part."""
    part: Part = "report"
    had: set[str] = set()
    # A rule or "FINAL REPORT" ends an addendum or wet read; headings before it belong to that part.
    last_close = max((place for place, mark in enumerate(marks) if mark.name in (None, "final report")), default=-1)
    start, name, heading = 0, _PREAMBLE, ""
    for place, mark in enumerate(marks):
        # A section continues over a mark: findings over "LUNGS:" and over unknown headings.
        if mark.name is not None and mark.name not in (*SECTIONS, "title") and name in _CONTINUED:
            continue
        if (found := _section(text, name, heading, start, mark.start, part)) is not None:
            yield found
            if part == "report":
                had.add(name)
        name = mark.name or _PREAMBLE
        if mark.name is None or mark.name == "final report":
            part, name = "report", _PREAMBLE
        elif name in ("addendum", "wet read"):
            part = cast(Part, name)
        elif name not in had and place > last_close:
            part = "report"
        heading = mark.heading if name != _PREAMBLE else ""
        # An organ's heading belongs to the text.
        start = mark.start if name == "organ" else mark.end
    if (found := _section(text, name, heading, start, len(text), part)) is not None:
        yield found


def _section(text: str, name: str, heading: str, start: int, end: int, part: Part) -> ReportSection | None:
    body = text[start:end]
    kept = _RULE_AFTER.sub("", body.rstrip()).strip()
    if not any(character.isalnum() or character == "_" for character in kept):
        return None
    start += len(body) - len(body.lstrip())
    return ReportSection(name, heading, start, start + len(kept), kept, part)


def _settle_titles(sections: list[ReportSection]) -> list[ReportSection]:
    """Rename titles and organs: to findings if there are no others, else titles to examination."""
    headed = any(section.name == "findings" and section.part == "report" for section in sections)
    names = {"organ": "findings", "title": "examination" if headed else "findings"}
    return [replace(section, name=names.get(section.name, section.name)) for section in sections]


def _with_findings(text: str, sections: list[ReportSection]) -> list[ReportSection]:
    """Add findings to a report that has neither findings nor impression by heading."""
    own = [place for place, section in enumerate(sections) if section.part == "report"]
    if not own or any(sections[place].name in DESCRIPTIVE_SECTIONS for place in own):
        return sections
    closing = sections[own[-1]].name in ("signature", "notification", "date", "recommendations")
    place = own[-2] if closing and len(own) > 1 else own[-1]
    last = sections[place]
    gap = _BLANK_LINE.search(last.text)
    if last.name == _PREAMBLE and len(own) == 1:  # without headings: after an upper-case title paragraph
        start = gap.end() if gap is not None and (title := last.text[: gap.start()]) == title.upper() else 0
    elif gap is not None:
        start = gap.end()
    elif (dictated := _after_comparison(last)) is not None:
        start = dictated
    else:
        return sections
    found = ReportSection("findings", "", last.start + start, last.end, text[last.start + start : last.end])
    head = last.text[:start].rstrip()
    kept = [replace(last, end=last.start + len(head), text=head)] if head else []
    return [*sections[:place], *kept, found, *sections[place + 1 :]]


def _after_comparison(section: ReportSection) -> int | None:
    """Return where findings dictated into the comparison begin: its second sentence, if it describes any."""
    if section.name != "comparison":
        return None
    stop = re.search(r"[.;]\s+(?=[A-Z])", section.text)
    return stop.end() if stop is not None and _SEEN.search(section.text, stop.end()) else None
