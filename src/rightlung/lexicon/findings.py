"""Canonical findings: one name for what the data sets, the Open-I codings and radiologists call by many.

The facts and the decisions in medicine stand in ``data/findings.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, cast

from rightlung.lexicon.loading import LazyMapping, Table, bad_data, not_known, read_data
from rightlung.lexicon.regions import REGIONS

Extent = Literal["focal", "diffuse", "either"]

_FILE = "findings.toml"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a radiograph can show.

    ``broader`` are the findings that hold whenever this one does; ``one_of``, where given, those of which at least one
    holds whenever this one does. ``regions`` are where it is typically seen, ``sided`` says whether it can be left or
    right, ``phrase`` and ``plural`` are how a sentence names it, ``count`` whether the phrase takes an article.
    """

    name: str
    synonyms: tuple[str, ...]
    broader: tuple[str, ...]
    one_of: tuple[str, ...]
    regions: tuple[str, ...]
    sided: bool
    extent: Extent
    phrase: str
    plural: str
    count: bool


def build_findings(data: Mapping[str, object]) -> Mapping[str, Finding]:
    """Build the findings from their tables, checking every name they mention and that ``broader`` has no circle."""
    findings = {}
    for name, entry in data.items():
        table = Table(_FILE, name, entry)
        phrase = table.text("phrase", name)
        findings[name] = Finding(
            name=name,
            synonyms=table.texts("synonyms"),
            broader=table.texts("broader", data),
            one_of=table.texts("one_of", data),
            regions=table.texts("regions", REGIONS),
            sided=table.flag("sided", True),
            extent=cast(Extent, table.choice("extent", "either", ("focal", "diffuse", "either"))),
            phrase=phrase,
            plural=table.text("plural", phrase),
            count=table.flag("count", True),
        )
        table.done()
    for name in findings:
        if name in broader_findings(name, findings):
            bad_data(_FILE, name, "broader", "leads back to the finding itself")
    return MappingProxyType(findings)


def broader_findings(name: str, findings: Mapping[str, Finding] | None = None) -> tuple[str, ...]:
    """Return every finding that holds whenever this one does, nearest first.

    >>> broader_findings("consolidation")
    ('airspace opacity', 'lung opacity')
    """
    known = FINDINGS if findings is None else findings
    found: dict[str, None] = {}
    waiting = list(known[name].broader)
    while waiting:
        step = waiting.pop(0)
        if step not in found:
            found[step] = None
            waiting.extend(known[step].broader)
    return tuple(found)


FINDINGS: Mapping[str, Finding] = LazyMapping(lambda: build_findings(read_data(_FILE)))
"""Every canonical finding by name."""

_BRITISH = (("oedema", "edema"), ("haem", "hem"), ("tumour", "tumor"), ("goitre", "goiter"), ("aesthe", "esthe"))
_SPACES = re.compile(r"[\s_]+")


def _plain(name: str) -> str:
    """Return the form under which names are compared: lower case, single spaces, American spelling."""
    plain = _SPACES.sub(" ", name).strip().lower()
    for british, american in _BRITISH:
        plain = plain.replace(british, american)
    return plain


@cache
def _names() -> dict[str, str]:
    """Return every known name with its finding: canonical names first, then synonyms, then the data sets' labels.

    A label never takes a canonical name away (RSNA's "Lung Opacity" is narrower than "lung opacity"), and two findings
    may not share a synonym.
    """
    from rightlung.lexicon.labels import LABEL_SETS

    names = {name: name for name in FINDINGS}
    for found in FINDINGS.values():
        for synonym in (*found.synonyms, found.phrase, found.plural):
            if names.setdefault(_plain(synonym), found.name) != found.name:
                bad_data(_FILE, found.name, "synonyms", f"{synonym!r} is also a name of {names[_plain(synonym)]!r}")
    for labels in LABEL_SETS.values():
        for label, meaning in labels.findings.items():
            names.setdefault(_plain(label), meaning)
    return names


def find(name: str) -> Finding | None:
    """Return the finding that a name, synonym or label means, in any case and in British spelling, too; or None.

    >>> find("Pleural_Thickening").name, find("Pulmonary Oedema").name, find("left shoe")
    ('pleural thickening', 'edema', None)
    """
    plain = _plain(name)
    names = _names()
    for form in (plain, plain.removesuffix("s"), plain.removesuffix("es")):
        if form in names:
            return FINDINGS[names[form]]
    return None


def finding(name: str) -> Finding:
    """Return the finding that a name means; an unknown name is an error that offers the nearest."""
    found = find(name)
    if found is None:
        not_known("finding", name, FINDINGS)
    return found
