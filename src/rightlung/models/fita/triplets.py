"""The triplets of TFR: segments of reports that say the same, and one that says something else.

Drawn anew from every batch, balanced over classes, never all pairs. ``clinical`` follows the supplement: anchor and
positive state the abnormality, the negative states that it is absent or does not mention it. Ours: anchor and positive
come from different studies, half of the negatives are negated mentions (or "mentions effusion" is all that is learned),
and some triplets differ in the side alone, which the paper's never do. ``printed`` follows the paper's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rightlung.core.keyed import RandomStream
from rightlung.lexicon import finding, negative_prompts, split_sentences
from rightlung.lexicon.findings import broader_findings
from rightlung.lexicon.labeller import OBSERVATIONS, observations, read_sentence
from rightlung.lexicon.side_changes import with_sides_exchanged
from rightlung.models.fita.config import SYMPTOMS, TextRefinerConfig

NAMES = {finding(label).name: label for label in OBSERVATIONS if label != "No Finding"}


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence of a report: what it says of each of 13 findings, what that implies, and what it says of one side."""

    text: str
    study: int
    said: dict[str, str]
    implied: frozenset[str]
    sides: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Triplet:
    """Three segments; ``kind`` says how the negative differs: negated, unmentioned, side or printed."""

    anchor: str
    positive: str
    negative: str
    finding: str
    kind: str


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> tuple[dict[str, str], frozenset[str], frozenset[tuple[str, str]]]:
    labels = observations(text)
    said: dict[str, str] = {name: polarity for name, label in NAMES.items() if (polarity := labels[label]) is not None}
    implied: set[str] = set()
    sides: set[tuple[str, str]] = set()
    for mention in read_sentence(text).mentions:
        if mention.polarity == "positive":
            meant = (mention.finding, *broader_findings(mention.finding))
            implied.update(meant)
            if mention.side in ("left", "right"):
                sides.update((name, str(mention.side)) for name in meant if said.get(name) == "positive")
    return said, frozenset(implied), frozenset(sides)


@lru_cache(maxsize=1 << 16)
def _split(report: str) -> tuple[str, ...]:
    return tuple(split_sentences(report))


def segments_of(reports: Sequence[str]) -> list[Segment]:
    """Return the segments of reports; ``study`` is the index of the report."""
    return [Segment(text, study, *_read(text)) for study, report in enumerate(reports) for text in _split(report)]


def draw_triplets(reports: Sequence[str], config: TextRefinerConfig, seed: int) -> list[Triplet]:
    """Return at most ``triplets_per_batch`` triplets of some reports."""
    stream, segments = RandomStream(seed, "triplets"), segments_of(reports)
    if config.triplets == "printed":
        return _printed(segments, config.triplets_per_batch, stream)
    sided = round(config.sided * config.triplets_per_batch)
    found = _clinical(segments, config.triplets_per_batch - sided, stream)
    return found + _sided(segments, sided, stream)


def _pair(candidates: Sequence[Segment], stream: RandomStream) -> tuple[Segment, Segment] | None:
    """Return two segments of different studies."""
    anchor = stream.choice(candidates)
    others = [one for one in candidates if one.study != anchor.study]
    return (anchor, stream.choice(others)) if others else None


def _clinical(segments: Sequence[Segment], count: int, stream: RandomStream) -> list[Triplet]:
    stating = {name: [one for one in segments if one.said.get(name) == "positive"] for name in SYMPTOMS}
    classes = [name for name, own in stating.items() if len({one.study for one in own}) > 1]
    found = []
    for number in range(count if classes else 0):
        name = classes[number % len(classes)]
        pair = _pair(stating[name], stream)
        if pair is None:
            continue
        silent = [one.text for one in segments if name not in one.said and name not in one.implied]
        kind = "unmentioned" if silent and (number // len(classes)) % 2 else "negated"
        negated = [one.text for one in segments if one.said.get(name) == "negative"] or negative_prompts(name)
        negative = stream.choice(list(silent if kind == "unmentioned" else negated))
        found.append(Triplet(pair[0].text, pair[1].text, negative, name, kind))
    return found


def _sided(segments: Sequence[Segment], count: int, stream: RandomStream) -> list[Triplet]:
    """Return triplets whose negative is the positive with its side exchanged."""
    stating: dict[tuple[str, str], list[Segment]] = {}
    for one in segments:
        if len({side for _, side in one.sides}) == 1 and with_sides_exchanged(one.text) is not None:
            for key in sorted(one.sides):
                stating.setdefault(key, []).append(one)
    keys = sorted(key for key, own in stating.items() if len({one.study for one in own}) > 1)
    found = []
    for number in range(count if keys else 0):
        key = keys[number % len(keys)]
        if (pair := _pair(stating[key], stream)) is not None:
            exchanged = with_sides_exchanged(pair[1].text)
            assert exchanged is not None
            found.append(Triplet(pair[0].text, pair[1].text, exchanged, key[0], "side"))
    return found


@lru_cache(maxsize=1 << 16)
def _observed(text: str) -> tuple[str, ...]:
    return tuple(said or "negative" for said in observations(text).values())


def _printed(segments: Sequence[Segment], count: int, stream: RandomStream) -> list[Triplet]:
    """Return triplets by the paper's text: equal labels of a class, or different ones; blank counts as negative."""
    labels = [_observed(one.text) for one in segments]
    classes = [place for place in range(len(OBSERVATIONS)) if len({own[place] for own in labels}) > 1]
    found = []
    for number in range(count if classes else 0):
        place = classes[number % len(classes)]
        anchor = stream.integer(0, len(segments) - 1)
        equal = [other for other, own in enumerate(labels) if own[place] == labels[anchor][place] and other != anchor]
        other = [other for other, own in enumerate(labels) if own[place] != labels[anchor][place]]
        if equal and other:
            chosen = (segments[anchor].text, segments[stream.choice(equal)].text, segments[stream.choice(other)].text)
            found.append(Triplet(*chosen, OBSERVATIONS[place], "printed"))
    return found
