"""The phrase bank, read from ``data/words.toml`` and ``data/statements.toml``, and typing errors in its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from rightlung.core.keyed import RandomStream
from rightlung.lexicon import sides_in
from rightlung.lexicon.findings import FINDINGS, broader_findings
from rightlung.phantom.config import FINDING_ORDER, Part, read_data

Entry = TypeVar("Entry")

CLOSE: frozenset[frozenset[str]] = frozenset(
    frozenset(pair)
    for pair in (
        ("consolidation", "pneumonia"), ("consolidation", "lung opacity"), ("pneumonia", "lung opacity"),
        ("nodule", "mass"), ("lung opacity", "atelectasis"), ("consolidation", "atelectasis"),
        ("mass", "consolidation"), ("pneumonia", "atelectasis"), ("edema", "consolidation"), ("edema", "pneumonia"),
    )
)  # fmt: skip
"""Findings that look so similar that negating one next to the other would read as a contradiction."""


words = partial(read_data, "words.toml")  # the words for lesions: places, frames, findings
statements = partial(read_data, "statements.toml")  # the sentences of reports besides the lesions


@cache
def held_out_wordings() -> tuple[str, ...]:
    """Return the wordings that part "train" never uses: parts of templates."""
    return tuple(wording for wordings in read_data("held_out.toml")["wordings"].values() for wording in wordings)


def in_part(entries: Sequence[Entry], part: Part) -> Sequence[Entry]:
    """Return the entries of a list of templates or nouns that a part uses.

    For "train" they are those without a held-out wording; for "held-out" those with one, or all if none has one.
    """
    if part == "all":
        return entries
    held_out = [entry for entry in entries if any(wording in str(entry) for wording in held_out_wordings())]
    return held_out or entries if part == "held-out" else [entry for entry in entries if entry not in held_out]


@cache
def finding_words(finding: str, part: Part) -> dict[str, Any]:
    """Return the words for a finding that a part uses."""
    entry = words()["findings"][finding]
    return {name: in_part(value, part) if isinstance(value, list) else value for name, value in entry.items()}


@dataclass(frozen=True, slots=True)
class Negative:
    """A sentence about absent findings: its block, its frequency, what it negates, and what forbids it."""

    block: str
    share: float
    negates: tuple[str, ...]
    forbidding: frozenset[str]  # it is true if and only if none of these findings is present
    regions: tuple[str, ...]
    texts: tuple[str, ...]
    scope: frozenset[str]  # findings that must not be negated again


@cache
def negatives() -> tuple[Negative, ...]:
    """Return all sentences about absent findings."""
    found = []
    for entry in statements()["negatives"]:
        negates, regions, texts = (tuple(entry[name]) for name in ("negates", "regions", "texts"))
        unless = set(entry.get("unless", ()))
        forbidding = {*FINDING_ORDER, "support devices"} if "*" in unless else unless
        forbidding |= {kind for kind in FINDING_ORDER for denied in negates if denies(denied, kind)}
        forbidding |= {"support devices"} & set(negates)
        scope = _scope(negates)
        found.append(Negative(entry["block"], entry["share"], negates, frozenset(forbidding), regions, texts, scope))
    return tuple(found)


def _scope(negates: tuple[str, ...]) -> frozenset[str]:
    scope = set(negates)
    if "lung opacity" in scope:
        scope |= {kind for kind in FINDING_ORDER if "lung opacity" in broader_findings(kind)}
    if "enlarged cardiomediastinum" in scope:
        scope.add("mediastinal widening")
    return frozenset(scope)


def denies(denied: str, kind: str) -> bool:
    """Whether "no ``denied``" would be wrong, or read as wrong, if a lesion of this kind is present."""
    return denied == kind or denied in broader_findings(kind) or frozenset((denied, kind)) in CLOSE


_LETTERS = re.compile(r"[a-z]+")


@cache
def vocabulary() -> frozenset[str]:
    """Return every word of the bank: a typing error must not produce one of them."""
    return frozenset(_LETTERS.findall(_everything(words()).lower() + " " + _everything(statements()).lower()))


@cache
def finding_vocabulary() -> frozenset[str]:
    """Return the words that name findings, which a typing error must not change."""
    texts = [text for found in FINDINGS.values() for text in (found.name, found.phrase, *found.synonyms)]
    entries = words()["findings"].values()
    texts += [_everything(entry[key]) for entry in entries for key in entry if key.startswith("nouns")]
    texts += [_everything(entry["names"]) for entry in statements()["devices"].values()]
    return frozenset(_LETTERS.findall(" ".join(texts).lower()))


def _everything(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return " ".join(map(_everything, value.values()))
    if isinstance(value, list):
        return " ".join(map(_everything, value))
    return ""


_WORD = re.compile(r"(?<![\w-])[a-z]{5,}(?![\w-])")
_MEANING = frozenset({
    "without", "neither", "cannot", "exclude", "excluded", "suspected", "possible", "possibly", "questionable", "could",
    "might", "perhaps", "equivocal", "negative", "absent", "clear", "normal", "normally", "unremarkable", "unchanged",
    "stable", "intact", "bilateral", "bilaterally", "within", "limits", "increased", "decreased", "upper", "lower",
    "middle", "lingula", "lingular", "apical", "basal", "basilar", "difficult", "question", "suspicious",
})  # fmt: skip


def slip(text: str, stream: RandomStream) -> str:
    """Return the text with one typing error that leaves the meaning unchanged, if a word allows one.

    It swaps two letters or drops one, never in the name of a finding, and makes no word of the bank or for a side.
    """
    kept = _MEANING | finding_vocabulary()
    words = [match for match in _WORD.finditer(text) if match[0] not in kept and not sides_in(match[0])]
    if not words:
        return text
    match = stream.choice(words)
    word = match[0]
    place = stream.integer(1, len(word) - 2)
    if stream.chance(0.5):
        changed = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    else:
        changed = word[:place] + word[place + 1 :]
    if changed == word or changed in vocabulary() or sides_in(changed):
        return text
    return text[: match.start()] + changed + text[match.end() :]
