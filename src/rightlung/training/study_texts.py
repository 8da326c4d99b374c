"""The words of a training study: its sentences, its findings, and the target that each sentence is about.

A **target** is something with a location: a lesion, a device, the boxes of a phrase. Targets are numbered within their
study. Their masks are tensors of the `phrases` target.

There is one builder, `_assembled`. It is fed with the observations of a study: from a phantom's scene, which knows
them without painting anything, or from the phrases of any `Study`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from rightlung.core import Box, Mask, Phrase, Polarity, Study
from rightlung.core.keyed import Stream
from rightlung.lexicon import REGIONS, canonical_finding, find, positive_prompts, prompt, sides_in, split_sentences
from rightlung.lexicon.findings import broader_findings
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
    targets: tuple[int, ...] = ()
    positive: frozenset[str] = frozenset()  # the findings that it says are present, or may be
    side: str | None = None  # the one side on which all findings of its kinds lie in this study, if there is one
    seen: bool | None = None  # whether it describes something visible in the image; None where unknown
    regions: tuple[str, ...] = ()

    @property
    def abnormal(self) -> bool:
        """Whether it says that a condition is, or may be, present; the same definition as the evaluation's subset."""
        return names_condition(self.positive)


@dataclass(frozen=True, slots=True)
class StudyTexts:
    """The words of one study."""

    id: str
    sentences: tuple[StudySentence, ...]
    report: str = ""
    present: frozenset[str] = frozenset()  # findings by the lexicon's names, with all that they imply
    absent: frozenset[str] = frozenset()
    uncertain: frozenset[str] = frozenset()
    targets_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the targets of each finding
    labels: tuple[str, ...] = ()  # the positive findings as the source names them

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StudyTexts:
        """Return the texts from `asdict` of them, written as JSON (sets sorted)."""
        sentences = tuple(
            StudySentence(**_tuples(one, "targets", "regions", positive=frozenset)) for one in given["sentences"]
        )
        sets = {"present": frozenset, "absent": frozenset, "uncertain": frozenset}
        targets_of = {name: tuple(numbers) for name, numbers in given["targets_of"].items()}
        return cls(**_tuples(given, "labels", **sets) | {"sentences": sentences, "targets_of": targets_of})


def _tuples(given: Mapping[str, Any], *names: str, **kinds: Any) -> dict[str, Any]:
    kinds |= dict.fromkeys(names, tuple)
    return dict(given) | {name: kind(given[name]) for name, kind in kinds.items()}


@dataclass(frozen=True, slots=True)
class _Observation:
    """Something that is seen in a study."""

    findings: frozenset[str]  # what it is, with all that this implies
    sides: frozenset[str]  # left, right, or none for the midline and for what is not known
    target: int | None = None  # its number, if its location is known


def texts_of_scene(scene: Scene, statements: Sequence[Statement], masks: MaskKind = "exact") -> StudyTexts:
    """Return the words of a phantom study. Its targets are the scene's lesions, followed by its devices."""
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
    words = StudyTexts(
        id=study_id(scene.seed, scene.index),
        sentences=(),
        report=assemble_report(statements, [()] * len(statements)).text,
        present=present,
        absent=frozenset(known_findings()) - present - {NO_FINDING},
        labels=tuple(sorted(present)),
    )
    return _assembled(words, spoken, observations)


def texts_of_study(study: Study, masks: MaskKind = "exact", coded: bool = False) -> tuple[StudyTexts, list[Location]]:
    """Return the words of any study, and the locations of its targets in their order.

    ``coded`` says that the source notes the findings of every sentence, so that one without findings describes nothing.
    Otherwise nothing is known of such a sentence.
    """
    locations: list[Location] = []
    observations: list[_Observation] = []
    spoken: list[tuple[StudySentence, tuple[int, ...]]] = []
    for phrase in study.phrases:
        positive, location = _positive(phrase.findings), location_of(study, phrase, masks)
        target = None if location is None else len(locations)
        if location is not None:
            locations.append(location)
        visible = None
        if coded or phrase.findings or location is not None:
            # The regions of a negation are where it looks, not where something is.
            located = location is not None and not (masks == "regions" and phrase.findings)
            visible = located or bool(positive - {NO_FINDING})
        own: tuple[int, ...] = ()
        if positive or location is not None:
            own = (len(observations),)
            observations.append(_Observation(_implied(positive), _sides(phrase, positive), target))
        spoken.append((StudySentence(phrase.text, (), positive, None, visible, phrase.regions), own))
    for region, findings in study.region_findings.items():
        if region in REGIONS and REGIONS[region].side in ("left", "right"):
            observations.append(_Observation(_implied(_positive(findings)), frozenset({REGIONS[region].side})))
    report = "" if study.report is None else study.report.text
    if not spoken and report.strip():
        spoken = [(StudySentence(sentence), ()) for sentence in split_sentences(report)]
    polarities = {canonical_finding(name): polarity for name, polarity in study.findings.items()}
    labels = tuple(sorted(name for name, polarity in polarities.items() if polarity is Polarity.POSITIVE))
    present = _implied(labels)
    words = StudyTexts(
        id=study.id,
        sentences=(),
        report=report,
        present=present,
        absent=frozenset(name for name, kind in polarities.items() if kind is Polarity.NEGATIVE)
        - present
        - {NO_FINDING},
        uncertain=frozenset(name for name, kind in polarities.items() if kind is Polarity.UNCERTAIN),
        labels=labels,
    )
    return _assembled(words, spoken, observations), locations


def location_of(study: Study, phrase: Phrase, masks: MaskKind) -> Location | None:
    """Return where a phrase is seen: its mask, else its boxes; or the boxes of its regions. None where not known."""
    if masks == "none":
        return None
    if masks == "regions":
        return region_target(study, phrase) or None
    return phrase.mask if phrase.mask is not None else phrase.boxes or None


def _assembled(
    words: StudyTexts,
    spoken: Iterable[tuple[StudySentence, tuple[int, ...]]],
    observations: Sequence[_Observation],
) -> StudyTexts:
    """Return the words with their sentences, each of which comes with the observations that it is about."""
    sentences = []
    for sentence, own in spoken:
        targets = tuple(target for number in own if (target := observations[number].target) is not None)
        sentences.append(replace(sentence, targets=targets, side=_only_side(sentence, own, observations)))
    targets_of: dict[str, tuple[int, ...]] = {}
    for one in observations:
        for name in one.findings - words.absent - {NO_FINDING, "abnormal"} if one.target is not None else ():
            targets_of[name] = (*targets_of.get(name, ()), one.target)  # type: ignore[arg-type]
    return replace(words, sentences=tuple(sentences), targets_of=targets_of)


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
    return frozenset(sides or {"left" if box.x0 + box.x1 > 1 else "right" for box in boxes_of(phrase)} or {"none"})


def boxes_of(phrase: Phrase) -> tuple[Box, ...]:
    """Return the boxes of a phrase, or the box around its mask."""
    if phrase.boxes or phrase.mask is None or (box := phrase.mask.box()) is None:
        return phrase.boxes
    return (box,)


def _positive(findings: Mapping[str, Polarity]) -> frozenset[str]:
    """Return the findings that are present or may be."""
    return frozenset(canonical_finding(name) for name, kind in findings.items() if kind is not Polarity.NEGATIVE)


def _implied(findings: Iterable[str]) -> frozenset[str]:
    return frozenset(meant for name in findings for meant in (name, *_broader(name)))


@cache
def _broader(name: str) -> tuple[str, ...]:
    return broader_findings(name) if find(name) is not None else ()


@cache
def finding_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts for a finding; one that the lexicon does not know has one prompt, its name."""
    return positive_prompts(name) if find(name) is not None else (prompt(name),)


def draw_texts(texts: StudyTexts, entry: DataEntry, stream: Stream) -> list[str]:
    """Draw ``entry.texts`` texts for an image; none is repeated before all have been used, and none is empty."""
    if entry.prompts == "labels" or not texts.sentences:
        return [_label_text(texts, entry, stream) for _ in range(entry.texts)]
    if entry.text == "report" and texts.report.strip():
        return [texts.report] * entry.texts
    sentences = texts.sentences
    if entry.text == "abnormal":
        sentences = tuple(one for one in sentences if one.abnormal) or sentences
    if entry.text == "abnormal-first":
        first, rest = (stream.shuffled(one for one in sentences if one.abnormal is kind) for kind in (True, False))
        order = [*first, *rest]
        return [order[number % len(order)].text for number in range(entry.texts)]
    if entry.texts == 1:
        return [stream.choice(sentences).text]
    order = stream.shuffled(sentences)
    return [order[number % len(order)].text for number in range(entry.texts)]


def _label_text(texts: StudyTexts, entry: DataEntry, stream: Stream) -> str:
    names = [name for name in texts.labels if name != NO_FINDING]
    if not names and (NO_FINDING in texts.labels or entry.unlabeled == "negative"):
        names = [NO_FINDING]
    if not names:  # nothing is known
        return "frontal chest radiograph"
    return stream.choice(finding_prompts(stream.choice(names)))


def hide_words(text: str, share: float, stream: Stream) -> str:
    """Return a text with each word hidden with probability ``share`` (Wrong Lung, 4.1); one always stays."""
    return _hidden(text, [match.span() for match in _WORD.finditer(text)], share, stream)


def hide_entities(text: str, share: float, stream: Stream) -> str:
    """Return a text with each clinical entity hidden with probability ``share``; one always stays."""
    return _hidden(text, entity_spans(text), share, stream)


def _hidden(text: str, spans: Sequence[tuple[int, int]], share: float, stream: Stream) -> str:
    hidden = [stream.chance(share) for _ in spans]
    if spans and all(hidden):
        hidden[stream.integer(0, len(spans) - 1)] = False
    parts, place = [], 0
    for (begin, end), hides in zip(spans, hidden, strict=True):
        parts += [text[place:begin], MASK if hides else text[begin:end]]
        place = end
    return "".join([*parts, text[place:]])
