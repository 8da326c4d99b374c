"""Anatomical regions: Chest ImaGenome's 29 and the 5 paired ones that ChEX adds (Müller et al., ECCV 2024).

``data/regions.toml`` holds the facts and their sources. Sides are the patient's. The hierarchy is our own and follows
anatomical containment; neither Chest ImaGenome nor ChEX publishes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, cast

from rightlung.core.errors import InputError, unknown_name
from rightlung.core.frozen import FrozenMapping
from rightlung.lexicon.data_files import DataTable, check_text, closure, read_data

RegionSide = Literal["left", "right", "none", "both"]

_FILE = "regions.toml"


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the frontal radiograph.

    ``side`` is ``none`` for the midline and for structures without a counterpart (the right atrium), ``both`` for
    paired regions. ``parts`` holds the two halves of a paired region. ``mirror`` is the name of the region on the other
    side, or its own.
    """

    name: str
    parent: str | None
    children: tuple[str, ...]
    side: RegionSide
    parts: tuple[str, ...]
    mirror: str
    spoken: str
    preposition: str
    aliases: tuple[str, ...]


def _mirror_name(name: str, names: Iterable[str]) -> str:
    side, _, rest = name.partition(" ")
    other = {"left": "right", "right": "left"}.get(side, side)
    return f"{other} {rest}" if f"{other} {rest}" in names else name


def build_regions(data: Mapping[str, object]) -> dict[str, Region]:
    """Build all regions from the tables ``regions`` and ``paired``; check that every name in them exists."""
    kinds = [DataTable(_FILE, kind, data.get(kind)) for kind in ("regions", "paired")]
    tables = {name: kind.table(name) for kind in kinds for name in kind.entries}
    parents = {name: table.text("parent", "") for name, table in tables.items()}
    regions = {}
    for name, table in tables.items():
        if parents[name] and parents[name] not in tables:
            table.fail("parent", f"names {parents[name]!r}, which does not exist")
        parts = table.texts("parts", tables)
        if (len(parts) == 2) != (name in kinds[1].entries):
            table.fail("parts", "a paired region has two parts and no other has any")
        side = "both" if parts else table.choice("side", "none", ("left", "right", "none"))
        regions[name] = Region(
            name=name,
            parent=parents[name] or None,
            children=tuple(child for child, parent in parents.items() if parent == name),
            side=cast(RegionSide, side),
            parts=parts,
            mirror=_mirror_name(name, tables),
            spoken=table.text("spoken", name),
            preposition=table.text("preposition", "in"),
            aliases=table.texts("aliases"),
        )
        table.done()
    return regions


REGIONS: Mapping[str, Region] = FrozenMapping(build_regions(read_data(_FILE)))
"""All 34 regions by name."""

IMAGENOME_REGIONS: tuple[str, ...] = tuple(name for name, found in REGIONS.items() if not found.parts)
"""The 29 regions of Chest ImaGenome, in its order."""

STRUCTURES: tuple[str, ...] = (
    *(f"{side} {zone} lung zone" for side in ("right", "left") for zone in ("upper", "mid", "lower")),
    "cardiac silhouette", "mediastinum", "right hemidiaphragm", "left hemidiaphragm", "right clavicle", "left clavicle",
)  # fmt: skip
"""The regions that are outlined, not only boxed: the three zones of a lung are disjoint and together the lung."""

PAIRED_REGIONS: tuple[str, ...] = tuple(name for name, found in REGIONS.items() if found.parts)
"""The 5 regions that ChEX adds, each a left and a right region together."""


@cache
def _names() -> dict[str, Region]:
    names = dict(REGIONS)
    for found in REGIONS.values():
        for alias in found.aliases:
            if names.setdefault(alias, found) is not found:
                DataTable(_FILE, found.name, {}).fail("aliases", f"{alias!r} is also a name of {names[alias].name!r}")
    return names


def region(name: str) -> Region:
    """Return a region by name or alias, in any case.

    A lobe is mapped to the zone over which most of it projects, which is an approximation:

    >>> region("Left Lower Lobe").name
    'left lower lung zone'
    """
    found = _names().get(" ".join(check_text(name, "a region's name").lower().replace("_", " ").split()))
    if found is None:
        raise unknown_name("region", name, REGIONS)
    return found


def mirror_region(name: str) -> str:
    """Return the name of the region on the other side; midline and paired regions are their own mirror image.

    >>> mirror_region("left apical zone"), mirror_region("trachea")
    ('right apical zone', 'trachea')
    """
    return region(name).mirror


def descendants(name: str) -> tuple[str, ...]:
    """Return every region inside this one, nearest first; a paired region contains its parts."""

    return closure([region(name).name], lambda outer: (*REGIONS[outer].parts, *REGIONS[outer].children))[1:]


def ancestors(name: str) -> tuple[str, ...]:
    """Return every region that contains this one, nearest first, including paired regions."""

    def outward(inner: str) -> list[str]:
        parent = REGIONS[inner].parent
        return ([parent] if parent else []) + [pair for pair in PAIRED_REGIONS if inner in REGIONS[pair].parts]

    return closure([region(name).name], outward)[1:]


LUNGS = ("left lung", "right lung")


def with_containing(regions: Iterable[str]) -> tuple[str, ...]:
    """Return regions, then the lungs that contain them; a paired region counts as its two parts.

    Chest ImaGenome's labels usually do the same: a label of a zone, hilum or costophrenic angle is also one of the lung
    ("That's the Wrong Lung!", figure 10 and table 5, with two exceptions). No other containers are added: an apical
    zone does not add the upper zone, nor the heart the mediastinum. Unknown names are kept.

    >>> with_containing(["left lower lung zone", "cardiac silhouette"])
    ('left lower lung zone', 'cardiac silhouette', 'left lung')
    """
    names = tuple(dict.fromkeys(part for name in regions for part in _containment(name)[0]))
    return tuple(dict.fromkeys([*names, *(lung for name in names for lung in _containment(name)[1])]))


@lru_cache(maxsize=4096)
def _containment(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the regions that a name stands for, and the lungs that contain them."""
    try:
        found = region(name)
    except InputError:
        return (name,), ()
    parts = found.parts or (name,)
    return parts, tuple(lung for part in parts for lung in LUNGS if lung in ancestors(part))
