"""Spellings of the section headings of radiology reports.

`normalised` brings headings into the form in which they are compared: case, brackets, plural "(s)", ``&``, ``/`` and
blanks between letters do not matter. Upper-case headings may be misspelt ("IMPRESSON"), contain the section's name
among other words ("CHEST FINDINGS"), or be titles of the images ("PORTABLE AP CHEST"), which head the findings in
MIMIC-CXR.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

SECTIONS: dict[str, tuple[str, ...]] = {
    "findings": ("findings", "finding", "report", "description", "observations", "reference findings"),
    "impression": (
        "impression", "impressions", "imp", "conclusion", "conclusions", "findings and impression",
        "impression and findings", "findings and impressions", "findings and conclusion", "summary", "opinion",
        "diagnosis", "interpretation", "impression and recommendations", "impression and plan", "assessment",
    ),
    "indication": (
        "indication", "indications", "clinical indication", "clinical indications", "indication for study",
        "indication for exam", "indication for examination", "reason for exam", "reason for examination",
        "reason for study", "reason for the exam", "reason for the examination", "reason for this examination",
        "reason", "clinical question", "preoperative diagnosis",
    ),
    "history": (
        "history", "clinical history", "clinical information", "patient history", "history and indication",
        "indication and history", "medical history", "past medical history", "clinical data", "clinical details",
        "clinical presentation", "pfi",
    ),
    "comparison": (
        "comparison", "comparisons", "comparison exam", "comparison exams", "comparison film", "comparison films",
        "comparison study", "comparison studies", "comparison examination", "comparison radiograph", "reference exam",
        "prior studies", "prior study", "priors",
    ),
    "technique": (
        "technique", "techniques", "procedure", "protocol", "views", "projections", "technique and views",
        "examination and technique", "exam and technique",
    ),
    "examination": (
        "examination", "exam", "examinations", "exams", "study", "type of examination", "type of exam",
        "examination type", "exam type", "procedure name",
    ),
    "recommendations": ("recommendation", "recommendations", "plan", "follow up", "follow-up"),
    "notification": ("notification", "notifications", "communication", "critical results", "critical result"),
    "comment": ("comment", "comments", "note", "limitations"),
    "date": ("date", "study date", "exam date", "date of exam", "date of examination", "time"),
    "signature": (
        "dictated by", "signed by", "electronically signed by", "approved by", "interpreted by", "read by", "attending",
        "radiologist", "reporting radiologist", "referring physician", "ordering physician", "transcribed by", "cc",
    ),
    "addendum": ("addendum", "addenda", "final addendum", "addendum to report"),
    "wet read": ("wet read", "wetread", "preliminary report", "preliminary read", "preliminary interpretation"),
    "final report": ("final report", "final report examination", "attending report"),
}  # fmt: skip
"""Headings by the name of the section that they mean."""

DESCRIPTIVE_SECTIONS = ("findings", "impression")
"""The sections that describe the image."""

_NAMES = {spelling: name for name, spellings in SECTIONS.items() for spelling in spellings}
# Too common in running text ("Note: rotated") to be headings with just a capital letter and a colon.
IN_PASSING = frozenset({
    "approved by", "assessment", "attending", "cc", "comment", "comments", "communication", "date", "description",
    "diagnosis", "dictated by", "follow up", "follow-up", "interpretation", "interpreted by", "limitations", "note",
    "observations", "plan", "procedure", "projections", "protocol", "radiologist", "read by", "reason",
    "report", "signed by", "study", "time", "views",
})  # fmt: skip
"""Headings that need upper case and a colon."""
# Headings of one organ subdivide the findings, and begin them if no other heading does.
_ORGANS = re.compile(
    r"lungs?|pleurae?|pleural spaces?|heart|cardiac|cardiomediastin\w+|cardiovascular|mediastinum|hila|airways?|"
    r"trachea|diaphragm|bones?|osseous structures?|skeleton|soft tissues?|chest wall|upper abdomen|lines?|tubes?|"
    r"support devices?|devices?|hardware"
)
_TITLES = re.compile(
    r"\b(chest|portable|(?:pa|ap|frontal|lateral) (?:and|view|radiograph|upright|semi)|(?:one|two|single|[12]) views?|"
    r"views?|bone window|ribs|radiographs?)\b"
)
_WITHIN = ("impression", "findings", "history", "comparison", "indication", "addendum")
_LONG_ENOUGH = 7
_ALIKE = 0.84
# Headings that occur within a line if line ends were lost, and at the start of a line without a colon.
_MAIN = (
    "findings", "impression", "impressions", "conclusion", "findings and impression", "findings/impression",
    "findings & impression", "comparison", "comparisons", "indication", "technique", "history", "clinical history",
    "clinical information", "clinical indication", "examination", "exam", "reason for exam", "reason for examination",
    "recommendation", "recommendations", "recommendation(s)", "notification", "addendum", "wet read", "final report",
)  # fmt: skip
_SPACED = re.compile(r"(?:[A-Z] )+[A-Z]")


def _alternatives(names: tuple[str, ...]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


MAIN_UPPER = _alternatives(tuple(name.upper() for name in _MAIN))
"""Regular expression for the main headings in upper case."""

MAIN_CAPITALISED = _alternatives(tuple(name.capitalize() for name in _MAIN))
"""The same, capitalised."""

_ANY_CASE = _alternatives(
    tuple(
        spelling
        for name, spellings in SECTIONS.items()
        if name not in ("date", "signature", "comment")
        for spelling in (*spellings, *(s.replace(" and ", "/") for s in spellings if " and " in s))
        if spelling not in IN_PASSING
    )
)
HEADING = re.compile(rf"(?:(?i:{_ANY_CASE})|(?=[^\n:]*[A-Z]{{4}})[A-Z][A-Z0-9 ,/&()'-]*):(?=\s|$)")
"""A heading with its colon at the start of a line: a known one in any case, or anything in upper case."""


@cache
def normalised(heading: str) -> str:
    """Return a heading in the form in which headings are compared.

    >>> normalised(" FINDINGS / Impression(s) ")
    'findings and impressions'
    """
    if _SPACED.fullmatch(heading):
        heading = heading.replace(" ", "")
    text = heading.casefold().replace("(s)", "s")
    text = re.sub(r"\s*[&/+]\s*", " and ", text)
    return " ".join(re.sub(r"[^a-z0-9, -]", " ", text).split()).strip(" -,")


@cache
def section_name(heading: str) -> str | None:
    """Return the section that a heading means, with or without its colon; None if it is unknown.

    Two names occur only for headings within or above the findings: ``organ`` ("LUNGS") and ``title`` of the images.

    >>> [section_name(heading) for heading in ("Reason for exam:", "IMPRESSON", "PORTABLE CHEST", "CODE")]
    ['indication', 'impression', 'title', None]
    """
    written = heading.strip().rstrip(":").strip()
    key = normalised(written)
    upper = written == written.upper()
    if key in _NAMES:
        return _NAMES[key] if upper or key not in IN_PASSING else None
    if not upper or not key:
        return None
    words = key.split()
    if (within := next((name for name in _WITHIN if name in words), None)) is not None:
        return within
    if _ORGANS.fullmatch(words[0].rstrip(",")) or _ORGANS.fullmatch(key):
        return "organ"
    if _TITLES.search(key):
        return "title"
    if len(key) >= _LONG_ENOUGH:
        near = difflib.get_close_matches(key, _NAMES, n=1, cutoff=_ALIKE)
        return _NAMES[near[0]] if near else None
    return None
