"""Rule labeller for reports: CheXpert's 14 observations, and the findings, sides and regions of each sentence.

`observations` returns what Irvin et al. (AAAI 2019) call positive, negative, uncertain or blank. The rules are our own;
their words are in ``data/mentions.toml`` and ``data/cues.toml``. Differences from the classic labeller
(stanfordmlgroup/chexpert-labeler):

- "No new consolidation" is negative here and uncertain there.
- A normal heart and normal mediastinal contours are negative Cardiomegaly and Enlarged Cardiomediastinum, clear lungs
  negative Lung Opacity, sharp costophrenic angles negative Pleural Effusion.
- A finding that is both uncertain and present is present, even if a third sentence negates it.
- Granulomas are nodules, thus Lung Lesion; fibrosis is Lung Opacity, not Pleural Other (see ``data/findings.toml``).
- A text without content has no label; there, it is No Finding.

Only findings, impression and addenda are read, because the indication says nothing about what the image shows. An
addendum can add a finding (which rules out No Finding) but not retract one: positive overrides negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rightlung.core.errors import InputError
from rightlung.lexicon.assertions import Assertion, Event, PolarityName, assertions, polarities_of
from rightlung.lexicon.findings import FINDINGS, FindingSide, broader_findings
from rightlung.lexicon.headings import DESCRIPTIVE_SECTIONS
from rightlung.lexicon.locations import Placed, places_of
from rightlung.lexicon.phrase_table import words_of
from rightlung.lexicon.rules import PARTS, Part, Rules, rules
from rightlung.lexicon.sections import added_text, report_sections
from rightlung.lexicon.sentences import split_sentences

if TYPE_CHECKING:
    from rightlung.core import Phrase, Report

    AnyReport = str | Report | Mapping[str, str | None]

OBSERVATIONS: Final = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
)  # fmt: skip
"""CheXpert's 14 observations in the order of its published tables."""

MOST_WORDS = 1000
"""The most words of a sentence that are read: bounds the time for a text without full stops."""

_STRENGTH = {"positive": 3, "uncertain": 2, "negative": 1}


@dataclass(frozen=True, slots=True)
class Mention:
    """One finding of a sentence; ``regions`` are those that the sentence names for it or that its meaning implies."""

    finding: str
    polarity: PolarityName
    side: FindingSide | None = None
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledSentence:
    """A sentence with its mentions in text order, and all regions that it names."""

    text: str
    mentions: tuple[Mention, ...] = ()
    regions: tuple[str, ...] = ()

    @property
    def findings(self) -> dict[str, PolarityName]:
        """The polarity of each finding; if there are two (for two sides), the stronger one."""
        said: dict[str, PolarityName] = {}
        for mention in self.mentions:
            _strengthen(said, mention.finding, mention.polarity)
        return said

    @property
    def side(self) -> FindingSide | None:
        """The side that all its mentions share, "both" if they differ, None if they have none."""
        sides = {mention.side for mention in self.mentions} - {None}
        return sides.pop() if len(sides) == 1 else "both" if sides else None


def _strengthen(said: dict[str, PolarityName], name: str, polarity: PolarityName) -> None:
    if name not in said or _STRENGTH[polarity] > _STRENGTH[said[name]]:
        said[name] = polarity


def _told(report: AnyReport) -> Iterator[tuple[str, str]]:
    """Yield each descriptive sentence with the subheading ("LUNGS:") it belongs to."""
    for part in _descriptive_parts(report):
        heading = ""
        for piece in split_sentences(part):
            if piece.endswith(":"):
                heading = piece
            else:
                yield heading, piece


def _statements(sentence: str, heading: str, known: Rules) -> tuple[list[str], list[Assertion], list[Event]]:
    """Return the words of a sentence and their statements; "Clear." below "LUNGS:" refers to the lungs."""
    words = words_of(sentence)[:MOST_WORDS]
    said, events = assertions(words, known)
    kinds = {kind for _, _, (kind, _) in events} if heading else set()
    if "state" in kinds and "structure" not in kinds:
        return _statements(f"{heading} {sentence}", "", known)
    return words, said, events


def _descriptive_parts(report: AnyReport) -> list[str]:
    if isinstance(report, str):
        return _told_in(report_sections(report))
    sections = report if isinstance(report, Mapping) else getattr(report, "sections", None)
    if not isinstance(sections, Mapping):
        raise InputError(f"a report must be a string, a dictionary of sections, or a Report; got {report!r}")
    named = {str(name).strip().casefold(): text for name, text in sections.items()}
    for name in (*DESCRIPTIVE_SECTIONS, "addendum"):
        if (text := named.get(name)) and not isinstance(text, str):
            raise InputError(f"a section of a report must be a string; got {text!r}")
    told = _told_in(named)
    if told or isinstance(report, Mapping):
        return told
    return _told_in(report_sections(report.text))


def _told_in(sections: Mapping[str, str | None]) -> list[str]:
    told = [text for name in DESCRIPTIVE_SECTIONS if (text := sections.get(name))]
    added = sections.get("addendum")
    return [*told, *added_text(added)] if added else told


def read_sentence(text: str, parts: tuple[Part, ...] = PARTS, heading: str = "") -> LabelledSentence:
    """Read one sentence; ``heading`` is the subheading above it, if any.

    >>> read_sentence("No left effusion or pneumothorax.").findings
    {'pleural effusion': 'negative', 'pneumothorax': 'negative'}
    >>> read_sentence("Opacity in the left base may represent atelectasis.").mentions[1]
    Mention(finding='atelectasis', polarity='uncertain', side=None, regions=())
    """
    known = rules(parts)
    words, said, events = _statements(text, heading, known)
    placed, named = places_of(words, said, events, known)
    mentions: dict[Mention, None] = {}
    for item, (side, regions) in zip(said, placed, strict=True):
        for finding, polarity in polarities_of(item):
            own_side, own_regions = _settle(finding, side, regions)
            mentions[Mention(finding, polarity, own_side, own_regions)] = None
    every = dict.fromkeys((*named, *(region for mention in mentions for region in mention.regions)))
    return LabelledSentence(text, tuple(mentions), tuple(every))


def _settle(finding: str, side: FindingSide | None, regions: tuple[str, ...]) -> Placed:
    """Drop a side that the finding cannot have, and add the regions that its meaning and side imply."""
    known = FINDINGS[finding]
    own_side = side if side in known.sides else None
    if regions:
        return own_side, regions
    if not known.sides:
        return None, known.implied
    if own_side is None:
        return None, ()
    chosen = ("left", "right") if own_side == "both" else (own_side,)
    implied = tuple(name for name in known.implied if name.split(" ", 1)[0] in chosen)
    if not implied and "lungs" in known.within:
        implied = ("lungs",) if own_side == "both" else (f"{own_side} lung",)
    return own_side, implied


def read_report(report: AnyReport, parts: tuple[Part, ...] = PARTS) -> tuple[LabelledSentence, ...]:
    """Return the labelled sentences of a report's findings, impression and addenda."""
    return tuple(read_sentence(sentence, parts, heading) for heading, sentence in _told(report))


def observations(
    report: AnyReport, *, hierarchy: bool = False, parts: tuple[Part, ...] = PARTS
) -> dict[str, PolarityName | None]:
    """Return CheXpert's 14 observations; None means blank.

    "No Finding" is positive if none of the 12 findings is positive or uncertain (support devices do not matter) and
    blank otherwise, also if the chest is said not to be normal. ``hierarchy`` adds the broader findings of each
    positive one (consolidation is a lung opacity), as in the radiologists' labels of CheXpert's test set.

    >>> {name: said for name, said in observations("Heart size is normal. Small left effusion.").items() if said}
    {'Cardiomegaly': 'negative', 'Pleural Effusion': 'positive'}
    """
    known = rules(parts).observations
    found: dict[str, PolarityName] = {}
    told = list(_told(report))
    for heading, sentence in told:
        for finding, polarity in _judged(sentence, heading, parts):
            wider = broader_findings(finding) if hierarchy and polarity == "positive" else ()
            for name in (finding, *wider):
                for label in known.get(name, ()):
                    _strengthen(found, label, polarity)
    abnormal = found.pop("No Finding", None) == "negative"  # "the chest is not normal"
    pathologies = (polarity for label, polarity in found.items() if label != "Support Devices")
    labelled: dict[str, PolarityName | None] = {label: found.get(label) for label in OBSERVATIONS}
    if told and not abnormal and all(polarity == "negative" for polarity in pathologies):
        labelled["No Finding"] = "positive"
    return labelled


@lru_cache(maxsize=65_536)
def _judged(sentence: str, heading: str, parts: tuple[Part, ...]) -> tuple[tuple[str, PolarityName], ...]:
    """Return the findings of a sentence; cached, because many sentences recur ("No pneumothorax.")."""
    said = _statements(sentence, heading, rules(parts))[1]
    return tuple(judgement for item in said for judgement in polarities_of(item))


def clear_sentence_cache() -> None:
    """Clear the cache of sentences, to measure speed."""
    _judged.cache_clear()


def phrases_of(report: AnyReport) -> tuple[Phrase, ...]:
    """Return the sentences of a report as phrases to ground, with their regions and findings but without targets."""
    from rightlung.core import Phrase, Polarity

    phrases = []
    for sentence in read_report(report):
        findings = {name: Polarity(polarity) for name, polarity in sentence.findings.items()}
        phrases.append(Phrase(sentence.text, regions=sentence.regions, findings=findings))
    return tuple(phrases)
