"""Faults of a generated report that need no reference: comparisons with an earlier study, and contradictions.

A model that is shown one image cannot know what has changed. The words are those of radiologists' reports; a comparison
that is denied ("no new opacity") is one, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import LabelledSentence, Mention, read_report

_STUDY = "(?:study|studies|exam|exams|examination|examinations|radiograph|radiographs|film|films|image|images|ct|x-ray)"
_CHANGE = "(?:increase|decrease|improve|worsen|resolv|progress|enlarg|chang|develop|clear|reduc)"
_COMPARED = re.compile(
    r"\b(?:"
    r"unchanged|stable|stably|newly|new|interval(?!\s+between)|compar(?:ed|ison)|similar (?:to|in appearance)|"
    r"(?:as|than|from|since|to|on|in) (?:the |a )?(?:prior|previous|last|earlier|preceding|most recent)|"
    rf"(?:prior|previous|earlier|preceding|last) (?:chest |portable |frontal |pa |ap )*{_STUDY}|"
    r"(?:previously|again|redemonstrat\w*|re-?demonstrat\w*|no longer|remains?|persist\w*)|"
    rf"(?:has|have) (?:\w+ ){{0,2}}{_CHANGE}\w*|{_CHANGE}ing (?:of|in)|worsening|improving|improved|resolving|resolved"
    r")\b"
)
_NONE_KNOWN = re.compile(r"^no (?:prior|previous|earlier)\b")
_REST = re.compile(r"\b(?:other|otherwise|additional|remaining|new|further|else|elsewhere|previously)\b")
"""A negation of the rest does not contradict what was said before."""


def compared_with_prior(report: str | Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the sentences of findings and impression that compare with an earlier study.

    >>> compared_with_prior("Unchanged small left effusion. Prior granulomatous disease. No pneumothorax.")
    ('Unchanged small left effusion.',)
    """
    said = ((one.text, one.text.lower()) for one in read_report(report))
    return tuple(text for text, lower in said if _COMPARED.search(lower) and not _NONE_KNOWN.match(lower))


def contradictions(report: str | Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the findings, with their side if it was named, that one sentence asserts and another one denies.

    A denial without a side holds for both. "Clear lungs" denies a consolidation, too. What a sentence says of the rest
    ("otherwise clear") contradicts nothing.

    >>> contradictions("Left pleural effusion. No right pleural effusion. No pneumothorax. The lungs are clear.")
    ()
    >>> contradictions("Moderate left pleural effusion. The heart is normal. No pleural effusion.")
    ('left pleural effusion',)
    """
    sentences = read_report(report)
    denied = [
        (place, one) for place, one in _mentions(sentences, "negative") if not _REST.search(_text(sentences, place))
    ]
    found: dict[str, None] = {}
    for place, one in _mentions(sentences, "positive"):
        wider = {"lung opacity"} if "airspace opacity" in (one.finding, *broader_findings(one.finding)) else set()
        for other, negation in denied:
            if other != place and negation.finding in {one.finding, *wider} and _meet(one, negation):
                found[one.finding if one.side is None else f"{one.side} {one.finding}"] = None
    return tuple(found)


def _mentions(sentences: Iterable[LabelledSentence], polarity: str) -> list[tuple[int, Mention]]:
    pairs = ((place, one) for place, sentence in enumerate(sentences) for one in sentence.mentions)
    return [(place, one) for place, one in pairs if one.polarity == polarity]


def _text(sentences: tuple[LabelledSentence, ...], place: int) -> str:
    return sentences[place].text.lower()


def _meet(one: Mention, negation: Mention) -> bool:
    """Whether the two are about the same place, as far as they say; a denial of some regions is about these."""
    if negation.side in (None, "both") or one.side == negation.side:
        everywhere = not negation.regions or negation.side is not None or "lungs" in negation.regions
        return everywhere or bool({*one.regions} & {*negation.regions})
    return False
