"""The prepared set that every model is measured on: what is asked, of which image, against which targets.

An instance is a study and one of its phrases that has region boxes. `prepare` goes through the source once and leaves

- ``instances.parquet``, a row an instance: texts, subsets, what is asked under each condition;
- ``instances.json``: where it comes from, how many there are, and what was left out and why;
- ``cache/``: images and target masks, which another call finds again, and makes again where it was thrown away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit.protocol import PhraseSetHash
from rightlung.audit.words import findings_about
from rightlung.core import Box, Image, InputError, OutputError, Phrase
from rightlung.lexicon import REGIONS, sides_in, swap_sides
from rightlung.lexicon.regions import with_containing
from rightlung.predictions import phrase_query
from rightlung.probes import Company, Owner, Setting, exchanged, exchanged_outside
from rightlung.probes.sentences import random_sentence, swapped_sentence, synthetic_of
from rightlung.probes.subsets import is_abnormal, is_one_lung, mean_overlap, most_diverse_reports
from rightlung.probes.targets import exchanged_targets, shuffled_in_report
from rightlung.reproduce.wrong_lung.files import read_json, read_table, write_json, write_table
from rightlung.reproduce.wrong_lung.gathering import UNREAD, Candidate, Gathered, Progress, Shown, gather
from rightlung.studies import Source, open_source

CONDITIONS = ("none", "swap-sides", "random-sentence", "synthetic", "synthetic-swapped", "exchange-image")
TARGETS = ("regions", "trimmed", "exact")
"""What every answer is scored against."""

MOVED_TARGETS = ("regions-shuffled", "exact-shuffled", "regions-random", "exact-random")
"""What only answers to the question as it stands are scored against: Shuffle in Report, Random BBoxes."""

SUBSETS = ("abnormal", "one_lung", "mdrb")
VERSION = 1

_MOST_PROBLEMS = 200

_ASKED = {name: f"asked_{name.replace('-', '_')}" for name in CONDITIONS[1:5]}
_INSTANCES = pa.schema(
    [
        ("instance", pa.int32()),
        ("study", pa.string()),
        ("patient", pa.string()),
        ("phrase", pa.int32()),
        ("text", pa.string()),
        *((name, pa.bool_()) for name in (*SUBSETS, "has_exact", "names_side")),
        ("exact_side", pa.string()),
        ("findings", pa.list_(pa.string())),
        ("regions", pa.list_(pa.string())),
        ("focal", pa.bool_()),
        *((name, pa.string()) for name in _ASKED.values()),
        ("partner", pa.string()),
        *((f"{kind}_shuffled_differs", pa.bool_()) for kind in ("regions", "exact")),
    ]
)
_STUDIES = pa.schema(
    [
        ("study", pa.string()), ("patient", pa.string()), ("offset", pa.int64()), ("height", pa.int32()),
        ("width", pa.int32()), ("midline", pa.float64()), ("regions", pa.list_(pa.string())),
        ("boxes", pa.list_(pa.list_(pa.float64()))),
    ]
)  # fmt: skip
_SAID = pa.schema(
    [
        ("instance", pa.int32()), ("condition", pa.string()), ("text", pa.string()), ("image", pa.int32()),
        ("findings", pa.list_(pa.string())), ("regions", pa.list_(pa.string())),
    ]
)  # fmt: skip
_PLACES = pa.schema([("instance", pa.int32()), *((name, pa.int32()) for name in (*TARGETS, *MOVED_TARGETS))])


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: the words, the number of the image, and what the words say."""

    text: str
    image: int
    findings: tuple[str, ...]
    """Those said to be there, by their canonical names."""
    regions: tuple[str, ...]
    """Where they are said to be, containing ones included; where nothing is said to be there, of what that is said."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A study and one of its phrases: what is asked under each condition, and the mask of each target by its row."""

    number: int
    image: int
    phrase: int
    asked: Mapping[str, Asked]
    targets: Mapping[str, int]

    def targets_under(self, condition: str) -> Iterator[tuple[str, int]]:
        """Yield the targets that answers under a condition are scored against."""
        for name, row in self.targets.items():
            if condition == "none" or name in TARGETS:
                yield name, row


@dataclass(frozen=True)
class Instances:
    """The prepared set; images and masks are read from the disk as they are asked for."""

    folder: Path
    about: Mapping[str, Any]
    rows: Sequence[Instance]
    shown: Sequence[Shown]
    _images: NDArray[np.uint8] = field(repr=False)
    _masks: NDArray[np.uint8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.rows)

    @property
    def size(self) -> int:
        """Pixels a side of a target."""
        return int(self.about["size"])

    @property
    def unread(self) -> dict[str, int]:
        """How many rows and studies of the source could not be had, by the reason."""
        left_out = self.about["left_out"]
        return {reason: int(left_out[reason]) for reason in UNREAD if reason in left_out}

    def image(self, number: int) -> Image:
        """Return an image as `Study.image` gives it, from its bytes; a new array every time."""
        one = self.shown[number]
        values = self._images[one.offset : one.offset + one.height * one.width]
        image: Image = values.reshape(one.height, one.width).astype(np.float32) / np.float32(255)
        return image

    def packed(self, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Return masks a bit a pixel, ``(n, bytes)``."""
        return self._masks[np.asarray(rows, dtype=np.intp)]

    def mask(self, row: int) -> NDArray[np.bool_]:
        """Return one mask, ``(size, size)``."""
        bits = np.unpackbits(self._masks[row], count=self.size**2)
        return bits.reshape(self.size, self.size).astype(np.bool_)

    def patient(self, instance: Instance) -> str:
        """Return whose an instance is; where the patient is not known, the study counts as one."""
        shown = self.shown[instance.image]
        return shown.patient or f"study {shown.study}"


def prepare(
    source: Source | str,
    out: str | Path,
    *,
    seed: int = 0,
    limit: int | None = None,
    size: int = 224,
    progress: Progress = lambda done, total: None,
) -> Instances:
    """Prepare the first ``limit`` studies of ``source`` in the folder ``out``, or find them prepared there.

    Targets are masks of ``size`` x ``size`` pixels over the whole image. What is drawn by chance (sentences, swapped
    conditions, partners, moved targets) follows from ``seed`` and the studies. A call that is stopped leaves nothing
    that is taken for whole.
    """
    opened = open_source(source) if isinstance(source, str) else source
    if size < 8 or (limit is not None and limit < 1):
        raise InputError(f"size must be at least 8 and limit at least 1; got {size} and {limit}")
    folder = Path(out)
    wanted = {"source": opened.address, "seed": seed, "limit": limit, "size": size}
    earlier = read_json(folder / "instances.json") if (folder / "instances.json").exists() else None
    if earlier is not None:
        _check_same(folder, wanted, earlier)
        if _is_whole(folder / "cache", earlier):
            return open_instances(folder)
    cache, beside = folder / "cache", folder / ".cache.writing"
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        total = len(opened) if limit is None else min(limit, len(opened))
        gathered = gather(opened, total, size, beside / "images.bin", beside / "masks.bin", progress)
        if not gathered.candidates:
            raise InputError(f"none of the {total:,} studies of {opened.address} has a phrase with region boxes")
        about = _write_parts(beside, gathered, wanted, opened)
        if earlier is not None and earlier["protocol"] != about["protocol"]:
            raise InputError(
                f"{folder / 'instances.json'}: {opened.address} is no longer what was prepared (protocol "
                f"{earlier['protocol']}, now {about['protocol']}); choose another folder"
            )
        (beside / "instances.parquet").replace(folder / "instances.parquet")
        shutil.rmtree(cache, ignore_errors=True)
        beside.replace(cache)
    except OSError as error:
        raise OutputError(f"{folder}: the instances cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    write_json(folder / "instances.json", about)
    return open_instances(folder)


def open_instances(folder: str | Path) -> Instances:
    """Open what `prepare` left."""
    folder = Path(folder)
    about = read_json(folder / "instances.json")
    cache = folder / "cache"
    if not _is_whole(cache, about):
        raise InputError(f"{cache}: images and targets are not there (any more); prepare them again")
    studies, said, places = (read_table(cache / f"{name}.parquet") for name in ("studies", "said", "places"))
    shown = [
        Shown(study, patient, offset, height, width, midline, {
            name: Box(*corners) for name, corners in zip(names, boxes, strict=True)
        })
        for study, patient, offset, height, width, midline, names, boxes in zip(*studies.values(), strict=True)
    ]  # fmt: skip
    asked: dict[int, dict[str, Asked]] = {}
    for number, condition, text, image, findings, regions in zip(*said.values(), strict=True):
        asked.setdefault(number, {})[condition] = Asked(text, image, tuple(findings), tuple(regions))
    indices = read_table(folder / "instances.parquet")["phrase"]
    rows = []
    for number, *found in zip(*places.values(), strict=True):
        targets = {name: row for name, row in zip(_PLACES.names[1:], found, strict=True) if row is not None}
        rows.append(Instance(number, asked[number]["none"].image, indices[number], asked[number], targets))
    size = int(about["size"])
    images = np.memmap(cache / "images.bin", dtype=np.uint8, mode="r")
    masks = np.memmap(cache / "masks.bin", dtype=np.uint8, mode="r").reshape(-1, -(-size * size // 8))
    return Instances(folder, about, rows, shown, images, masks)


def _check_same(folder: Path, wanted: Mapping[str, Any], earlier: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if earlier.get(name) != value:
            raise InputError(
                f"{folder / 'instances.json'}: the instances were prepared with {name} {earlier.get(name)!r}, and now "
                f"{value!r} is asked for; choose another folder"
            )


def _is_whole(cache: Path, about: Mapping[str, Any]) -> bool:
    mark = cache / "whole.json"
    return mark.exists() and read_json(mark).get("protocol") == about.get("protocol")


# ------------------------------------------------------------------ what is asked


def _write_parts(cache: Path, gathered: Gathered, wanted: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Write the tables of the cache and return what ``instances.json`` is to say."""
    seed = int(wanted["seed"])
    owners = [Owner(one.study, one.patient) for one in gathered.shown]
    partners = exchanged(owners, seed) or exchanged_outside(owners, (), seed) or {}
    setting = Setting(seed, partners, Company.of(gathered.studies))
    number_of = {one.study: number for number, one in enumerate(gathered.shown)}
    said: dict[str, list[Any]] = {name: [] for name in _SAID.names}
    for number, candidate in enumerate(gathered.candidates):
        for condition, asked in _asked(candidate, gathered, setting, number_of).items():
            for name, value in zip(
                _SAID.names,
                (number, condition, asked.text, asked.image, asked.findings, asked.regions),
                strict=True,
            ):
                said[name].append(value)
    places, without = _places(gathered, seed)
    write_table(cache / "said.parquet", said, _SAID)
    write_table(cache / "places.parquet", places, _PLACES)
    write_table(
        cache / "studies.parquet",
        {
            **{name: [getattr(one, name) for one in gathered.shown] for name in _STUDIES.names[:6]},
            "regions": [list(one.regions) for one in gathered.shown],
            "boxes": [[box.as_tuple() for box in one.regions.values()] for one in gathered.shown],
        },
        _STUDIES,
    )
    columns = _columns(gathered, said, places, int(wanted["size"]), cache / "masks.bin")
    write_table(cache / "instances.parquet", columns, _INSTANCES)
    number_asked = Counter(said["condition"])
    for condition in CONDITIONS:
        without[condition] = len(gathered.candidates) - number_asked[condition]
    protocol = _protocol(gathered, said, places, wanted)
    write_json(cache / "whole.json", {"protocol": protocol})
    total = len(gathered.candidates)
    return {
        **wanted,
        "protocol": protocol,
        "counts": {
            "studies": len(gathered.shown),
            "patients": len({owner.group for owner in owners}),
            "studies without a patient": sum(owner.patient is None for owner in owners),
            "instances": total,
            **{name.replace("_", "-"): sum(columns[name]) for name in SUBSETS},
            "in no subset": sum(not any(flags) for flags in zip(*(columns[name] for name in SUBSETS), strict=True)),
            "with an exact target": sum(columns["has_exact"]),
            "without findings": sum(not candidate.phrase.findings for candidate in gathered.candidates),
        },
        "left_out": dict(gathered.left_out),
        "without": {name: count for name, count in without.items() if count},
        "problems": [*map(str, source.problems), *gathered.problems][:_MOST_PROBLEMS],
        "note": NOT_A_MEDICAL_DEVICE,
    }


def _asked(
    candidate: Candidate, gathered: Gathered, setting: Setting, number_of: Mapping[str, int]
) -> dict[str, Asked]:
    study, phrase, image = gathered.studies[candidate.shown], candidate.phrase, candidate.shown
    swapped = Phrase(swap_sides(phrase.text), regions=tuple(map(_mirrored, phrase.regions)), findings=phrase.findings)
    found: dict[str, Phrase | None] = {
        "none": phrase,
        "swap-sides": swapped if swapped.text != phrase.text else None,
        "random-sentence": random_sentence(study, phrase, setting),
        "synthetic": synthetic_of(phrase),
        "synthetic-swapped": swapped_sentence(study, phrase, setting),
    }
    asked = {name: _question(one, image) for name, one in found.items() if one is not None}
    if study.id in setting.partners:
        asked["exchange-image"] = _question(phrase, number_of[setting.partners[study.id]])
    return asked


def _question(phrase: Phrase, image: int) -> Asked:
    return Asked(phrase.text, image, findings_about(phrase.findings), with_containing(phrase.regions))


def _mirrored(region: str) -> str:
    return REGIONS[region].mirror if region in REGIONS else region


# ------------------------------------------------------------------- what is true


def _places(gathered: Gathered, seed: int) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return the mask's row of every target of every instance, and how many instances have none of a kind."""
    candidates = gathered.candidates
    places: dict[str, list[Any]] = {
        "instance": list(range(len(candidates))),
        **{name: [candidate.masks.get(name) for candidate in candidates] for name in TARGETS},
    }
    for kind in ("regions", "exact"):
        own = places[kind]
        moved = _shuffled(gathered, own, kind, seed)
        places[f"{kind}-shuffled"] = [None if other is None else own[other] for other in moved]
        owners = [
            Owner(str(number), _owner(gathered.shown[candidate.shown]))
            for number, candidate in enumerate(candidates)
            if own[number] is not None
        ]
        drawn = exchanged_targets(owners, seed) or {}
        places[f"{kind}-random"] = [
            own[int(drawn[str(number)])] if str(number) in drawn else None for number in range(len(candidates))
        ]
    without = {name: sum(row is None for row in rows) for name, rows in places.items() if name != "instance"}
    return places, without


def _owner(shown: Shown) -> str:
    return f"patient {shown.patient}" if shown.patient is not None else f"study {shown.study}"


def _shuffled(gathered: Gathered, own: Sequence[int | None], kind: str, seed: int) -> list[int | None]:
    """Return whose target each instance gets in its own report; None where it has none, or there is no other."""
    result: list[int | None] = [None] * len(own)
    for members in _by_study(gathered):
        study = gathered.studies[gathered.candidates[members[0]].shown]
        dice = Setting(seed).dice(f"shuffle {kind}", study)
        order = shuffled_in_report([own[number] is not None for number in members], dice)
        for place, number in enumerate(members):
            if order is not None and own[number] is not None:
                result[number] = members[order[place]]
    return result


def _by_study(gathered: Gathered) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for number, candidate in enumerate(gathered.candidates):
        groups.setdefault(candidate.shown, []).append(number)
    return list(groups.values())


def _most_diverse(gathered: Gathered, rows: Sequence[int], size: int, masks: Path) -> set[int]:
    """Return the instances of the reports whose targets overlap least (MDRB, appendix A.6)."""
    stored = np.memmap(masks, dtype=np.uint8, mode="r").reshape(-1, -(-size * size // 8))
    overlaps, counts, members_of = {}, {}, {}
    for members in _by_study(gathered):
        pixels = np.unpackbits(stored[[rows[number] for number in members]], axis=1, count=size * size).astype(np.bool_)
        key = gathered.shown[gathered.candidates[members[0]].shown].study
        overlaps[key], counts[key], members_of[key] = mean_overlap(list(pixels)), len(members), members
    return {number for key in most_diverse_reports(overlaps, counts) for number in members_of[key]}


def _columns(
    gathered: Gathered, said: Mapping[str, list[Any]], places: Mapping[str, list[Any]], size: int, masks: Path
) -> dict[str, list[Any]]:
    candidates = gathered.candidates
    asked = {
        (number, condition): (text, image)
        for number, condition, text, image in zip(
            said["instance"], said["condition"], said["text"], said["image"], strict=True
        )
    }
    diverse = _most_diverse(gathered, places["regions"], size, masks)
    shown = [gathered.shown[candidate.shown] for candidate in candidates]
    partners = [asked.get((number, "exchange-image"), (None, None))[1] for number in range(len(candidates))]
    per_phrase: dict[str, Callable[[Phrase], Any]] = {
        "text": lambda phrase: phrase.text,
        "abnormal": is_abnormal,
        "one_lung": is_one_lung,
        "names_side": lambda phrase: bool(sides_in(phrase.text)),
        "findings": lambda phrase: list(findings_about(phrase.findings)),
        "regions": lambda phrase: list(with_containing(phrase.regions)),
    }
    return {
        "instance": list(range(len(candidates))),
        "study": [one.study for one in shown],
        "patient": [one.patient for one in shown],
        "phrase": [candidate.index for candidate in candidates],
        **{name: [value(candidate.phrase) for candidate in candidates] for name, value in per_phrase.items()},
        "mdrb": [number in diverse for number in range(len(candidates))],
        "has_exact": [row is not None for row in places["exact"]],
        "exact_side": [candidate.exact_side for candidate in candidates],
        "focal": [candidate.focal for candidate in candidates],
        **{
            column: [asked.get((number, name), (None, None))[0] for number in range(len(candidates))]
            for name, column in _ASKED.items()
        },
        "partner": [None if partner is None else gathered.shown[partner].study for partner in partners],
        **{
            f"{kind}_shuffled_differs": [
                None if moved is None else moved != row
                for row, moved in zip(places[kind], places[f"{kind}-shuffled"], strict=True)
            ]
            for kind in ("regions", "exact")
        },
    }


def _protocol(
    gathered: Gathered, said: Mapping[str, list[Any]], places: Mapping[str, list[Any]], wanted: Mapping[str, Any]
) -> str:
    """Return a hash of what is asked, of what, and against which targets; not of where the files lie."""
    phrases = PhraseSetHash()
    for candidate in gathered.candidates:
        shown = gathered.shown[candidate.shown]
        phrases.add(
            shown.study, phrase_query(candidate.index), candidate.phrase.text, candidate.digest,
            patient=shown.patient, midline=round(shown.midline, 9),
        )  # fmt: skip
    chosen = hashlib.sha256(
        json.dumps(
            [said["instance"], said["condition"], said["text"], said["image"], *(places[n] for n in MOVED_TARGETS)]
        ).encode("utf-8", "surrogatepass")
    ).hexdigest()
    facts = {"version": VERSION, "size": wanted["size"], "set": phrases.digest, "chosen": chosen}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]
