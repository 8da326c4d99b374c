"""Assign sides and regions to the findings of a sentence."""

from __future__ import annotations

from typing import cast

from rightlung.lexicon.assertions import Assertion, Event
from rightlung.lexicon.findings import FindingSide
from rightlung.lexicon.regions import REGIONS
from rightlung.lexicon.rules import Kind, NamedPlace, Rules

Placed = tuple[FindingSide | None, tuple[str, ...]]

_PREPOSITIONS = frozenset({
    "in", "at", "on", "of", "within", "over", "along", "near", "overlying", "involving", "throughout", "to", "above",
    "below", "adjacent", "behind", "projecting",
})  # fmt: skip
_PAIRED_ZONES = {
    "lung": "lungs", "upper lung zone": "upper lung zones", "mid lung zone": "middle lung zones",
    "lower lung zone": "lower lung zones", "apical zone": "apical zones",
}  # fmt: skip
_DIVIDING = ("comma", "and", "or", "boundary", "exception", "verb")


def places_of(
    words: list[str], said: list[Assertion], events: list[Event], rules: Rules
) -> tuple[list[Placed], list[str]]:
    """Return side and regions of each assertion, in order, and all regions that the sentence names."""
    found = rules.places.find_all(words)
    if not found:
        return [(None, ())] * len(said), []
    told = [item for item in said if isinstance(item.meaning, str) or item.states]  # not "in the left lung" by itself
    divisions = [(start, kind) for start, _, (kind, _) in events if kind in _DIVIDING]
    own: list[list[tuple[int, NamedPlace]]] = [[] for _ in told]
    for start, end, place in found:
        owner = _owner(words, told, divisions, start, end)
        if owner is not None:
            own[owner].append((start, place))
    for index in range(1, len(told)):  # "left effusion and atelectasis"
        before = told[index - 1]
        if not own[index] and own[index - 1] and _joined(divisions, before.end, told[index].start):
            own[index] = list(own[index - 1])
    for index in range(len(told) - 2, -1, -1):  # "effusion and atelectasis on the left"
        after = told[index + 1]
        if not own[index] and _joined(divisions, told[index].end, after.start):
            own[index] = [entry for entry in own[index + 1] if entry[0] >= after.end]
    placed: dict[Assertion, Placed] = {}
    for item, entries in zip(told, own, strict=True):
        places = [place for _, place in entries]
        sides = {place.side for place in places} - {None}
        side = cast(FindingSide | None, "both" if len(sides) > 1 else next(iter(sides), None))
        placed[item] = side, tuple(_regions(places))
    named = _regions([place for _, _, place in found])
    return [placed.get(item, (None, ())) for item in said], named


def _owner(
    words: list[str], said: list[Assertion], divisions: list[tuple[int, Kind]], start: int, end: int
) -> int | None:
    before = after = None
    for index, item in enumerate(said):
        if item.start <= start < item.end or start <= item.start < end:
            return index
        if item.end <= start:
            before = index
        elif after is None:
            after = index
    if before is None or after is None:
        return after if before is None else before
    if any(kind in ("boundary", "exception") and said[before].end <= at <= start for at, kind in divisions):
        return after
    divided_at = max((at for at, _ in divisions if said[before].end <= at < start), default=said[before].end)
    if not _PREPOSITIONS.isdisjoint(words[divided_at:start]):
        return before
    divided_after = any(end <= at < said[after].start for at, _ in divisions)
    return before if divided_after and divided_at == said[before].end else after


def _joined(divisions: list[tuple[int, Kind]], start: int, end: int) -> bool:
    kinds = {kind for at, kind in divisions if start <= at < end}
    return bool(kinds) and kinds <= {"and", "or", "comma"}


def _regions(places: list[NamedPlace]) -> list[str]:
    """Return the regions; a zone takes the side next to it, and becomes the paired region without one or with both."""
    found: dict[str, None] = {}
    for index, place in enumerate(places):
        found.update(dict.fromkeys(place.regions))
        if place.zone is None:
            continue
        side = place.side or next(filter(None, (other.side for other in (*places[:index][::-1], *places[index:]))), "")
        if side in ("left", "right"):
            found[f"{side} {place.zone}"] = None
        elif place.zone in _PAIRED_ZONES:
            found[_PAIRED_ZONES[place.zone]] = None
        elif side == "both":
            found.update(dict.fromkeys((f"left {place.zone}", f"right {place.zone}")))
    return [name for name in found if name in REGIONS]
