"""What is known of a training study in words: its sentences, its findings, and which targets each is about.

A **target** is something with a place: a lesion, a device, the boxes of a phrase. Targets are numbered within their
study; their masks lie elsewhere, on the training device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from rightlung.core import Box, Mask, Phrase, Polarity, Study
from rightlung.lexicon import canonical_finding, find, split_sentences
from rightlung.lexicon.findings import broader_findings
from rightlung.phantom.report import Statement
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import study_id
from rightlung.phantom.truth import known_findings, lesion_findings, present_findings
from rightlung.probes.subsets import names_condition
from rightlung.probes.targets import region_target

NO_FINDING = "no finding"
DEVICES = "support devices"


@dataclass(frozen=True, slots=True)
class ToldText:
    """One sentence or phrase about a study."""

    text: str
    targets: tuple[int, ...] = ()
    positive: frozenset[str] = frozenset()  # the findings that it says are there, or may be
    side: str | None = None  # the one side on which all findings of its kinds lie in this study; None if not so
    seen: bool | None = None  # whether it tells of something that is to be seen in the image; None where unknown

    @property
    def abnormal(self) -> bool:
        """Whether it says that a condition is, or may be, there: the same definition as the evaluation's subset."""
        return names_condition(self.positive)


@dataclass(frozen=True, slots=True)
class Facts:
    """One study."""

    id: str
    told: tuple[ToldText, ...]
    report: str
    present: frozenset[str]  # findings by the lexicon's names, with all that they imply
    absent: frozenset[str]  # those known not to be there
    targets_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The targets of each finding that is there."""
    labels: tuple[str, ...] = ()
    """The findings as the source names them, without what they imply."""


def plain_facts(value: Any) -> Any:
    """Return what JSON does not know of facts as what it knows: ``json.dumps(facts, default=plain_facts)``."""
    if isinstance(value, frozenset):
        return sorted(value)
    return {entry.name: getattr(value, entry.name) for entry in fields(value)}


def facts_from_plain(given: Mapping[str, Any]) -> Facts:
    """Return the facts that were written by `plain_facts`."""
    return Facts(
        id=given["id"],
        told=tuple(
            ToldText(**one | {"targets": tuple(one["targets"]), "positive": frozenset(one["positive"])})
            for one in given["told"]
        ),
        report=given["report"],
        present=frozenset(given["present"]),
        absent=frozenset(given["absent"]),
        targets_of={name: tuple(numbers) for name, numbers in given["targets_of"].items()},
        labels=tuple(given["labels"]),
    )


def facts_of_scene(scene: Scene, statements: Sequence[Statement]) -> Facts:
    """Return what is known of a phantom study. Its targets are the scene's lesions and then its devices."""
    lesions = len(scene.lesions)
    targets_of: dict[str, list[int]] = {}
    for number, lesion in enumerate(scene.lesions):
        for name in lesion_findings(lesion):
            targets_of.setdefault(name, []).append(number)
    if scene.devices:
        targets_of[DEVICES] = [lesions + number for number in range(len(scene.devices))]
    present = present_findings(scene)
    told = []
    for statement in statements:
        positive = frozenset(name for name, polarity in statement.findings.items() if polarity is not Polarity.NEGATIVE)
        targets = (*statement.lesions, *(lesions + number for number in statement.devices))
        side = None if statement.devices else _only_side(scene, statement, positive)
        # A sentence about nothing in the picture ("compared with last week") is seen nowhere, as a negation is.
        told.append(ToldText(statement.text, targets, positive, side, _tells(targets, positive)))
    return Facts(
        id=study_id(scene.seed, scene.index),
        told=tuple(told),
        report=" ".join(statement.text for statement in statements),
        present=present,
        absent=frozenset(known_findings()) - present - {NO_FINDING},
        targets_of={name: tuple(numbers) for name, numbers in targets_of.items()},
        labels=tuple(sorted(present)),
    )


def without_targets(facts: Facts) -> Facts:
    """Return facts of which nobody knows where anything is."""
    return replace(facts, told=tuple(replace(told, targets=()) for told in facts.told), targets_of={})


def _only_side(scene: Scene, statement: Statement, positive: frozenset[str]) -> str | None:
    """Return the side on which all lesions lie that this sentence could be about, named or not."""
    alike = {
        lesion.side
        for number, lesion in enumerate(scene.lesions)
        if number in statement.lesions or not positive.isdisjoint(lesion_findings(lesion))
    }
    return next(iter(alike)) if statement.lesions and alike in ({"left"}, {"right"}) else None


TargetKind = Literal["exact", "regions", "none"]
Place = tuple[Box, ...] | Mask


def place_of(study: Study, phrase: Phrase, targets: TargetKind) -> Place | None:
    """Return where a phrase is seen: its mask, else its boxes; or the boxes of its regions. None where not known."""
    if targets == "none":
        return None
    if targets == "regions":
        return region_target(study, phrase) or None
    return phrase.mask if phrase.mask is not None else phrase.boxes or None


def facts_of_study(study: Study, kind: TargetKind = "exact") -> tuple[Facts, list[Place]]:
    """Return what is known of any study, and the places of its targets, in their order."""
    placed: list[Place] = []
    told: list[ToldText] = []
    targets_of: dict[str, list[int]] = {}
    for phrase in study.phrases:
        positive = frozenset(
            canonical_finding(name) for name, polarity in phrase.findings.items() if polarity is not Polarity.NEGATIVE
        )
        targets: tuple[int, ...] = ()
        if (place := place_of(study, phrase, kind)) is not None:
            targets = (len(placed),)
            placed.append(place)
            for name in positive - {NO_FINDING, "abnormal"}:  # said of a place; nothing that can be asked for
                for meant in (name, *_broader(name)):
                    targets_of.setdefault(meant, []).append(targets[0])
        # Of a sentence whose findings nobody has noted down, nobody knows whether it tells of something; the regions of
        # a negation are where it looks, and not where something is.
        seen = None
        if targets or phrase.findings:
            seen = _tells(() if kind == "regions" and phrase.findings else targets, positive)
        told.append(ToldText(phrase.text, targets, positive, seen=seen))
    report = "" if study.report is None else study.report.text
    if not told and report.strip():
        told = [ToldText(sentence) for sentence in split_sentences(report)]
    polarities = {canonical_finding(name): polarity for name, polarity in study.findings.items()}
    labels = tuple(sorted(name for name, polarity in polarities.items() if polarity is Polarity.POSITIVE))
    present = frozenset(meant for name in labels for meant in (name, *_broader(name)))
    doubtful = {name for name, polarity in polarities.items() if polarity is Polarity.UNCERTAIN}
    absent = frozenset(name for name, polarity in polarities.items() if polarity is Polarity.NEGATIVE)
    return Facts(
        id=study.id,
        told=tuple(told),
        report=report,
        present=present | doubtful,  # of what is doubtful nothing is claimed: neither a label nor absent
        absent=absent - present - {NO_FINDING},
        targets_of={name: tuple(numbers) for name, numbers in targets_of.items()},
        labels=labels,
    ), placed


def _tells(targets: tuple[int, ...], positive: frozenset[str]) -> bool:
    return bool(targets) or bool(positive - {NO_FINDING})


@cache
def _broader(name: str) -> tuple[str, ...]:
    return broader_findings(name) if find(name) is not None else ()
