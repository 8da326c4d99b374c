"""What phrases truly point at, gathered in one walk through a source.

A source is rendered or decoded once, however many models and conditions are measured on it and in whatever order their
answers come. Masks wait on disk: in a temporary file, or in a folder that other processes open.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError, OutputError, Phrase, Study
from rightlung.core.errors import unknown_name
from rightlung.core.files import beside, not_written, read_json, write_whole
from rightlung.core.keyed import text_generator
from rightlung.measuring.store import MaskStore, PhraseSetHash, Place, target_digest
from rightlung.models.blind.prior import LocationPrior
from rightlung.models.blind.sides import side_of_target, what_tells
from rightlung.models.blind.words import NamedSide, findings_about, side_named, word_key
from rightlung.predictions import phrase_query
from rightlung.probes import Owner
from rightlung.probes.rules import BOX_SIZE, MOVES, RULES, Target, midline_of, polarity_of, size_class
from rightlung.probes.subsets import is_abnormal, is_one_lung, mean_overlap, most_diverse_reports
from rightlung.probes.targets import exchanged_targets, shuffled_in_report
from rightlung.studies import Source
from rightlung.studies.kept import StudyWriter
from rightlung.studies.sources import build_studies

STUDIES_AT_ONCE = 16
TARGETS = "targets.json"
REFUSED = "rows that the source refused"
UNBUILT = "studies that cannot be read"
UNREADABLE = "studies whose image or words cannot be read"
UNREAD = (REFUSED, UNBUILT, UNREADABLE)
"""Reasons for which something is missing that should be there."""

PHRASE_SUBSETS: dict[str, Callable[[Phrase], bool]] = {"abnormal": is_abnormal, "one_lung": is_one_lung}
SUBSETS = (*PHRASE_SUBSETS, "mdrb")
"""``mdrb``: the reports whose targets by the first rule overlap least ("That's the Wrong Lung!", A.6)."""


@dataclass(frozen=True, slots=True)
class TargetMask:
    """A target by one rule: where its mask lies in the store, and its kind, area, class of size and side."""

    place: Place
    kind: str
    area: float
    size: str
    side: str


@dataclass(frozen=True, slots=True)
class PhraseTargets:
    """One phrase of one study and its targets by rule; none where it points at nothing known."""

    study: str
    query: str
    patient: str
    text: str
    findings: tuple[str, ...]
    """Findings asserted (positive or uncertain), by their canonical names."""
    polarity: str
    """``positive``, ``uncertain``, ``negative``, or ``none`` where no finding is named."""
    regions: tuple[str, ...]
    side_named: NamedSide
    midline: float
    masks: dict[str, TargetMask] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Further columns of the instances table, such as membership in subsets."""


@dataclass(frozen=True, slots=True)
class StudyLabels:
    """The findings of a whole image, by their names in the source, and whose image it is."""

    patient: str
    findings: Mapping[str, str]


@dataclass
class Targets:
    """The phrases to measure, by (study, query). A context that closes the store of masks."""

    source: str
    settings: dict[str, Any]
    """Rules, pixels, seed, subsets: what the targets depend on besides the source."""
    store: MaskStore = field(repr=False)
    phrases: dict[tuple[str, str], PhraseTargets] = field(default_factory=dict)
    labels: dict[str, StudyLabels] = field(default_factory=dict)
    regions: set[str] = field(default_factory=set)
    """Names of the regions that the studies have."""
    problems: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    phrase_set: str = ""
    studies_without_patient: int = 0

    def __enter__(self) -> Targets:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of targets there are."""
        return tuple(sorted({mask.kind for phrase in self.phrases.values() for mask in phrase.masks.values()}))

    def add_fact(self, name: str, fact: Callable[[PhraseTargets], Any]) -> None:
        """Add a column to the instances table: a text, number, boolean or list for every phrase."""
        for phrase in self.phrases.values():
            phrase.facts[name] = fact(phrase)

    def save(self, folder: Path) -> None:
        """Write everything but the masks, which are in the store."""
        self.store.flush()
        content = {name: value for name, value in vars(self).items() if name != "store"}
        content["phrases"] = [asdict(phrase) for phrase in self.phrases.values()]
        content["labels"] = {study: asdict(labels) for study, labels in self.labels.items()}
        content["regions"] = sorted(self.regions)
        write_whole(folder / TARGETS, json.dumps(content))

    @classmethod
    def open(cls, folder: str | Path) -> Targets:
        """Open the targets that `gather_targets` left in a folder."""
        folder = Path(folder)
        content = read_json(folder / TARGETS)
        phrases = [_phrase(row) for row in content.pop("phrases")]
        labels = {study: StudyLabels(**labels) for study, labels in content.pop("labels").items()}
        content |= {"regions": set(content["regions"]), "left_out": Counter(content["left_out"])}
        return cls(
            store=MaskStore(folder), phrases={(one.study, one.query): one for one in phrases}, labels=labels, **content
        )


def _phrase(row: dict[str, Any]) -> PhraseTargets:
    for mask in row["masks"].values():
        mask["place"] = Place(mask["place"]["offset"], tuple(mask["place"]["size"]))
    row["masks"] = {rule: TargetMask(**mask) for rule, mask in row["masks"].items()}
    return PhraseTargets(**row | {name: tuple(row[name]) for name in ("findings", "regions")})


Seen = Callable[[Phrase, PhraseTargets, NDArray[np.bool_]], None]
"""Called on the way with every phrase that has a target by the first rule, and with its pixels."""


def gather_targets(
    source: Source,
    wanted: Mapping[str, Collection[int]] | None = None,
    folder: str | Path | None = None,
    *,
    rules: Sequence[str] = ("own",),
    pixels: int | None = None,
    seed: int = 0,
    subsets: Sequence[str] = (),
    limit: int | None = None,
    keep_studies: bool = False,
    seen: Seen | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Targets:
    """Walk once through a source and gather the targets of its phrases, in the source's order.

    Parameters
    ----------
    wanted
        Indices of phrases by study id; without it, all phrases that have a target by the first rule.
    folder
        Where targets are kept for other processes, written completely or not at all; by default a temporary file.
    rules
        Names of target rules: ``own``, ``regions``, ``trimmed``, ``exact``, and moved targets such as
        ``regions-shuffled`` and ``exact-random``, drawn with ``seed``.
    pixels
        Pixels a side of targets; by default masks keep their size, and boxes are painted on 256 x 256.
    keep_studies
        Keep images and words of the studies measured in the folder, too: see `rightlung.studies.kept.KeptSource`.

    Studies that the source does not have, phrases that a study does not have and masks that cannot be read are listed
    as problems.
    """
    settings = {"rules": [*rules], "pixels": pixels, "seed": seed, "subsets": [*subsets], "limit": limit}
    _check(rules, pixels, subsets)
    unfinished = None if folder is None else beside(Path(folder))
    if folder is not None and Path(folder).exists() and any(Path(folder).iterdir()):
        raise OutputError(f"{folder}: targets are written into a new or an empty folder, and this one holds something")
    try:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        found = Targets(source.address, settings, MaskStore(unfinished, write=True))
        found.left_out[REFUSED] += len(source.problems)
        walk = _Walk(found, seen, StudyWriter(source.address, unfinished) if keep_studies and unfinished else None)
        positions = _positions(source, wanted, limit, found.problems)
        for begin in range(0, len(positions), STUDIES_AT_ONCE):
            failed: dict[str, str] = {}
            some = positions[begin : begin + STUDIES_AT_ONCE]
            for study in build_studies(source, some, failed).values():
                walk.take(study, None if wanted is None else wanted[study.id])
            found.left_out[UNBUILT] += len(failed)
            found.problems += failed.values()
            if progress is not None:
                progress(begin + len(some), len(positions))
        walk.finish()
        found.problems += map(str, source.problems)
        if unfinished is not None and folder is not None:
            found.save(unfinished)
            unfinished.replace(folder)
    except OSError as error:
        raise not_written(Path(folder or TARGETS), error) from error
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)
    return found


def _check(rules: Sequence[str], pixels: int | None, subsets: Sequence[str]) -> None:
    moved = [f"{rule}-{move}" for rule in RULES for move in MOVES]
    for name in rules:
        if name not in RULES and name not in moved:
            raise unknown_name("target rule", name, [*RULES, *moved])
    for name in subsets:
        if name not in SUBSETS:
            raise unknown_name("subset", name, SUBSETS)
    if not rules or rules[0] not in RULES:
        raise InputError(f"the first target rule must be one of {', '.join(RULES)}; got {list(rules)}")
    if (pixels is None and set(rules) != {"own"}) or (pixels is not None and pixels < 8):
        raise InputError(f"the rules {', '.join(rules)} need at least 8 pixels a side; got {pixels}")


def _positions(
    source: Source, wanted: Mapping[str, Collection[int]] | None, limit: int | None, problems: list[str]
) -> Sequence[int]:
    if wanted is None:
        return range(len(source) if limit is None else min(limit, len(source)))
    places = {study: source._position(study) for study in wanted}
    problems += [f"source {source.address} has no study {study!r}" for study, place in places.items() if place is None]
    return sorted(place for place in places.values() if place is not None)


class _Walk:
    """Takes in study after study."""

    def __init__(self, found: Targets, seen: Seen | None, keep: StudyWriter | None) -> None:
        self.found, self.seen, self.keep = found, seen, keep
        self.rules = [name for name in found.settings["rules"] if name in RULES]
        self.phrase_set = PhraseSetHash()
        self.owners: dict[tuple[str, str], str] = {}  # of each phrase, for targets of other patients
        self.overlaps: dict[str, float | None] = {}

    def take(self, study: Study, wanted: Collection[int] | None) -> None:
        """Take in those of a study's phrases that are wanted."""
        found = self.found
        gathered = self._targets(study, wanted)
        if not gathered and wanted is None:
            found.left_out["studies without a phrase to measure"] += 1
            return
        if self.keep is not None:
            try:
                self.keep.add(study)
            except Exception as error:  # a loader may be anybody's
                found.left_out[UNREADABLE] += 1
                found.problems.append(f"study {study.id!r}: {error}")
                return
        patient = study.patient or f"study {study.id}"
        found.studies_without_patient += study.patient is None
        found.regions |= set(study.regions)
        if study.findings:
            found.labels[study.id] = StudyLabels(patient, {name: str(said) for name, said in study.findings.items()})
        places: dict[bytes, Place] = {}
        for index, targets in gathered.items():
            self._add(study, index, patient, targets, places)
        if "mdrb" in found.settings["subsets"]:
            masks = [targets[self.rules[0]].pixels for targets in gathered.values() if self.rules[0] in targets]
            self.overlaps[study.id] = mean_overlap(masks)

    def _targets(self, study: Study, wanted: Collection[int] | None) -> dict[int, dict[str, Target]]:
        """Return targets by phrase and rule; what is left out is counted, what cannot be read is a problem."""
        found = self.found
        gathered: dict[int, dict[str, Target]] = {}
        for index in range(len(study.phrases)) if wanted is None else sorted(wanted):
            query = phrase_query(index)
            if index >= len(study.phrases):
                found.problems.append(f"study {study.id!r} has {len(study.phrases)} phrases, and no {query}")
                continue
            try:
                side = found.settings["pixels"] or BOX_SIZE
                targets = {rule: RULES[rule](study, study.phrases[index], side) for rule in self.rules}
            except InputError as error:  # a mask's file that cannot be read
                found.problems.append(f"study {study.id!r}, {query}: {error}")
                continue
            missing = targets[self.rules[0]]
            if wanted is None and isinstance(missing, str):
                found.left_out[missing] += 1
                continue
            gathered[index] = {rule: target for rule, target in targets.items() if isinstance(target, Target)}
        return gathered

    def _add(
        self, study: Study, index: int, patient: str, targets: Mapping[str, Target], places: dict[bytes, Place]
    ) -> None:
        phrase, query, midline = study.phrases[index], phrase_query(index), midline_of(study)
        one = PhraseTargets(
            study.id, query, patient, phrase.text, findings_about(phrase.findings), polarity_of(phrase),
            phrase.regions, side_named(phrase.text), midline,
        )  # fmt: skip
        digests = []
        for rule, target in targets.items():
            digests.append(target_digest(target.pixels))
            if digests[-1] not in places:
                places[digests[-1]] = self.found.store.add(target.pixels)
            area, side = float(target.pixels.mean()), side_of_target(target.pixels, midline)
            one.masks[rule] = TargetMask(places[digests[-1]], target.kind, area, size_class(area), side)
        for name in self.found.settings["subsets"]:
            if name in PHRASE_SUBSETS:
                one.facts[name] = PHRASE_SUBSETS[name](phrase)
        self.found.phrases[study.id, query] = one
        self.owners[study.id, query] = f"patient {study.patient}" if study.patient is not None else patient
        if self.seen is not None and self.rules[0] in targets:
            self.seen(phrase, one, targets[self.rules[0]].pixels)
        facts = {
            "patient": patient,
            "findings": sorted((name, str(polarity)) for name, polarity in phrase.findings.items()),
            "regions": list(phrase.regions),
            "midline": round(midline, 9),
            "kind": "boxes" if phrase.mask is None else "mask",
        }
        self.phrase_set.add(study.id, query, phrase.text, b"".join(digests), **facts)

    def finish(self) -> None:
        """Add what needs all phrases: moved targets, and the most diverse reports."""
        found = self.found
        phrases = [*found.phrases.values()]
        for name in found.settings["rules"]:
            rule, _, move = name.rpartition("-")
            if move in MOVES:
                self._move(phrases, name, rule, shuffled=move == "shuffled")
        if "mdrb" in found.settings["subsets"]:
            counts = Counter(phrase.study for phrase in phrases)
            diverse = set(most_diverse_reports(self.overlaps, counts))
            found.add_fact("mdrb", lambda phrase: phrase.study in diverse)
        if self.keep is not None:
            self.keep.close()
        found.left_out = +found.left_out
        found.phrase_set = self.phrase_set.digest

    def _move(self, phrases: Sequence[PhraseTargets], name: str, rule: str, shuffled: bool) -> None:
        """Give every phrase with a target by a rule that of another phrase, where there is one."""
        seed = self.found.settings["seed"]
        others = _shuffled(phrases, rule, seed) if shuffled else self._drawn(phrases, rule, seed)
        for number, other in others.items():
            phrases[number].masks[name] = phrases[other].masks[rule]
        if shuffled:  # two phrases of a report may have the same target
            for number, one in enumerate(phrases):
                differs = one.masks[name].place != one.masks[rule].place if number in others else None
                one.facts[f"{rule}_shuffled_differs"] = differs

    def _drawn(self, phrases: Sequence[PhraseTargets], rule: str, seed: int) -> dict[int, int]:
        owners = [
            Owner(str(number), self.owners[one.study, one.query])
            for number, one in enumerate(phrases)
            if rule in one.masks
        ]
        return {int(number): int(other) for number, other in (exchanged_targets(owners, seed) or {}).items()}


def _shuffled(phrases: Sequence[PhraseTargets], rule: str, seed: int) -> dict[int, int]:
    reports: dict[str, list[int]] = {}
    for number, one in enumerate(phrases):
        reports.setdefault(one.study, []).append(number)
    others: dict[int, int] = {}
    for study, members in reports.items():
        chance = random.Random(int(text_generator(seed, f"shuffle {rule}", study, "").integers(2**63)))
        order = shuffled_in_report([rule in phrases[number].masks for number in members], chance)
        for place, number in enumerate(members):
            if order is not None and rule in phrases[number].masks:
                others[number] = members[order[place]]
    return others


def side_told(phrase: PhraseTargets, prior: LocationPrior | None) -> str:
    """Return what tells the side of a phrase's target, by the source's words: see `what_tells`."""
    key = word_key(phrase.text, phrase.findings)
    return what_tells(key, *(None, None) if prior is None else (prior.sides, prior.held_out(phrase.patient)))
