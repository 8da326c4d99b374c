"""The labeller's rules, built from ``data/cues.toml`` and ``data/mentions.toml``.

The data come in three parts: ``base`` uses no real report; ``first`` and ``second`` were added after reading the errors
in either half of a real training set. All three are in use; an evaluation leaves out the part that was tuned on the
half it measures (see ``docs/results/labeller.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final, Literal, get_args

from rightlung.core.errors import InputError, unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon.data_files import DataTable, read_data
from rightlung.lexicon.findings import FINDINGS
from rightlung.lexicon.labels import label_map, label_set
from rightlung.lexicon.phrase_table import Payload, PhraseTable, word_places
from rightlung.lexicon.regions import REGIONS

Part = Literal["base", "first", "second"]
PARTS: Final[tuple[Part, ...]] = ("base", "first", "second")

Cue = Literal[
    "negation", "negated", "doubt", "doubted", "either", "neutral", "passing", "boundary", "reset", "verb", "listing",
    "exception",
]  # fmt: skip
"""The cues, by their keys in ``data/cues.toml``."""
Kind = Cue | Literal["mention", "structure", "state", "comma", "and", "or"]
"""What a phrase does in a sentence."""
_JOINS: dict[str, Kind] = {",": "comma", "and": "and", "as well as": "and", "plus": "and", "or": "or", "/": "or"}
# Names of findings that sentences use for something else, or that contain words which decide the polarity.
_NOT_MENTIONS = ("no finding", "pneumonia-like opacity", "other lesion", "other disease", "other abnormality")
_CUES_FILE, _MENTIONS_FILE = "cues.toml", "mentions.toml"


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure whose state a report describes, and what each state says about findings.

    ``says`` and ``denies`` map a state to the findings that it states and rules out; a question mark before a finding
    marks it as possible only.
    """

    name: str
    says: Mapping[str, tuple[str, ...]]
    denies: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A word for a place: its side, a region, or a zone whose side other words give (``lower lung zone``)."""

    side: str | None = None
    zone: str | None = None
    regions: tuple[str, ...] = ()


Meaning = tuple[Kind, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules, ready for use."""

    phrases: PhraseTable[Meaning]
    places: PhraseTable[NamedPlace]
    describing: frozenset[str]
    observations: Mapping[str, tuple[str, ...]]
    """CheXpert's observations by finding; findings without any are missing."""


@cache
def rules(parts: tuple[Part, ...] = PARTS) -> Rules:
    """Return the rules of these parts of the data, by default of all."""
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part of the rules", str(part), PARTS)
    cues = [DataTable(_CUES_FILE, part, read_data(_CUES_FILE).get(part, {})) for part in parts]
    mentions = [DataTable(_MENTIONS_FILE, part, read_data(_MENTIONS_FILE).get(part, {})) for part in parts]
    phrases: PhraseTable[Meaning] = PhraseTable()
    places: PhraseTable[NamedPlace] = PhraseTable()
    describing: set[str] = set()
    observations = {name: labels for name, labels in label_map("findings", "chexpert-14").table.items() if labels}
    structures = _read_structures(mentions)
    _add_lexicon(phrases, places)
    for cue_table, table in zip(cues, mentions, strict=True):
        # A later phrase replaces an earlier one, so the most specific come last.
        for cue in get_args(Cue):
            _enter(cue_table, cue, phrases, (cue, None))
        describing.update(cue_table.texts("describing"))
        cue_table.done()
        states, named = table.table("states"), table.table("structures")
        for kind in states.entries:
            _enter(states, kind, phrases, ("state", kind))
        for name in named.entries:
            _enter(named.table(name), "words", phrases, ("structure", structures[name]))
        _add_mentions(table.table("mentions"), phrases)
        _enter(table, "unmentions", phrases, ("neutral", None))
        _add_places(table.table("places"), places)
        observations.update(_read_observations(table.table("observations")))
        table.done()
    for phrase, join in _JOINS.items():
        phrases.add(phrase, (join, None))
    return Rules(phrases, places, frozenset(describing), FrozenMapping(observations))


def _enter(table: DataTable, key: str, phrases: PhraseTable[Payload], payload: Payload) -> None:
    for phrase in table.texts(key):
        try:
            phrases.add(phrase, payload)
        except InputError as error:
            table.fail(key, str(error))


def _add_lexicon(phrases: PhraseTable[Meaning], places: PhraseTable[NamedPlace]) -> None:
    for found in FINDINGS.values():
        if found.name not in _NOT_MENTIONS:
            for name in (found.name, *found.synonyms, found.phrase, found.plural_phrase):
                phrases.add(name.replace("(", " ").replace(")", " "), ("mention", found.name))
    for side, words in (("left", "left|lt"), ("right", "right|rt"), ("both", "bilateral|bilaterally|both|either side")):
        places.add(f"({words})", NamedPlace(side=side))
    for found_region in REGIONS.values():
        own_side = found_region.side if found_region.side != "none" else None
        for name in (found_region.name, *found_region.aliases):
            places.add(name, NamedPlace(side=own_side, regions=(found_region.name,)))


def _add_mentions(table: DataTable, phrases: PhraseTable[Meaning]) -> None:
    for name in table.entries:
        for finding in name.split(", "):
            if finding.removeprefix("?") not in FINDINGS:
                table.fail(name, f"{finding!r} is not a finding")
        _enter(table, name, phrases, ("mention", name))


def _read_structures(tables: list[DataTable]) -> dict[str, Structure]:
    """Return the structures by name, including what later parts add."""
    states = {kind for table in tables for kind in table.table("states").entries}
    told: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
    for part in tables:
        structures = part.table("structures")
        for name in structures.entries:
            table = structures.table(name)
            table.texts("words")
            for kind, telling in told.setdefault(name, {"says": {}, "denies": {}}).items():
                entries = table.table(kind)
                for state in entries.entries:
                    if state not in states:
                        entries.fail(state, "is not a state")
                    telling[state] = entries.texts(state)
                    for finding in telling[state]:
                        if finding.removeprefix("?") not in FINDINGS:
                            entries.fail(state, f"names {finding!r}, which is not a finding")
            table.done()
    return {name: Structure(name, both["says"], both["denies"]) for name, both in told.items()}


def _read_observations(table: DataTable) -> dict[str, tuple[str, ...]]:
    known = label_set("chexpert-14").labels
    read: dict[str, tuple[str, ...]] = {}
    for name in table.entries:
        if name not in FINDINGS:
            table.fail(name, "is not a finding")
        label = table.text(name)
        if label not in known:
            table.fail(name, f"names {label!r}, which is not an observation")
        read[name] = (label,)
    return read


def _add_places(table: DataTable, places: PhraseTable[NamedPlace]) -> None:
    for name in table.entries:
        named = tuple(part.strip() for part in name.split(",")) if name else ()
        if all(part in REGIONS for part in named):
            place = NamedPlace(regions=named)
        elif f"left {name}" in REGIONS:
            place = NamedPlace(zone=name)
        else:
            table.fail(name, "is not a region")
        for phrase in table.texts(name):
            places.add(phrase, replace(place, side="both") if phrase.startswith("bi") else place)


@lru_cache(maxsize=1 << 16)
def entity_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the character spans ``(begin, end)`` of a sentence's clinical entities, in order.

    Entities are findings, structures and regions. "That's the Wrong Lung!" masks them in training and finds them with
    SciSpaCy's entity linker. A side alone ("left") is not an entity; a region with its side ("left lower lobe") is one.

    >>> text = "Small left pleural effusion at the lung base."
    >>> [text[begin:end] for begin, end in entity_spans(text)]
    ['pleural effusion', 'lung base']
    """
    known = rules()
    words = word_places(text)
    forms = [form for form, _, _ in words]
    said = known.phrases.find_all(forms)
    found = [(first, last) for first, last, (kind, _) in said if kind in ("mention", "structure")]
    found += [(first, last) for first, last, place in known.places.find_all(forms) if place.regions or place.zone]
    spans: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if spans and first < spans[-1][1]:  # the region and the finding of "left lung opacity" share a word
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return tuple((words[first][1], words[last - 1][2]) for first, last in spans)
