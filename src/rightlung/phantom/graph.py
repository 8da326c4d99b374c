"""The scene graph with Chest ImaGenome's names: for each region its box, and its present and absent attributes.

Of the 43 anatomical findings and 10 diseases, only those that a scene determines are included (`ATTRIBUTES`). An
attribute that is a matter of wording for some lesion (is pneumonia also a consolidation?) is neither yes nor no there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core.box import Box
from rightlung.core.study import Polarity
from rightlung.lexicon import FINDINGS, IMAGENOME_REGIONS, REGIONS, ancestors, descendants, label_map, label_set
from rightlung.lexicon.regions import with_containing
from rightlung.phantom.image.deformation import deformation_of
from rightlung.phantom.report import Statement
from rightlung.phantom.sampling import ALVEOLAR_EDEMA
from rightlung.phantom.scene import Lesion, Scene
from rightlung.phantom.truth import TORTUOUS_AORTA, known_findings, lesion_findings
from rightlung.phantom.words.lesions import lesion_regions as named_regions

ATTRIBUTES: tuple[str, ...] = (
    "atelectasis", "vascular congestion", "lung opacity", "mediastinal displacement", "pleural effusion",
    "enlarged cardiac silhouette", "rib fracture", "hernia", "airspace opacity", "hyperaeration",
    "pulmonary edema/hazy opacity", "lung lesion", "mass/nodule (not otherwise specified)", "tortuous aorta",
    "linear/patchy atelectasis", "consolidation", "pneumothorax", "calcified nodule", "scoliosis",
    "superior mediastinal mass/enlargement", "multiple masses/nodules", "mediastinal widening",
    "vascular redistribution", "costophrenic angle blunting", "lobar/segmental collapse", "hydropneumothorax",
    "pneumonia", "copd/emphysema", "granulomatous disease",
)  # fmt: skip
"""The attributes that a scene determines, by Chest ImaGenome's names."""

_SHIFTED = 0.8  # centimetres from which the mediastinum counts as displaced
_OF_MASK, _OF_REGION = 0.3, 0.1  # a lesion is in a region that contains this share of it, or of which it covers this
_LUNG_PARTS = tuple(name for name in IMAGENOME_REGIONS if "lungs" in ancestors(name))
_NODULES = ("nodule", "mass", "calcified granuloma")
_ZONES = tuple(name for name in _LUNG_PARTS if name.endswith(("lung", "zone")))
_ZONE_FINDINGS = ("rib fracture", "fracture", "copd or emphysema", "low lung volumes")
# Additional attributes of a lesion by finding and form, and those that it may or may not have by finding.
_ALSO: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("atelectasis", "plate-like"): ("linear/patchy atelectasis",),
    ("atelectasis", "lobar"): ("lobar/segmental collapse",),
    ("edema", ""): ("vascular congestion", "vascular redistribution"),
    ("emphysema", ""): ("hyperaeration",),
    ("lung opacity", ""): ("pulmonary edema/hazy opacity",),
    ("pneumonia", ""): ("airspace opacity",),
    ("calcified granuloma", ""): ("granulomatous disease",),
    ("enlarged cardiomediastinum", ""): ("mediastinal widening", "superior mediastinal mass/enlargement"),
}
_OPEN: Mapping[str, tuple[str, ...]] = {
    "pneumonia": ("consolidation",),
    "edema": ("airspace opacity",),
    "atelectasis": ("airspace opacity",),
    "lung opacity": ("airspace opacity", "pneumonia"),
    "pleural effusion": ("lung opacity", "atelectasis"),
    "mass": ("airspace opacity",),
}


@cache
def places(attribute: str) -> tuple[str, ...]:
    """Return the regions that can have an attribute."""
    if attribute == "hernia":  # the lexicon, which is about sentences, names none of the 29 regions
        return "cardiac silhouette", "mediastinum"
    return _finding_places(label_set("imagenome-53").findings[attribute])


def lesion_attributes(lesion: Lesion) -> set[str]:
    """Return the attributes of a lesion by itself."""
    labels = label_map("findings", "imagenome-53")
    found = {label for finding in lesion_findings(lesion) for label in labels.apply(finding) or ()}
    found.update(_ALSO.get((lesion.finding, ""), ()), _ALSO.get((lesion.finding, lesion.form), ()))
    if lesion.finding == "edema" and lesion.severity >= ALVEOLAR_EDEMA:
        found.add("airspace opacity")
    if lesion.finding == "pleural effusion" and lesion.form != "loculated":
        found.add("costophrenic angle blunting")
    return found & set(ATTRIBUTES)


def lesion_regions(lesion: Lesion, mask: NDArray[np.bool_], boxes: Mapping[str, Box]) -> set[str]:
    """Return the regions of a lesion: its own, those that contain it, and those that its mask reaches into."""
    named = REGIONS[lesion.region].parts or (lesion.region,)
    found = {name for region in named for name in (region, *ancestors(region))}
    inside = {name for region in named for name in descendants(region)} if lesion.side == "none" else set(_LUNG_PARTS)
    total = int(mask.sum())
    for name in inside - found:
        side = REGIONS[name].side
        if not total or (lesion.side in ("left", "right") and side != lesion.side):
            continue
        window = mask[boxes[name].pixel_slices((mask.shape[0], mask.shape[1]))]
        shared = int(window.sum())
        if shared >= _OF_MASK * total or shared >= _OF_REGION * window.size:
            found.add(name)
    return found & set(IMAGENOME_REGIONS)


def scene_graph(scene: Scene, boxes: Mapping[str, Box], reached: Sequence[set[str]]) -> dict[str, dict[str, Any]]:
    """Return region → ``{"box": [x0, y0, x1, y1], "yes": [attributes], "no": [attributes]}`` for all 29 regions."""
    yes: dict[str, set[str]] = {name: set() for name in IMAGENOME_REGIONS}
    unclear: dict[str, set[str]] = {name: set() for name in IMAGENOME_REGIONS}
    nodules = dict.fromkeys(IMAGENOME_REGIONS, 0)
    pleural: dict[str, set[str]] = {"left": set(), "right": set()}
    for lesion, regions in zip(scene.lesions, reached, strict=True):
        if lesion.side in pleural:
            pleural[lesion.side].add(lesion.finding)
        for name in regions:
            yes[name] |= lesion_attributes(lesion)
            unclear[name].update(_OPEN.get(lesion.finding, ()))
            nodules[name] += lesion.finding in _NODULES
    for name in IMAGENOME_REGIONS:
        if nodules[name] > 1:
            yes[name].add("multiple masses/nodules")
        together = pleural.get(REGIONS[name].side, set())
        if {"pneumothorax", "pleural effusion"} <= together and yes[name] & {"pneumothorax", "pleural effusion"}:
            yes[name].add("hydropneumothorax")
    if abs(deformation_of(scene).shift) >= _SHIFTED:
        yes["mediastinum"].add("mediastinal displacement")
    if scene.body.aorta >= TORTUOUS_AORTA:
        for name in places("tortuous aorta"):
            yes[name].add("tortuous aorta")
    return {
        name: {
            "box": list(boxes[name].as_tuple()),
            "yes": [attribute for attribute in _told(name) if attribute in yes[name]],
            "no": [attribute for attribute in _told(name) if attribute not in yes[name] | unclear[name]],
        }
        for name in IMAGENOME_REGIONS
    }


@cache
def _told(region: str) -> tuple[str, ...]:
    return tuple(attribute for attribute in ATTRIBUTES if region in places(attribute))


def triples(graph: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield region and attribute in Chest ImaGenome's notation, ``anatomicalfinding|yes|lung opacity``."""
    diseases = label_set("imagenome-10").labels
    for name, entry in graph.items():
        for answer in ("yes", "no"):
            for attribute in entry[answer]:
                kind = "disease" if attribute in diseases else "anatomicalfinding"
                yield name, f"{kind}|{answer}|{attribute}"


def region_findings(scene: Scene, reached: Sequence[set[str]]) -> dict[str, dict[str, Polarity]]:
    """Return the present and absent findings of each of the 29 regions, by the lexicon's names.

    A finding, and what it implies, is positive in the regions of its lesions (``reached``), negative in the other
    regions where it can be, and unknown elsewhere.
    """
    found: dict[str, dict[str, Polarity]] = {}
    for name in IMAGENOME_REGIONS:
        present = {
            finding
            for lesion, regions in zip(scene.lesions, reached, strict=True)
            if name in regions
            for finding in lesion_findings(lesion)
        }
        if scene.body.aorta >= TORTUOUS_AORTA and name in places("tortuous aorta"):
            present.add("tortuous aorta")
        found[name] = {
            finding: Polarity.POSITIVE if finding in present else Polarity.NEGATIVE
            for finding in known_findings()
            if finding in present or name in _finding_places(finding)
        }
    return found


_REGION_ROWS = {name: row for row, name in enumerate(IMAGENOME_REGIONS)}


def region_labels(scene: Scene, reached: Sequence[set[str]], findings: Sequence[str]) -> NDArray[np.float32]:
    """Return `region_findings` as numbers (29, findings): 1 (present), 0 (absent) or NaN (unknown)."""
    labels = _absent_labels(tuple(findings)).copy()
    columns = {name: column for column, name in enumerate(findings)}
    for lesion, regions in zip(scene.lesions, reached, strict=True):
        rows = [_REGION_ROWS[name] for name in regions]
        for name in lesion_findings(lesion) & columns.keys():
            labels[rows, columns[name]] = 1.0
    if scene.body.aorta >= TORTUOUS_AORTA and "tortuous aorta" in columns:
        labels[[_REGION_ROWS[name] for name in places("tortuous aorta")], columns["tortuous aorta"]] = 1.0
    return labels


@cache
def _absent_labels(findings: tuple[str, ...]) -> NDArray[np.float32]:
    known = set(known_findings())
    absent = [[name in known and region in _finding_places(name) for name in findings] for region in IMAGENOME_REGIONS]
    return np.where(np.array(absent, dtype=bool).reshape(len(IMAGENOME_REGIONS), -1), np.float32(0), np.float32(np.nan))


@cache
def _finding_places(finding: str) -> tuple[str, ...]:
    if finding in ("support devices", "no finding"):
        return ()
    if finding in _ZONE_FINDINGS:
        return _ZONES
    return tuple(name for name in IMAGENOME_REGIONS if FINDINGS[finding].can_lie_in(name))


def finding_locations(scene: Scene, statement: Statement, reached: Sequence[set[str]]) -> dict[str, tuple[str, ...]]:
    """Return the regions of each finding that a sentence says is, or may be, present.

    These are the sentence's regions, and the lungs around them, where a lesion of the finding is. A finding that is not
    a lesion (a device, an aged aorta) has the regions that no lesion accounts for. Other findings have none of their
    own: they apply to all regions of the sentence.
    """
    spoken = with_containing(statement.regions)
    placed = {
        number: {*with_containing(named_regions([scene.lesions[number]])), *reached[number]}
        for number in statement.lesions
    }
    located: dict[str, tuple[str, ...]] = {}
    for finding, polarity in statement.findings.items():
        if polarity is Polarity.NEGATIVE or not placed:
            continue
        own = [placed[number] for number in placed if finding in lesion_findings(scene.lesions[number])]
        inside = set().union(*(own or placed.values()))
        regions = tuple(name for name in spoken if (name in inside) == bool(own))
        if regions:
            located[finding] = regions
    return located
