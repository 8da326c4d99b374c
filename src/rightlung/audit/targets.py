"""What phrases truly point at, gathered in one walk through the source.

Masks are spilled to a temporary file, a bit a pixel, so that a source is rendered or decoded once however many
conditions ask about it, in whatever order their answers stand in the predictions file, and memory stays small.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rightlung.audit.protocol import BOX_SIZE, LARGE, ONE_SIDED, SMALL, PhraseSetHash
from rightlung.audit.words import NamedSide, findings_about, side_named
from rightlung.core import InputError, Mask, Phrase, Polarity, Study
from rightlung.predictions import phrase_query
from rightlung.studies import Source

TargetKind = Literal["exact mask", "finding boxes", "region boxes"]
TargetSide = Literal["left", "right", "both", "midline"]
SizeClass = Literal["small", "medium", "large"]

STUDIES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mask lies in the store."""

    offset: int
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """One phrase of one study, and what it points at; ``place`` is ``None`` where it points at nothing known."""

    study: str
    query: str
    patient: str
    text: str
    findings: tuple[str, ...]
    """Those asserted (positive or uncertain), by their canonical names."""
    polarity: str
    """``positive``, ``uncertain``, ``negative``, or ``none`` where no finding is named."""
    regions: tuple[str, ...]
    side_named: NamedSide
    midline: float
    kind: TargetKind | None = None
    area: float = float("nan")
    size: SizeClass | None = None
    side: TargetSide | None = None
    place: Place | None = None


class MaskStore:
    """Masks in a temporary file; a context that removes it."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="rightlung-masks-")  # noqa: SIM115  (closed in __exit__)
        self._end = 0

    def __enter__(self) -> MaskStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, packed: bytes, size: tuple[int, int]) -> Place:
        """Keep a packed mask and say where it is."""
        self._file.seek(self._end)
        self._file.write(packed)
        place = Place(self._end, size)
        self._end += len(packed)
        return place

    def read(self, place: Place) -> NDArray[np.bool_]:
        """Return a mask ``(height, width)``."""
        height, width = place.size
        self._file.seek(place.offset)
        packed = np.frombuffer(self._file.read(-(-height * width // 8)), dtype=np.uint8)
        return np.unpackbits(packed, count=height * width).reshape(height, width).view(np.bool_)


@dataclass
class Targets:
    """All phrases asked about, by (study, query), with what was wrong on the way."""

    phrases: dict[tuple[str, str], Target]
    problems: list[str]
    phrase_set: str
    studies_without_patient: int


Seen = Callable[[Phrase, Target, NDArray[np.bool_]], None]
"""Called with every target on the way: the phrase, what is known of it, the pixels."""


def gather_targets(
    source: Source,
    wanted: Mapping[str, Collection[int]],
    store: MaskStore,
    *,
    seen: Seen | None = None,
    progress: Callable[[int], None] | None = None,
) -> Targets:
    """Walk once through the studies of ``source`` that are ``wanted`` (id → indices of phrases), in the source's order.

    Studies that the source does not have, and phrases that a study does not have, are listed as problems.
    """
    positions, problems = _positions(source, wanted)
    phrases: dict[tuple[str, str], Target] = {}
    phrase_set, anonymous = PhraseSetHash(), 0
    for done, study in enumerate(_studies(source, positions, problems), start=1):
        anonymous += study.patient is None
        places: dict[bytes, Place] = {}
        midline = midline_of(study)
        for index in sorted(wanted[study.id]):
            query = phrase_query(index)
            if index >= len(study.phrases):
                problems.append(f"study {study.id!r} has {len(study.phrases)} phrases, and no {query}")
                continue
            phrase = study.phrases[index]
            try:
                pixels, kind = target_pixels(phrase)
            except InputError as error:  # a mask's file that cannot be read
                problems.append(f"study {study.id!r}, {query}: {error}")
                continue
            patient = study.patient or f"study {study.id}"
            digest = b""
            if pixels is not None and kind is not None:
                packed = np.packbits(pixels).tobytes()
                digest = target_digest(pixels)
                if digest not in places:
                    places[digest] = store.add(packed, (pixels.shape[0], pixels.shape[1]))
            target = _target(study, phrase, query, patient, midline, pixels, kind, places.get(digest))
            phrases[study.id, query] = target
            if seen is not None and pixels is not None:
                seen(phrase, target, pixels)
            phrase_set.add(study.id, query, phrase.text, digest, **phrase_facts(phrase, patient, midline))
        if progress is not None:
            progress(done)
    return Targets(phrases, problems, phrase_set.digest, anonymous)


def target_digest(pixels: NDArray[np.bool_]) -> bytes:
    """Return a digest of a target's pixels."""
    return hashlib.sha256(repr(pixels.shape).encode() + np.packbits(pixels).tobytes()).digest()


def phrase_facts(phrase: Phrase, patient: str, midline: float) -> dict[str, Any]:
    """Return what numbers depend on besides the text and the target: clusters, groups and sides."""
    return {
        "patient": patient,
        "findings": sorted((name, str(polarity)) for name, polarity in phrase.findings.items()),
        "regions": list(phrase.regions),
        "midline": round(midline, 9),
        "kind": "boxes" if phrase.mask is None else "mask",
    }


def _positions(source: Source, wanted: Mapping[str, Collection[int]]) -> tuple[list[int], list[str]]:
    positions, problems = [], []
    for study_id in wanted:
        position = source._position(study_id)
        if position is None:
            problems.append(f"source {source.address} has no study {study_id!r}")
        else:
            positions.append(position)
    return sorted(positions), problems


def _studies(source: Source, positions: Sequence[int], problems: list[str]) -> Iterator[Study]:
    """Yield the studies at these positions, made some at a time where the source can."""
    together = cast("Callable[[list[int]], list[Study]] | None", getattr(source, "__getitems__", None))
    for begin in range(0, len(positions), STUDIES_AT_ONCE):
        chunk = list(positions[begin : begin + STUDIES_AT_ONCE])
        if together is not None:
            try:
                built = together(chunk)
            except InputError:
                pass  # which of them it was is found out one by one
            else:
                yield from built
                continue
        for position in chunk:
            try:
                study = source[position]
            except InputError as error:
                problems.append(str(error))
                continue
            yield study


def _target(
    study: Study,
    phrase: Phrase,
    query: str,
    patient: str,
    midline: float,
    pixels: NDArray[np.bool_] | None,
    kind: TargetKind | None,
    place: Place | None,
) -> Target:
    area = float("nan") if pixels is None else float(pixels.mean())
    return Target(
        study=study.id,
        query=query,
        patient=patient,
        text=phrase.text,
        findings=findings_about(phrase.findings),
        polarity=polarity_of(phrase),
        regions=phrase.regions,
        side_named=side_named(phrase.text),
        midline=midline,
        kind=kind,
        area=area,
        size=None if pixels is None else size_class(area),
        side=None if pixels is None else side_of_target(pixels, midline),
        place=place,
    )


def polarity_of(phrase: Phrase) -> str:
    """Return the polarity of a phrase: the strongest claim among its findings, ``none`` where it names no finding."""
    said = set(phrase.findings.values())
    return next((str(one) for one in (Polarity.POSITIVE, Polarity.UNCERTAIN, Polarity.NEGATIVE) if one in said), "none")


def target_pixels(phrase: Phrase) -> tuple[NDArray[np.bool_] | None, TargetKind | None]:
    """Return the target as pixels and its kind: its mask, else its boxes painted; nothing where it has none."""
    if phrase.mask is not None:
        return (phrase.mask.pixels, "exact mask") if phrase.mask else (None, None)
    if phrase.boxes:
        kind: TargetKind = "finding boxes" if phrase.findings else "region boxes"
        return Mask.from_boxes(phrase.boxes, (BOX_SIZE, BOX_SIZE)).pixels, kind
    return None, None


def size_class(area: float) -> SizeClass:
    """Return the class of a target's size, a share of the image's area.

    >>> size_class(0.004), size_class(0.01), size_class(0.2)
    ('small', 'medium', 'large')
    """
    return "small" if area < SMALL else "medium" if area < LARGE else "large"


def midline_of(study: Study) -> float:
    """Return where the patient's middle lies, as a fraction of the image's width."""
    right, left, spine = (study.regions.get(name) for name in ("right lung", "left lung", "spine"))
    if right is not None and left is not None:
        return (right.x1 + left.x0) / 2
    return spine.centre[0] if spine is not None else 0.5


def side_of_target(pixels: NDArray[np.bool_], midline: float) -> TargetSide:
    """Return the patient's side on which a target lies.

    Left or right if 80 % of it are there; else midline if it reaches across the middle, and both if it does not.
    """
    columns = pixels.sum(axis=0, dtype=np.int64)
    left = float(columns[on_the_left(len(columns), midline)].sum() / columns.sum())
    if max(left, 1 - left) >= ONE_SIDED:
        return "left" if left > 0.5 else "right"
    middle = min(max(round(midline * len(columns)), 1), len(columns) - 1)
    return "midline" if columns[middle - 1] and columns[middle] else "both"


def on_the_left(columns: int, midline: float) -> NDArray[np.bool_]:
    """Return which of so many columns lie on the patient's left, which is the image's right."""
    return (np.arange(columns) + 0.5) / columns > midline
