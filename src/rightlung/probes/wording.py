"""Rewordings of a phrase with known meaning: the opposite statement, another severity, a synonym, a place, no side.

What the new words say is checked with the rule labeller; a rewording that it does not read as intended is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rightlung.core import Phrase, Polarity, Study
from rightlung.core.keyed import text_digest
from rightlung.lexicon import FINDINGS, REGIONS, prompt
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import read_report, read_sentence
from rightlung.lexicon.laterality import side_of, sides_in
from rightlung.lexicon.regions import LUNGS, descendants
from rightlung.lexicon.side_changes import with_articles, without_side
from rightlung.lexicon.wordkeys import findings_about, zones_in

SEVERITIES: Mapping[str, str] = {
    "small": "large", "large": "small", "tiny": "large", "trace": "large", "subtle": "marked", "minimal": "extensive",
    "mild": "severe", "slight": "marked", "faint": "dense", "moderate": "mild", "severe": "mild", "marked": "slight",
    "extensive": "minimal", "massive": "tiny", "minimally": "severely", "mildly": "severely", "slightly": "markedly",
    "moderately": "mildly", "severely": "mildly", "markedly": "slightly",
}  # fmt: skip
"""Words for a severity, each with one at the other end."""
_SEVERITY = re.compile(rf"\b(?:{'|'.join(SEVERITIES)})\b", re.IGNORECASE)
_PART = re.compile(r"\b(?:upper|mid|middle|lower|apical)\b", re.IGNORECASE)
_OPENING = re.compile(r"(there (?:is|are|has been|remains?)\s+)?(?:(?:an?|the|some)\s+)?", re.IGNORECASE)


def opposite(phrase: Phrase) -> Phrase | None:
    """Return the phrase negated if it asserts a finding, asserted if it negates all; None if it names none.

    >>> opposite(Phrase("There is a small left effusion.", findings={"pleural effusion": "positive"})).text
    'There is no small left effusion.'
    """
    asserted = findings_about(phrase.findings)
    names = asserted or tuple(phrase.findings)
    if not names or any(name not in FINDINGS for name in names):
        return None
    wanted = Polarity.NEGATIVE if asserted else Polarity.POSITIVE
    for text in _opposites(phrase.text, names, wanted):
        said = read_sentences(text)
        if said and set(said.values()) == {str(wanted)} and any(_covers(one, names) for one in said):
            return Phrase(text, regions=phrase.regions, findings=dict.fromkeys(names, wanted))
    return None


def _covers(found: str, names: tuple[str, ...]) -> bool:
    return any(found == name or found in broader_findings(name) or name in broader_findings(found) for name in names)


def _opposites(text: str, names: tuple[str, ...], wanted: Polarity) -> Iterator[str]:
    """Yield the text with "no" where it begins, then prompts."""
    if wanted == Polarity.NEGATIVE and (opening := _OPENING.match(text)) is not None:
        rest = text[opening.end() :]
        rest = rest if rest[1:2].isupper() else rest[:1].lower() + rest[1:]
        yield _capital(f"{opening[1] or ''}no {rest}")
    side = side_of(text)
    prompts = (prompt(name, str(wanted), side if side in FINDINGS[name].sides else None) for name in names)
    yield " ".join(f"{_capital(one)}." for one in prompts)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def read_sentences(text: str) -> dict[str, str]:
    """Return the findings of a phrase's sentences with their polarity."""
    return {name: polarity for one in read_report(text) for name, polarity in one.findings.items()}


def other_severity(phrase: Phrase) -> Phrase | None:
    """Return the phrase with the words for a severity replaced by opposite ones; None if it has none.

    >>> other_severity(Phrase("A mild, slightly worse opacity.")).text
    'A severe, markedly worse opacity.'
    """

    def other(match: re.Match[str]) -> str:
        word = SEVERITIES[match[0].lower()]
        return word.upper() if match[0].isupper() else _capital(word) if match[0][0].isupper() else word

    return _reworded(phrase, _SEVERITY.sub(other, phrase.text))


def synonymous(phrase: Phrase, seed: int = 0) -> Phrase | None:
    """Return the phrase with another name of one of its findings, which the labeller reads as the same; else None."""
    meaning = read_sentence(phrase.text).findings
    for name in phrase.findings:
        found = FINDINGS.get(name)
        known = () if found is None else dict.fromkeys((found.phrase, found.name, *found.synonyms))
        used = [one for one in known if re.search(rf"\b{re.escape(one)}\b", phrase.text, re.IGNORECASE)]
        if not used:
            continue
        old = max(used, key=len)
        others = [one for one in known if one not in old and old not in one]
        for new in sorted(others, key=lambda one: (text_digest(seed, phrase.text, one), one)):
            text = re.sub(rf"\b{re.escape(old)}\b", new, phrase.text, count=1, flags=re.IGNORECASE)
            text = text.upper() if phrase.text.isupper() else _capital(text) if phrase.text[0].isupper() else text
            if read_sentence(text).findings == meaning:
                return _reworded(phrase, text)
    return None


def with_region(phrase: Phrase) -> Phrase | None:
    """Return the phrase with the true region of its finding, if it names no part of the lung and there is one.

    >>> nodule = Phrase("Nodule.", findings={"nodule": "positive"}, regions=["left lung", "left upper lung zone"])
    >>> with_region(nodule).text
    'Nodule in the left upper lung zone.'
    """
    asserted = findings_about(phrase.findings)
    places = phrase.locations.get(asserted[0]) or phrase.regions if len(asserted) == 1 else ()
    inside = [one for one in places if any(one in descendants(lung) for lung in LUNGS)]
    if len(inside) != 1 or zones_in(phrase.text) or inside[0] in read_sentence(phrase.text).regions:
        return None
    where = REGIONS[inside[0]]
    if side_of(phrase.text) not in (None, where.side) or _PART.search(phrase.text):
        return None
    said, comma, rest = phrase.text.rstrip(". ").partition(",")
    return _reworded(phrase, f"{said} {where.preposition} the {where.spoken}{comma}{rest}.")


def side_dropped(study: Study, phrase: Phrase) -> Phrase | None:
    """Return the phrase without its side, if no other phrase or lesion of the finding could be meant; else None."""
    asserted = {name for name in findings_about(phrase.findings) if name in FINDINGS and FINDINGS[name].sides}
    if len(phrase.findings) != 1 or len(sides_in(phrase.text)) != 1 or len(phrase.target_boxes) > 1:
        return None
    others = [one for one in study.phrases if one is not phrase and asserted & {*findings_about(one.findings)}]
    located = [one for one in study.located_findings if asserted & {*findings_about(one.findings)}]
    several = any(len(one.target_boxes) > len(phrase.target_boxes) for one in located)
    text = None if not asserted or others or several else without_side(phrase.text)
    return None if text is None else _reworded(phrase, text)


def _reworded(phrase: Phrase, text: str) -> Phrase | None:
    text = with_articles(text) if with_articles(phrase.text) == phrase.text else text  # not "a LLL"
    return None if text == phrase.text else replace(phrase.without_target(), text=text)
