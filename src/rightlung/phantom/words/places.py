"""Words for the location of a lesion, with or without its side."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rightlung.core.keyed import RandomStream
from rightlung.phantom.scene import Lesion
from rightlung.phantom.words.bank import words
from rightlung.phantom.words.templates import expand

_LOBE = re.compile(r"lobe|\{abb|RML")
_LOBES = {"upper": "upper lobe", "mid": "middle lobe", "lower": "lower lobe"}


@dataclass(frozen=True, slots=True)
class Spot:
    """The words for a place: before a noun, after it, and as a part of the lung."""

    before: str
    after: str
    zone: str


def spot(lesion: Lesion, stream: RandomStream, sideless: bool, listed: bool = False) -> Spot:
    """Return words for the location of a sided lesion; ``listed`` selects the form used in lists of places."""
    kind = _spot_kind(lesion, stream)
    table = words()["where"][kind]
    zone_kind = lesion.region.split()[1]
    zones = {"upper": ("upper lobe", "upper lung", "upper zone"), "mid": ("mid lung", "mid zone"),
             "lower": ("lower lobe", "lower lung", "lung base")}.get(zone_kind, ("lung",))  # fmt: skip
    befores, afters = (table["as_alone"], table["at_alone"]) if sideless else (table["as"], table["at"])
    if lesion.form == "lobar":
        zones = (_LOBES[zone_kind],)
        befores, afters = ([text for text in texts if _LOBE.search(text)] for texts in (befores, afters))
    if listed:
        afters = [text for text in afters if text.startswith(("in the", "at the"))] or afters
    zone = stream.choice(zones)
    letter = "L" if lesion.side == "left" else "R"
    slots = {
        "side": lesion.side,
        "zone": zone if zone != "lung base" else "lower lung",
        "abbreviation": f"{letter}{zone_kind[0].upper()}L",
    }
    before, after = stream.choice(befores), stream.choice(afters)
    named = zone if sideless else f"{lesion.side} {zone}"
    return Spot(expand(before, stream, slots), expand(after, stream, slots), named)


def _spot_kind(lesion: Lesion, stream: RandomStream) -> str:
    if lesion.finding == "pleural effusion" or lesion.form == "tension":
        return "space"
    if lesion.form == "lateral":
        return "wall"
    zone = lesion.region.split()[1]
    across, down = lesion.place
    if lesion.form == "lobar":
        return "middle_lobe" if zone == "mid" else zone
    draw = stream.random()
    if lesion.side == "left" and zone == "lower" and across < 0.4 and draw < 0.6:
        return "retrocardiac"
    if zone == "mid" and across < 0.35 and draw < 0.5:
        return "perihilar"
    if across > 0.7 and draw < 0.35:
        return "peripheral"
    if zone == "mid" and down > 0.5 and draw > 0.6:
        return "middle_lobe" if lesion.side == "right" else "lingula"
    return zone
