"""Canonical findings: one name for the many that data sets, the Open-I codes and radiologists use.

``data/findings.toml`` holds the facts and explains the medical choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast

from rightlung.core.errors import unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon.data_files import DataTable, LazyMapping, bad_data, check_text, closure, read_data
from rightlung.lexicon.regions import REGIONS, ancestors, descendants

Spread = Literal["focal", "diffuse", "either"]
FindingSide = Literal["left", "right", "both"]

_FILE = "findings.toml"
_SIDES = ("left", "right", "both")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding that a radiograph can show.

    ``broader`` lists the findings that hold whenever this one does; of those in ``one_of`` at least one does.
    ``regions`` is where it is typically seen, ``within`` where it can be located (including all regions inside),
    ``implied`` the regions that its phrase and side already name. The remaining fields say how a sentence names it: see
    the head of ``data/findings.toml``.
    """

    name: str
    synonyms: tuple[str, ...]
    broader: tuple[str, ...]
    one_of: tuple[str, ...]
    regions: tuple[str, ...]
    within: tuple[str, ...]
    implied: tuple[str, ...]
    sides: tuple[FindingSide, ...]
    spread: Spread
    phrase: str
    plural_phrase: str
    one_side: str
    both_sides: str
    negation: str
    preposition: str | None
    count: bool
    plural: bool
    diagnosis: bool

    def can_lie_in(self, region_name: str) -> bool:
        """Whether a sentence may locate it in this region (a canonical name)."""
        if self.implies(region_name):
            side = REGIONS[region_name].side
            return side in ("none", "both") or side in self.sides
        return any(region_name == outer or region_name in descendants(outer) for outer in self.within)

    def implies(self, region_name: str) -> bool:
        """Whether its phrase with a side already names this region (a canonical name)."""
        parts = REGIONS[region_name].parts
        return region_name in self.implied or (bool(parts) and set(parts) <= set(self.implied))


def build_findings(data: Mapping[str, object]) -> Mapping[str, Finding]:
    """Build the findings from their tables; check all names in them and that ``broader`` has no cycle."""
    findings = {}
    for name, entry in data.items():
        table = DataTable(_FILE, name, entry)
        phrase = table.text("phrase", name)
        plural_phrase = table.text("plural_phrase", phrase)
        regions = table.texts("regions", REGIONS)
        # If the data do not say: anywhere in the lungs if it is typically seen there.
        usual = ("lungs",) if any("lungs" in ancestors(region) for region in regions) else regions
        within, sides = table.texts("within", REGIONS), table.texts("sides", _SIDES)
        findings[name] = Finding(
            name=name,
            synonyms=table.texts("synonyms"),
            broader=table.texts("broader", data),
            one_of=table.texts("one_of", data),
            regions=regions,
            within=within if "within" in table.entries else usual,
            implied=table.texts("implied", REGIONS),
            sides=cast(tuple[FindingSide, ...], sides if "sides" in table.entries else _SIDES),
            spread=cast(Spread, table.choice("spread", "either", ("focal", "diffuse", "either"))),
            phrase=phrase,
            plural_phrase=plural_phrase,
            one_side=table.text("one_side", f"{{side}} {phrase}"),
            both_sides=table.text("both_sides", f"bilateral {plural_phrase}"),
            negation=table.text("negation", ""),
            preposition=table.text("preposition", "") or None,
            count=table.flag("count", True),
            plural=table.flag("plural", False),
            diagnosis=table.flag("diagnosis", False),
        )
        if "{side}" not in findings[name].one_side:
            table.fail("one_side", "must contain {side}")
        table.done()
    for name in findings:
        if name in broader_findings(name, findings):
            bad_data(_FILE, name, "broader", "leads back to the finding itself")
    return FrozenMapping(findings)


def broader_findings(name: str, findings: Mapping[str, Finding] | None = None) -> tuple[str, ...]:
    """Return every finding that holds whenever this one does, nearest first.

    >>> broader_findings("consolidation")
    ('airspace opacity', 'lung opacity')
    """
    known = FINDINGS if findings is None else findings
    return closure(known[name].broader, lambda step: known[step].broader)


FINDINGS: Mapping[str, Finding] = LazyMapping(__name__, "FINDINGS", lambda: build_findings(read_data(_FILE)))
"""Every canonical finding by name."""

_BRITISH = (("oedema", "edema"), ("haem", "hem"), ("tumour", "tumor"), ("goitre", "goiter"), ("aesthe", "esthe"))


def _plain(name: str) -> str:
    """Return the form in which names are compared: lower case, single spaces, American spelling."""
    plain = " ".join(name.replace("_", " ").split()).lower()
    for british, american in _BRITISH:
        plain = plain.replace(british, american)
    return plain


@cache
def _names() -> dict[str, str]:
    """Return finding by known name: canonical names first, then synonyms, then the data sets' labels.

    A label never overrides a canonical name (RSNA's "Lung Opacity" is narrower than "lung opacity"), and two findings
    may not share a synonym.
    """
    from rightlung.lexicon.labels import LABEL_SETS

    names = {name: name for name in FINDINGS}
    for found in FINDINGS.values():
        for synonym in (*found.synonyms, found.phrase, found.plural_phrase):
            if names.setdefault(_plain(synonym), found.name) != found.name:
                bad_data(_FILE, found.name, "synonyms", f"{synonym!r} is also a name of {names[_plain(synonym)]!r}")
    for labels in LABEL_SETS.values():
        for label, meaning in labels.findings.items():
            names.setdefault(_plain(label), meaning)
    return names


# Plural endings with their singulars, irregular ones first.
_PLURALS = (
    ("ies", "y"), ("mata", "ma"), ("ae", "a"), ("aces", "ax"), ("ses", "sis"), ("a", "um"), ("es", ""), ("s", ""),
)  # fmt: skip


def find(name: str) -> Finding | None:
    """Return the finding that a name, synonym or label means, or None.

    Case does not matter. British spelling and the usual plurals (regular, Latin, Greek) are understood.

    >>> find("Pleural_Thickening").name, find("Pulmonary Oedema").name, find("left shoe")
    ('pleural thickening', 'edema', None)
    """
    names, plain = _names(), _plain(check_text(name, "a finding's name"))
    singulars = (plain.removesuffix(plural) + singular for plural, singular in _PLURALS if plain.endswith(plural))
    known = next((form for form in (plain, *singulars) if form in names), None)
    return None if known is None else FINDINGS[names[known]]


def finding(name: str) -> Finding:
    """Return the finding that a name means; an unknown name is an error that suggests the closest."""
    found = find(name)
    if found is None:
        raise unknown_name("finding", name, FINDINGS)
    return found


@cache
def canonical_finding(name: str) -> str:
    """Return the lexicon's name of a finding; an unknown name is returned in lower case."""
    found = find(name)
    return found.name if found is not None else " ".join(name.lower().split())
