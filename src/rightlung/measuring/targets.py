"""The targets of phrases, gathered in one pass over a source.

Each study is rendered or decoded once, however many models and conditions are measured on it. Masks are kept on disk:
in a temporary file, or in a folder that other processes can open.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError, OutputError, Phrase, Polarity, Study
from rightlung.core.errors import check_known
from rightlung.core.files import not_written, read_json, temporary_path, write_whole
from rightlung.lexicon.wordkeys import findings_about, side_named, word_key
from rightlung.measuring.phrases import PhraseTargets, TargetMask, move_targets
from rightlung.measuring.protocols import Protocol
from rightlung.measuring.readers import readers_of
from rightlung.measuring.store import MaskStore, Place, target_digest
from rightlung.models.blind.prior import LocationPrior
from rightlung.models.blind.sides import side_of_target, what_tells
from rightlung.predictions import IMAGE_QUERY, Key, phrase_query
from rightlung.predictions.prediction import BOX_QUERY, REPORT_QUERY, region_query
from rightlung.probes.rules import BOX_SIZE, MOVED_RULES, RULES, Target, midline_of, polarity_of, size_class
from rightlung.probes.subsets import is_abnormal, is_one_lung, mean_overlap, most_diverse_reports
from rightlung.studies import Source
from rightlung.studies.sources import build_studies
from rightlung.studies.study_cache import CachedSource, StudyWriter

STUDIES_AT_ONCE = 16
TARGETS = "targets.json"
REFUSED = "rows that the source refused"
UNBUILT = "studies that cannot be read"
UNREADABLE = "studies whose image or words cannot be read"
UNREAD = (REFUSED, UNBUILT, UNREADABLE)
"""Reasons that stand for an error, not for a phrase without a target."""

AGE_BANDS = {"below 18": 18.0, "18 to 39": 40.0, "40 to 59": 60.0, "60 to 79": 80.0, "80 and above": float("inf")}
"""The age below which each band ends."""
PHRASE_SUBSETS: dict[str, Callable[[Phrase], bool]] = {"abnormal": is_abnormal, "one_lung": is_one_lung}
SUBSETS = (*PHRASE_SUBSETS, "mdrb")
"""``mdrb``: the reports whose targets by the first rule overlap least ("That's the Wrong Lung!", A.6)."""


Corners = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class StudyLabels:
    """What is known about an image, a region or the place of a phrase."""

    patient: str
    findings: Mapping[str, str]
    """Polarities by the names in the source."""
    report: str | None = None
    """The report; for a region, the sentences about it."""
    boxes: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    """Corners of the boxes of each finding that the source outlines, by canonical name."""
    kind: str = "image"
    """``image``, ``region`` or ``phrase``."""


@dataclass
class Targets:
    """The phrases to measure by (study, query), and their masks on disk."""

    source: str
    settings: dict[str, Any]
    """Rules, pixels, seed, subsets and limit."""
    store: MaskStore = field(repr=False)
    phrases: dict[tuple[str, str], PhraseTargets] = field(default_factory=dict)
    labels: dict[str, StudyLabels] = field(default_factory=dict)
    region_labels: dict[tuple[str, str], StudyLabels] = field(default_factory=dict)
    """By study and query."""
    unlabelled: dict[str, str] = field(default_factory=dict)
    """Patients of the studies of which nothing is known."""
    regions: set[str] = field(default_factory=set)
    """Names of the studies' regions."""
    persons: dict[str, dict[str, str]] = field(default_factory=dict)
    """Sex, age band and view by study, as far as the source knows them."""
    problems: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    phrase_set: str = ""
    """The hash of all phrases and their targets."""
    digests: int = 0
    """Sum of the digests of the phrases, which does not depend on their order."""
    studies_without_patient: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of targets, sorted."""
        return tuple(sorted({mask.kind for phrase in self.phrases.values() for mask in phrase.masks.values()}))

    def labels_of(self, key: Key) -> StudyLabels | None:
        """Return what is known about the subject of a query: the image, a region, or the place of a phrase."""
        if key.query in (IMAGE_QUERY, REPORT_QUERY):
            return self.labels.get(key.study)
        box = BOX_QUERY.fullmatch(key.query)
        phrase = self.phrases.get((key.study, key.query if box is None else phrase_query(int(box[1]))))
        if phrase is None:
            kind, _, name = key.query.partition(":")
            return self.region_labels.get((key.study, region_query(name) if kind == "region-name" else key.query))
        return StudyLabels(phrase.patient, dict.fromkeys(phrase.findings, "positive"), phrase.text, kind="phrase")

    def add_column(self, name: str, value: Callable[[PhraseTargets], Any]) -> None:
        """Add a column to the instances table: a text, number, boolean or list for each phrase."""
        for phrase in self.phrases.values():
            phrase.columns[name] = value(phrase)

    def save(self, folder: Path) -> None:
        """Write everything except the masks, which are in the store."""
        content = {name: value for name, value in vars(self).items() if name != "store"}
        content["phrases"] = [asdict(phrase) for phrase in self.phrases.values()]
        content["labels"] = {study: asdict(labels) for study, labels in self.labels.items()}
        content["region_labels"] = [[*key, asdict(labels)] for key, labels in self.region_labels.items()]
        content["regions"] = sorted(self.regions)
        write_whole(folder / TARGETS, json.dumps(content))

    @classmethod
    def open(cls, folder: str | Path) -> Targets:
        """Open the targets that `gather_targets` wrote to a folder."""
        folder = Path(folder)
        content = read_json(folder / TARGETS)
        phrases = [_phrase(row) for row in content["phrases"]]
        content["phrases"] = {(one.study, one.query): one for one in phrases}
        content["labels"] = {study: StudyLabels(**labels) for study, labels in content["labels"].items()}
        regions = content["region_labels"]
        content["region_labels"] = {(study, query): StudyLabels(**labels) for study, query, labels in regions}
        content |= {"regions": set(content["regions"]), "left_out": Counter(content["left_out"])}
        return cls(store=MaskStore.open(folder), **content)


def _phrase(row: dict[str, Any]) -> PhraseTargets:
    for mask in row["masks"].values():
        mask["place"] = Place(mask["place"]["offset"], tuple(mask["place"]["size"]))
    row["boxes"] = tuple(tuple(corners) for corners in row["boxes"])
    row["masks"] = {rule: TargetMask(**mask) for rule, mask in row["masks"].items()}
    return PhraseTargets(**row | {name: tuple(row[name]) for name in ("findings", "regions")})


def phrase_set_of(digests: int) -> str:
    """Return the hash of a set of phrases from the sum of their digests."""
    return sha256((digests % 2**256).to_bytes(32, "big")).hexdigest()[:10]


Seen = Callable[[Phrase, PhraseTargets, NDArray[np.bool_]], None]
"""Called with each phrase that has a target by the first rule, and the pixels of that target."""


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
    region_labels: bool = False,
    seen: Seen | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Targets:
    """Return the targets of a source's phrases, in the source's order, in one pass.

    ``wanted`` holds indices of phrases by study id (default: all phrases with a target by the first rule). The targets
    go to ``folder``, atomically, or to a temporary file; with ``keep_studies``, images and texts go there, too
    (`rightlung.studies.study_cache.CachedSource`). ``rules`` are names of `RULES` and of `MOVED_RULES`, whose targets
    are drawn with ``seed``. ``pixels`` is the height and width of the targets; by default masks keep their size and
    boxes are painted on 256 x 256. ``region_labels`` keeps the findings and sentences of every region. Missing
    studies, missing phrases and unreadable masks are listed as problems.
    """
    settings = {"rules": [*rules], "pixels": pixels, "seed": seed, "subsets": [*subsets], "limit": limit}
    _check(rules, pixels, subsets)
    with ExitStack() as cleaning:
        unfinished = None if folder is None else _new_folder(Path(folder), cleaning)
        found = Targets(source.address, settings, cleaning.enter_context(MaskStore(unfinished)))
        keep = cleaning.enter_context(StudyWriter(source.address, unfinished)) if keep_studies and unfinished else None
        walk = _Walk(found, seen, keep, region_labels)
        found.left_out[REFUSED] += len(source.problems)
        positions = _positions(source, wanted, limit, found.problems)
        for begin in range(0, len(positions), STUDIES_AT_ONCE):
            failed: dict[str, str] = {}
            some = positions[begin : begin + STUDIES_AT_ONCE]
            built = build_studies(source, some, failed)
            found.left_out[UNBUILT] += len(failed)
            found.problems += failed.values()
            for study in built.values():
                walk.take(study, None if wanted is None else wanted[study.id])
            if progress is not None:
                progress(begin + len(some), len(positions))
        walk.finish()
        found.problems += map(str, source.problems)
        if unfinished is not None and folder is not None:
            found.save(unfinished)
            unfinished.replace(folder)
    return found


def _new_folder(folder: Path, cleaning: ExitStack) -> Path:
    """Create the temporary folder that is renamed to ``folder`` at the end and removed on an error."""
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"{folder}: targets need a new or an empty folder; this one is not empty")
    unfinished = temporary_path(folder)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        raise not_written(folder, error) from error
    cleaning.callback(shutil.rmtree, unfinished, ignore_errors=True)
    return unfinished


def _check(rules: Sequence[str], pixels: int | None, subsets: Sequence[str]) -> None:
    for what, names, known in (("target rule", rules, (*RULES, *MOVED_RULES)), ("subset", subsets, SUBSETS)):
        for name in names:
            check_known(what, name, known)
    if not rules or rules[0] not in RULES:
        raise InputError(f"the first target rule must be one of {', '.join(RULES)}; got {list(rules)}")
    if (pixels is None and set(rules) != {"own"}) or (pixels is not None and pixels < 8):
        raise InputError(f"the rules {', '.join(rules)} need at least 8 pixels per side; got {pixels}")


def _positions(
    source: Source, wanted: Mapping[str, Collection[int]] | None, limit: int | None, problems: list[str]
) -> Sequence[int]:
    if wanted is None:
        return range(len(source) if limit is None else min(limit, len(source)))
    places = {study: source._position(study) for study in wanted}
    problems += [f"source {source.address} has no study {study!r}" for study, place in places.items() if place is None]
    return sorted(place for place in places.values() if place is not None)


def _plain(findings: Mapping[str, Polarity]) -> dict[str, str]:
    return {name: str(polarity) for name, polarity in findings.items()}


def _target_boxes(phrase: Phrase) -> tuple[Corners, ...]:
    """Return the corners of a phrase's boxes, or of the box around its mask; none if the mask cannot be read."""
    try:
        return tuple(box.as_tuple() for box in phrase.target_boxes)
    except InputError:  # listed as a problem of the target
        return ()


class _Walk:
    """Collects the targets of one study after another."""

    def __init__(self, found: Targets, seen: Seen | None, keep: StudyWriter | None, region_labels: bool) -> None:
        self.found, self.seen, self.keep, self.region_labels = found, seen, keep, region_labels
        self.rules = [name for name in found.settings["rules"] if name in RULES]
        self.owners: dict[tuple[str, str], str] = {}  # patient of each phrase, for moved targets
        self.overlaps: dict[str, float | None] = {}

    def take(self, study: Study, wanted: Collection[int] | None) -> None:
        """Add the wanted phrases of a study."""
        found = self.found
        gathered = self._targets(study, wanted)
        patient = study.patient or f"study {study.id}"
        self._label(study, patient)
        if known := person_of(study):
            found.persons[study.id] = known
        without_phrases = self.keep is not None and self.region_labels  # images and regions are measured, too
        if not gathered and wanted is None and not without_phrases:
            found.left_out["studies without a phrase to measure"] += 1
            return
        if self.keep is not None:
            try:
                self.keep.add(study)
            except Exception as error:  # a loader may raise anything
                found.left_out[UNREADABLE] += 1
                found.problems.append(f"study {study.id!r}: {error}")
                return
        found.studies_without_patient += study.patient is None
        found.regions |= set(study.regions)
        places: dict[bytes, Place] = {}
        for index, targets in gathered.items():
            self._add(study, index, patient, targets, places)
        if "mdrb" in found.settings["subsets"]:
            masks = [targets[self.rules[0]].pixels for targets in gathered.values() if self.rules[0] in targets]
            self.overlaps[study.id] = mean_overlap(masks)

    def _label(self, study: Study, patient: str) -> None:
        """Add what is known about the image and, if asked for, about its regions."""
        report = None if study.report is None else study.report.text or None
        boxes: dict[str, dict[Corners, None]] = {}
        for phrase in study.located_findings or study.phrases:
            for finding in findings_about(phrase.findings):
                boxes.setdefault(finding, {}).update(dict.fromkeys(_target_boxes(phrase)))
        outlined = {finding: tuple(corners) for finding, corners in boxes.items() if corners}
        if study.findings or report or outlined:
            self.found.labels[study.id] = StudyLabels(patient, _plain(study.findings), report, outlined)
        else:
            self.found.unlabelled[study.id] = patient
        said = study.region_sentences if self.region_labels else {}
        for name in study.regions if self.region_labels else ():
            text = " ".join(study.phrases[index].text for index in said.get(name, ())) or None
            findings = _plain(study.region_findings.get(name, {}))
            if text or findings:
                labels = StudyLabels(patient, findings, text, kind="region")
                self.found.region_labels[study.id, region_query(name)] = labels

    def _targets(self, study: Study, wanted: Collection[int] | None) -> dict[int, dict[str, Target]]:
        """Return targets by phrase and rule; count missing targets, and list unreadable masks as problems."""
        found = self.found
        gathered: dict[int, dict[str, Target]] = {}
        for index in range(len(study.phrases)) if wanted is None else sorted(wanted):
            query = phrase_query(index)
            if index >= len(study.phrases):
                found.problems.append(f"study {study.id!r} has {len(study.phrases)} phrases and no {query}")
                continue
            try:
                side = found.settings["pixels"] or BOX_SIZE
                targets = {rule: RULES[rule](study, study.phrases[index], side) for rule in self.rules}
            except InputError as error:  # the file of a mask cannot be read
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
            phrase.regions, side_named(phrase.text), midline, _target_boxes(phrase), readers=readers_of(study, index),
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
                one.columns[name] = PHRASE_SUBSETS[name](phrase)
        self.found.phrases[study.id, query] = one
        self.owners[study.id, query] = f"patient {study.patient}" if study.patient is not None else patient
        if self.seen is not None and self.rules[0] in targets:
            self.seen(phrase, one, targets[self.rules[0]].pixels)
        described = {
            "patient": patient,
            "findings": sorted((name, str(polarity)) for name, polarity in phrase.findings.items()),
            "regions": list(phrase.regions),
            "midline": round(midline, 9),
            "kind": "boxes" if phrase.mask is None else "mask",
        }
        known = json.dumps([study.id, query, phrase.text, described], sort_keys=True).encode()
        digest = sha256(sha256(known).digest() + b"".join(digests)).digest()
        self.found.digests += int.from_bytes(digest, "big")

    def finish(self) -> None:
        """Add moved targets and the subset of most diverse reports, which need all phrases."""
        found = self.found
        phrases = [*found.phrases.values()]
        for name in found.settings["rules"]:
            if name in MOVED_RULES:
                move_targets(phrases, list(self.owners.values()), name, found.settings["seed"])
        if "mdrb" in found.settings["subsets"]:
            counts = Counter(phrase.study for phrase in phrases)
            diverse = set(most_diverse_reports(self.overlaps, counts))
            found.add_column("mdrb", lambda phrase: phrase.study in diverse)
        if self.keep is not None:
            self.keep.finish()
        found.store.finish()
        found.left_out = +found.left_out
        found.phrase_set = phrase_set_of(found.digests)


def prepare_studies(
    source: Source,
    folder: str | Path,
    protocol: Protocol,
    *,
    seed: int = 0,
    limit: int | None = None,
    pixels: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[CachedSource, Targets]:
    """Write the studies that a protocol measures and their targets to a folder, or open the folder if it exists.

    A folder that was prepared with other settings is an error.
    """
    folder = Path(folder)
    asked = {"rules": [*protocol.rules], "pixels": pixels or protocol.pixels, "seed": seed, "limit": limit}
    if not (folder / TARGETS).exists():
        kept = {"subsets": protocol.subsets, "keep_studies": True, "region_labels": "region" in protocol.queries}
        gather_targets(source, None, folder, **asked, **kept, progress=progress)  # type: ignore[arg-type]
    targets = Targets.open(folder)
    earlier = targets.settings | {"source": targets.source}
    for name, value in ({"source": source.address} | asked).items():
        if earlier[name] != value:
            raise InputError(
                f"{folder}: was prepared with {name} {earlier[name]!r}, not {value!r}; choose another folder"
            )
    return CachedSource(folder), targets


def person_of(study: Study) -> dict[str, str]:
    """Return sex, age band and view of a study, without those that are not known."""
    band = None if study.age is None else next(name for name, below in AGE_BANDS.items() if study.age < below)
    known = {"sex": study.sex, "age_band": band, "view": study.view}
    return {name: value for name, value in known.items() if value}


def side_told(phrase: PhraseTargets, prior: LocationPrior | None) -> str:
    """Return what gives the side of a phrase's target away (`what_tells`)."""
    key = word_key(phrase.text, phrase.findings)
    return what_tells(key, *(None, None) if prior is None else (prior.sides, prior.held_out(phrase.patient)))
