"""Check reports: without words, completely or in a section, and phrases that are not in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rightlung.lexicon.headings import DESCRIPTIVE_SECTIONS, section_name
from rightlung.studies.checks.issue import HINT, MOST_KEPT, Ledger, Origin, Severity, Tally
from rightlung.studies.checks.targets import Item
from rightlung.studies.files import shown

_NOTHING = re.compile(r"\W*(?:nan|null|na|nat|undefined|none|n/a|tbd|[\Wx_]*)\W*", re.IGNORECASE)
"""Only a placeholder, de-identification marks or punctuation."""
_BLANK = re.compile(r"\s*(?:nan|null|<na>|undefined)?\s*", re.IGNORECASE)
"""The same for sections in which "None." is an answer."""
# A heading directly before the next one or the end; in upper case with a colon, to exclude running text.
_HEADING = re.compile(r"(?m)(?:^|(?<=\s))(FINDINGS?|IMPRESSIONS?|CONCLUSIONS?)[ \t]*:")
_NEXT_HEADING = re.compile(r"\s*(?:(?:FINDINGS?|IMPRESSIONS?|CONCLUSIONS?)[ \t]*:|\Z)")
_BROKEN = "\ufffd"
_ENOUGH, _FEW = 10, 0.1
"""Phrases are quotations if at least this many are in their reports, and at most this share of them is not."""


class ReportChecks:
    """The reports of a source."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.reports = 0
        self._empty = Tally()
        self._quoted = 0
        self._unquoted: list[tuple[Origin, str, str]] = []

    def check(self, item: Item) -> None:
        """Check one study's report; with its raw row, also what the reader treats as absent."""
        report = item.study.report
        text, sections = (report.text, dict(report.sections)) if report is not None else (None, {})
        if item.raw is not None:
            raw_text, raw_sections = item.raw.get("text"), item.raw.get("sections")
            text = raw_text if isinstance(raw_text, str) else None
            sections = raw_sections if isinstance(raw_sections, dict) else {}
        if text is None and not sections:
            return
        self.reports += 1
        empty, silent, filled = self._read_sections(item.place, sections)
        if text is None and not filled:  # one finding, not one per section
            self.ledger.add("empty-report", item.place, "sections", "no section of the report has any words")
            return
        if text is not None and not filled and _NOTHING.fullmatch(text):
            self.ledger.add("empty-report", item.place, "text", _nothing("the report", text))
            return
        for name in silent:
            self._empty.note(name, item.place, f"sections.{name}")
        told = self.ledger.total
        for name, message, severity in empty:
            self.ledger.add("empty-section", item.place, f"sections.{name}", message, severity)
        if text:
            self._check_text(item.place, text)
        if told == self.ledger.total:
            words = [text or "", *(value for value in sections.values() if isinstance(value, str))]
            self._check_phrases(item, _plain(" ".join(words)))

    def _read_sections(
        self, place: Origin, sections: Mapping[str, object]
    ) -> tuple[list[tuple[str, str, Severity | None]], list[str], bool]:
        """Return issues of sections without words, other empty sections, and whether any section has words."""
        empty: list[tuple[str, str, Severity | None]] = []
        silent: list[str] = []
        filled = False
        for name, value in sections.items():
            telling = (section_name(name) or name.strip().casefold()) in DESCRIPTIVE_SECTIONS
            if isinstance(value, str) and not (_NOTHING if telling else _BLANK).fullmatch(value):
                filled = True
                self._check_characters(place, f"sections.{name}", value)
            elif telling and value is None:
                empty.append((name, "there is no such section", HINT))
            elif telling:
                empty.append((name, _nothing("the section", value), None))
            elif value is not None:  # an explicit null is an answer
                silent.append(name)
        return empty, silent, filled

    def _check_text(self, place: Origin, text: str) -> None:
        if _NOTHING.fullmatch(text):
            self.ledger.add("empty-report", place, "text", _nothing("the report", text))
            return
        self._check_characters(place, "text", text)
        headings = [found[1] for found in _HEADING.finditer(text) if _NEXT_HEADING.match(text, found.end())]
        if headings:
            self.ledger.add("empty-section", place, "text", f"nothing follows the heading {' and '.join(headings)}")

    def _check_phrases(self, item: Item, report: str) -> None:
        """Keep phrases that are not in the report until it is known whether phrases of this source are quotations."""
        for target in item.targets:
            if target.kind != "phrase" or f"{target.field}.text" in item.void or target.field in item.void:
                continue
            if _plain(target.text) in report:
                self._quoted += 1
            elif len(self._unquoted) < MOST_KEPT:
                self._unquoted.append((item.place, f"{target.field}.text", target.text))

    def _check_characters(self, place: Origin, where: str, text: str) -> None:
        if _BROKEN in text:
            message = "the text contains replacement characters (U+FFFD): it was decoded with the wrong encoding"
            self.ledger.add("placeholder", place, where, message)

    def finish(self) -> None:
        """Report other empty sections, once each, and phrases that are not in their reports."""
        if self._quoted >= _ENOUGH and len(self._unquoted) <= _FEW * self._quoted:
            for place, field, text in self._unquoted:
                message = f"{shown(text, 72)} is not in the report, unlike {self._quoted:,} other phrases"
                self.ledger.add("phrase-text", place, field, message)
        for name, count in self._empty.items():
            message = f"section {name!r} is empty in {count:,} of {self.reports:,} reports, this is the first"
            self.ledger.add("empty-section", *self._empty.first[name], message, HINT)


def _nothing(what: str, value: object) -> str:
    shown = value.strip() if isinstance(value, str) else value
    return f"{what} is empty" if not shown else f"{what} contains only {shown!r}"


def _plain(text: str) -> str:
    """Return only the words of a text, so that punctuation, line ends and case do not matter."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "
