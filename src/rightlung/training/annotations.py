"""The annotations of a training study: its sentences, its findings, and the location of each.

A **location** is where something is seen: a lesion, a device, the boxes of a phrase. The locations of a study are
numbered; their masks are tensors of the `phrases` target. `_assembled` makes the annotations of every study, from the
observations in it. A phantom's scene knows these without rendering anything; any other `Study` has them in its phrases.
A sentence without coded findings is labelled by the rule labeller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from rightlung.core import Box, Mask, Phrase, Polarity, Study
from rightlung.core.keyed import RandomStream
from rightlung.lexicon import REGIONS, canonical_finding, find, positive_prompts, prompt, sides_in, split_sentences
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import read_sentence
from rightlung.lexicon.rules import entity_spans
from rightlung.models.encoders.tokenizer import MASK
from rightlung.phantom.report import Statement, assemble_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import study_id
from rightlung.phantom.truth import known_findings, lesion_findings, present_findings
from rightlung.probes.subsets import names_condition
from rightlung.probes.targets import region_target

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

NO_FINDING = "no finding"
DEVICES = "support devices"

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

MaskKind = Literal["exact", "regions", "none"]
Location = tuple[Box, ...] | Mask


@dataclass(frozen=True, slots=True)
class StudySentence:
    """One sentence or phrase about a study."""

    text: str
    locations: tuple[int, ...] = ()  # indices of the study's locations
    positive: frozenset[str] = frozenset()  # the findings that it says are present, or may be
    side: str | None = None  # the side, if every finding of the same kind in this study lies on it
    visible: bool | None = None  # whether it describes something visible in the image; None where unknown
    regions: tuple[str, ...] = ()

    @property
    def abnormal(self) -> bool:
        """Whether it says that an abnormal finding is, or may be, present: the subset "abnormal" of the evaluation."""
        return names_condition(self.positive)


@dataclass(frozen=True, slots=True)
class StudyAnnotations:
    """What is written and known about one study."""

    id: str
    sentences: tuple[StudySentence, ...]
    report: str = ""
    present: frozenset[str] = frozenset()  # findings by the lexicon's names, with all that they imply
    absent: frozenset[str] = frozenset()
    uncertain: frozenset[str] = frozenset()
    finding_locations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # indices, by finding
    positive_findings: tuple[str, ...] = ()  # those that the source labels, by the lexicon's names

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StudyAnnotations:
        """Return the annotations from `asdict` of them, written as JSON (sets sorted)."""
        sentences = tuple(
            StudySentence(**_tuples(one, "locations", "regions", positive=frozenset)) for one in given["sentences"]
        )
        sets = {"present": frozenset, "absent": frozenset, "uncertain": frozenset}
        locations = {name: tuple(indices) for name, indices in given["finding_locations"].items()}
        return cls(
            **_tuples(given, "positive_findings", **sets) | {"sentences": sentences, "finding_locations": locations}
        )


def _tuples(given: Mapping[str, Any], *names: str, **kinds: Any) -> dict[str, Any]:
    kinds |= dict.fromkeys(names, tuple)
    return dict(given) | {name: kind(given[name]) for name, kind in kinds.items()}


@dataclass(frozen=True, slots=True)
class _Observation:
    """Something that is seen in a study."""

    findings: frozenset[str]  # what it is, with all that this implies
    sides: frozenset[str]  # left, right, or none for the midline and for what is not known
    location: int | None = None


def annotate_scene(scene: Scene, statements: Sequence[Statement], masks: MaskKind = "exact") -> StudyAnnotations:
    """Return the annotations of a phantom study. Its locations are the scene's lesions, followed by its devices."""
    count = len(scene.lesions)
    sides = {"both": frozenset({"left", "right"})}
    seen = [(lesion_findings(lesion), sides.get(lesion.side, frozenset({lesion.side}))) for lesion in scene.lesions]
    seen += [(frozenset({DEVICES}), frozenset({"none"}))] * len(scene.devices)
    observations = [_Observation(*one, None if masks == "none" else number) for number, one in enumerate(seen)]
    spoken = []
    for statement in statements:
        own = (*statement.lesions, *(count + number for number in statement.devices))
        positive = _positive(statement.findings)
        # A sentence about nothing in the image ("compared with last week") is seen nowhere, as a negation is.
        visible = bool(own) or bool(positive - {NO_FINDING})
        spoken.append((StudySentence(statement.text, (), positive, None, visible, statement.regions), own))
    present = present_findings(scene)
    annotations = StudyAnnotations(
        id=study_id(scene.seed, scene.index, scene.part),
        sentences=(),
        report=assemble_report(statements, [()] * len(statements)).text,
        present=present,
        absent=frozenset(known_findings()) - present - {NO_FINDING},
        positive_findings=tuple(sorted(present)),
    )
    return _assembled(annotations, spoken, observations)


def annotate_study(study: Study, masks: MaskKind = "exact") -> tuple[StudyAnnotations, list[Location]]:
    """Return the annotations of any study, and its locations in their order."""
    locations: list[Location] = []
    observations: list[_Observation] = []
    spoken: list[tuple[StudySentence, tuple[int, ...]]] = []
    report = "" if study.report is None else study.report.text
    for phrase in study.phrases or [Phrase(sentence) for sentence in split_sentences(report)]:
        coded = phrase if phrase.coded else _labelled(phrase)
        positive, location = _positive(coded.findings), location_of(study, phrase, masks)
        if location is not None:
            locations.append(location)
        visible = None
        if coded.coded or location is not None:
            # For a negated finding, region boxes mark the area examined, not a finding.
            located = location is not None and not (masks == "regions" and coded.findings)
            visible = located or bool(positive - {NO_FINDING})
        own: tuple[int, ...] = ()
        if positive or location is not None:
            own = (len(observations),)
            index = None if location is None else len(locations) - 1
            observations.append(_Observation(implied_findings(positive), _sides(coded, positive), index))
        spoken.append((StudySentence(phrase.text, (), positive, None, visible, phrase.regions), own))
    for region, findings in study.region_findings.items():
        if region in REGIONS and REGIONS[region].side in ("left", "right"):
            observations.append(_Observation(implied_findings(_positive(findings)), frozenset({REGIONS[region].side})))
    polarities = {canonical_finding(name): polarity for name, polarity in study.findings.items()}
    labels = tuple(sorted(name for name, polarity in polarities.items() if polarity is Polarity.POSITIVE))
    present = implied_findings(labels)
    annotations = StudyAnnotations(
        id=study.id,
        sentences=(),
        report=report,
        present=present,
        absent=frozenset(name for name, kind in polarities.items() if kind is Polarity.NEGATIVE)
        - present
        - {NO_FINDING},
        uncertain=frozenset(name for name, kind in polarities.items() if kind is Polarity.UNCERTAIN),
        positive_findings=labels,
    )
    annotations = _assembled(annotations, spoken, observations)
    if study.located_findings and masks == "exact":
        outlined = []
        for phrase in study.located_findings:
            if (location := location_of(study, phrase, masks)) is not None:
                outlined.append(_Observation(implied_findings(_positive(phrase.findings)), frozenset(), len(locations)))
                locations.append(location)
        annotations = replace(annotations, finding_locations=_by_finding(outlined, annotations.absent))
    return annotations, locations


def location_of(study: Study, phrase: Phrase, masks: MaskKind) -> Location | None:
    """Return where a phrase is seen: its mask, else its boxes; or the boxes of its regions. None where not known."""
    if masks == "none":
        return None
    if masks == "regions":
        return region_target(study, phrase) or None
    return phrase.mask if phrase.mask is not None else phrase.boxes or None


def _labelled(phrase: Phrase) -> Phrase:
    """Return a phrase with the findings and regions that the rule labeller reads in its text."""
    findings, regions = _read(phrase.text)
    return replace(phrase, findings=findings, regions=phrase.regions or regions)


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> tuple[Mapping[str, Polarity], tuple[str, ...]]:
    sentence = read_sentence(text)
    return {name: Polarity(polarity) for name, polarity in sentence.findings.items()}, sentence.regions


def _assembled(
    annotations: StudyAnnotations,
    spoken: Iterable[tuple[StudySentence, tuple[int, ...]]],
    observations: Sequence[_Observation],
) -> StudyAnnotations:
    """Return annotations with their sentences, each of which comes with the observations that it is about."""
    sentences = []
    for sentence, own in spoken:
        locations = tuple(index for number in own if (index := observations[number].location) is not None)
        sentences.append(replace(sentence, locations=locations, side=_only_side(sentence, own, observations)))
    by_finding = _by_finding(observations, annotations.absent)
    return replace(annotations, sentences=tuple(sentences), finding_locations=by_finding)


def _by_finding(observations: Iterable[_Observation], absent: frozenset[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for one in observations:
        if one.location is not None:
            for name in one.findings - absent - {NO_FINDING, "abnormal"}:
                found[name] = (*found.get(name, ()), one.location)
    return found


def _only_side(sentence: StudySentence, own: tuple[int, ...], observations: Sequence[_Observation]) -> str | None:
    """Return the side on which everything lies that a sentence could be about, mentioned or not."""
    sides = {
        side
        for number, one in enumerate(observations)
        if number in own or not sentence.positive.isdisjoint(one.findings)
        for side in one.sides
    }
    return next(iter(sides)) if own and sides in ({"left"}, {"right"}) else None


def _sides(phrase: Phrase, positive: frozenset[str]) -> frozenset[str]:
    """Return the sides that a phrase is about: by its words and regions, else by its boxes or mask."""
    if not positive or DEVICES in positive:
        # What it describes is unknown, and so is whether the other side has it as well; devices lie on both.
        return frozenset({"none"})
    sides, regions = set[str](sides_in(phrase.text)), set(phrase.regions)
    if _positive(dict.fromkeys(phrase.locations, Polarity.POSITIVE)) >= positive:
        sides, regions = set(), {name for of_finding in phrase.locations.values() for name in of_finding}
    for name in regions:
        side = REGIONS[name].side if name in REGIONS else "none"
        sides |= {"left", "right"} if side == "both" else {side}
    # The patient's left is on the image's right.
    return frozenset(sides or {"left" if box.x0 + box.x1 > 1 else "right" for box in phrase.target_boxes} or {"none"})


def _positive(findings: Mapping[str, Polarity]) -> frozenset[str]:
    """Return the findings that are present or may be."""
    return frozenset(canonical_finding(name) for name, kind in findings.items() if kind is not Polarity.NEGATIVE)


def implied_findings(findings: Iterable[str]) -> frozenset[str]:
    """Return findings with all that they imply."""
    return frozenset(meant for name in findings for meant in (name, *_broader(name)))


@cache
def _broader(name: str) -> tuple[str, ...]:
    return broader_findings(name) if find(name) is not None else ()


@cache
def finding_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts for a finding; one that the lexicon does not know has one prompt, its name."""
    return positive_prompts(name) if find(name) is not None else (prompt(name),)


def draw_texts(study: StudyAnnotations, entry: DataEntry, stream: RandomStream) -> list[str]:
    """Draw the texts of one image: ``texts_per_image``, none empty, none repeated before all have been used."""
    if entry.words_from == "labels" or not study.sentences:
        return [_label_text(study, entry, stream) for _ in range(entry.texts_per_image)]
    if entry.paired_text == "report" and study.report.strip():
        return [study.report] * entry.texts_per_image
    sentences = study.sentences
    if entry.paired_text == "abnormal":
        sentences = tuple(one for one in sentences if one.abnormal) or sentences
    if entry.paired_text == "abnormal-first":
        first, rest = (stream.shuffled(one for one in sentences if one.abnormal is kind) for kind in (True, False))
        order = [*first, *rest]
        return [order[index % len(order)].text for index in range(entry.texts_per_image)]
    if entry.texts_per_image == 1:
        return [stream.choice(sentences).text]
    order = stream.shuffled(sentences)
    return [order[index % len(order)].text for index in range(entry.texts_per_image)]


def _label_text(study: StudyAnnotations, entry: DataEntry, stream: RandomStream) -> str:
    names = [name for name in study.positive_findings if name != NO_FINDING]
    if not names and (NO_FINDING in study.positive_findings or entry.missing_labels == "negative"):
        names = [NO_FINDING]
    if not names:  # nothing is known
        return "frontal chest radiograph"
    return stream.choice(finding_prompts(stream.choice(names)))


def mask_words(text: str, share: float, stream: RandomStream) -> str:
    """Return a text with each word hidden with probability ``share`` (Wrong Lung, 4.1); one always stays."""
    return _hidden(text, [match.span() for match in _WORD.finditer(text)], share, stream)


def mask_entities(text: str, share: float, stream: RandomStream) -> str:
    """Return a text with each clinical entity hidden with probability ``share``; one always stays."""
    return _hidden(text, entity_spans(text), share, stream)


def _hidden(text: str, spans: Sequence[tuple[int, int]], share: float, stream: RandomStream) -> str:
    hidden = [stream.chance(share) for _ in spans]
    if spans and all(hidden):
        hidden[stream.integer(0, len(spans) - 1)] = False
    parts, position = [], 0
    for (begin, end), hides in zip(spans, hidden, strict=True):
        parts += [text[position:begin], MASK if hides else text[begin:end]]
        position = end
    return "".join([*parts, text[position:]])
