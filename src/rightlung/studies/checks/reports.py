"""Reports that say nothing, as a whole or in a section."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from rightlung.lexicon.headings import TELLING, section_name
from rightlung.studies.checks.finding import HINT, Ledger, Place
from rightlung.studies.checks.targets import Item

_NOTHING = re.compile(r"\W*(?:nan|null|na|nat|undefined|none|n/a|tbd|[\Wx_]*)\W*", re.IGNORECASE)
"""Nothing but a placeholder, marks of de-identification or punctuation: no findings."""
_BLANK = re.compile(r"\s*(?:nan|null|<na>|undefined)?\s*", re.IGNORECASE)
"""The same for sections in which "None." is an answer."""
# A heading with nothing before the next one or the end; in capitals with a colon, so that prose is never taken for one.
_HEADING = re.compile(r"(?m)(?:^|(?<=\s))(FINDINGS?|IMPRESSIONS?|CONCLUSIONS?)[ \t]*:")
_NEXT_HEADING = re.compile(r"\s*(?:(?:FINDINGS?|IMPRESSIONS?|CONCLUSIONS?)[ \t]*:|\Z)")
_BROKEN = "\ufffd"


class Reports:
    """The reports of a source."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.reports = 0
        self._empty: Counter[str] = Counter()
        self._first: dict[str, Place] = {}

    def check(self, item: Item) -> None:
        """Check one study's report; with its raw row, also what the reader takes as absent."""
        report = item.study.report
        text = report.text if report is not None else None
        sections: Mapping[str, object] = dict(report.sections) if report is not None else {}
        if item.raw is not None:
            raw_sections = item.raw.get("sections")
            sections = raw_sections if isinstance(raw_sections, dict) else {}
            raw_text = item.raw.get("text")
            text = raw_text if isinstance(raw_text, str) else None
        if text is None and not sections:
            return
        self.reports += 1
        filled = self._check_sections(item.place, sections)
        if text is not None and (text or not sections):
            self._check_text(item.place, text)
        elif sections and not filled and text is None:
            self.ledger.add("empty-report", item.place, "sections", "no section of the report has a word in it")

    def _check_sections(self, place: Place, sections: Mapping[str, object]) -> bool:
        filled = False
        for name, value in sections.items():
            telling = (section_name(name) or name.strip().casefold()) in TELLING
            if value is None:  # there is no such section, and that is an answer
                if telling:
                    self.ledger.add("empty-section", place, f"sections.{name}", "there is no such section", HINT)
                continue
            if isinstance(value, str) and not (_NOTHING if telling else _BLANK).fullmatch(value):
                filled = True
                self._check_characters(place, f"sections.{name}", value)
            elif telling:
                self.ledger.add("empty-section", place, f"sections.{name}", _nothing("the section", value))
            else:
                self._empty[name] += 1
                self._first.setdefault(name, place)
        return filled

    def _check_text(self, place: Place, text: str) -> None:
        if _NOTHING.fullmatch(text):
            self.ledger.add("empty-report", place, "text", _nothing("the report", text))
            return
        self._check_characters(place, "text", text)
        for found in _HEADING.finditer(text):
            if _NEXT_HEADING.match(text, found.end()):
                self.ledger.add("empty-section", place, "text", f"nothing follows the heading {found[1]}")

    def _check_characters(self, place: Place, where: str, text: str) -> None:
        if _BROKEN in text:
            self.ledger.add(
                "placeholder", place, where, "characters were lost (U+FFFD): the text was read in a wrong encoding"
            )

    def finish(self) -> None:
        """Say how often other sections are empty, once for each: many reports have no comparison."""
        for name, count in self._empty.items():
            self.ledger.add(
                "empty-section", self._first[name], f"sections.{name}",
                f"section {name!r} is empty in {count:,} of {self.reports:,} reports, here first", HINT,
            )  # fmt: skip


def _nothing(what: str, value: object) -> str:
    shown = value.strip() if isinstance(value, str) else value
    return f"{what} is empty" if not shown else f"{what} says nothing but {shown!r}"
