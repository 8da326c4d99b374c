"""Convert Chest ImaGenome's scene graphs to phrases, regions and findings.

A graph has objects (a region's name and its box in pixels of the original image) and, for each region, the sentences
that mention it with their attributes, ``category|yes|name`` or ``category|no|name``: silver graphs as JSON, gold ones
as tables. ``docs/sources.md`` describes the conversion. In addition:

- Boxes of objects other than the 29 regions (graphs have up to 36) go to ``extra``.
- A finding of the study is positive if any region has it, else negative if any denies it, never uncertain.
- ``nlp|yes|normal`` and ``nlp|yes|abnormal`` describe a region, so a study does not have them. Denied ones
  (``nlp|no|…``) are only in ``extra["scene_graph"]``.
- ``extra["scene_graph"]`` has each region's box and attributes: ``yes`` and ``no`` for findings and diseases, ``other``
  for the rest (devices, tubes, texture, technique), written ``category|yes|name``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rightlung.core import Box, InputError, Phrase, Polarity
from rightlung.core.checks import Size
from rightlung.lexicon.labels import label_map, label_set
from rightlung.lexicon.regions import IMAGENOME_REGIONS
from rightlung.studies.readers.dataset import grouped
from rightlung.studies.rows import FieldError
from rightlung.studies.tables import box_kind, pixel_box

FINDING_CATEGORIES = ("anatomicalfinding", "disease")
STATES = ("normal", "abnormal")
"""What the category ``nlp`` says about a region as a whole."""
OTHER_OBJECTS = frozenset({
    "left cardiophrenic angle", "right cardiophrenic angle", "left cardiac silhouette", "right cardiac silhouette",
    "descending aorta", "left upper abdomen", "right upper abdomen", "left chest wall", "right chest wall",
    "left breast", "right breast", "left shoulder", "right shoulder", "left arm", "right arm", "neck", "unknown",
})  # fmt: skip
"""Published objects that are not among the 29 (silver_dataset; semantics/objects_extracted_from_reports_v1.txt)."""


@dataclass(frozen=True, slots=True)
class Relation:
    """One attribute of one region in one sentence."""

    sentence_id: str
    sentence: str
    region: str
    category: str
    affirmed: bool
    name: str


@dataclass(slots=True)
class Graph:
    """A scene graph with boxes ``(x0, y0, x1, y1)`` in pixels of the original image."""

    objects: dict[str, tuple[float, ...]] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    sentences: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Text and regions by sentence id, including sentences that give a region no attribute."""
    faults: list[FieldError] = field(default_factory=list)
    """What could not be read."""
    about: dict[str, Any] = field(default_factory=dict)

    def add_sentence(self, sentence_id: str, text: str, region: str) -> None:
        """Record that a sentence mentions a region."""
        regions = self.sentences.setdefault(sentence_id, (text, []))[1]
        if region not in regions:
            regions.append(region)


def parse_graph(data: bytes) -> Graph:
    """Parse a silver scene graph, ``IMAGE_SceneGraph.json``; faults inside it are collected."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("objects"), list):
        raise InputError("is not a scene graph: it has no list of objects")
    graph = Graph(
        about={name: tree.get(name) for name in ("viewpoint", "patient_id", "study_id", "gender", "age_decile")}
    )
    for number, entry in enumerate(tree["objects"]):
        name = _region_name(entry)
        if name is None or (edges := _edges(entry)) is None:
            graph.faults.append(FieldError(f"objects[{number}]", "has no bbox_name, or no original_x1 to original_y2"))
        else:
            graph.objects[name] = edges
    entries = tree.get("attributes", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        name = _region_name(entry)
        if name is None:
            graph.faults.append(FieldError(f"attributes[{number}].bbox_name", "is missing"))
        else:
            _add_attributes(graph, name, entry, f"attributes[{number}]")
    return graph


def _region_name(entry: object) -> str | None:
    name = entry.get("bbox_name") if isinstance(entry, dict) else None
    return name.strip().lower() if isinstance(name, str) and name.strip() else None


def _edges(entry: Mapping[str, Any]) -> tuple[float, ...] | None:
    values = [entry.get(f"original_{edge}") for edge in ("x1", "y1", "x2", "y2")]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    return tuple(float(value) for value in values)  # type: ignore[arg-type]


def _add_attributes(graph: Graph, region: str, entry: Mapping[str, Any], place: str) -> None:
    values = (entry.get(name) for name in ("phrases", "phrase_IDs", "attributes"))
    texts, ids, attributes = (value if isinstance(value, list) else [] for value in values)
    for number, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            graph.faults.append(FieldError(f"{place}.phrases[{number}]", "is not a string"))
            continue
        sentence = " ".join(text.split())  # it still has the report's hard line ends
        sentence_id = str(ids[number]) if number < len(ids) else sentence
        graph.add_sentence(sentence_id, sentence, region)
        for attribute in attributes[number] if number < len(attributes) else ():
            parts = attribute.split("|", 2) if isinstance(attribute, str) else []
            if len(parts) != 3 or parts[1] not in ("yes", "no"):
                message = f"must be category|yes|name; got {attribute!r}"
                graph.faults.append(FieldError(f"{place}.attributes[{number}]", message))
                continue
            graph.relations.append(
                Relation(sentence_id, sentence, region, parts[0], parts[1] == "yes", parts[2].strip())
            )


def study_fields(graph: Graph, size: Size) -> dict[str, Any]:
    """Return a study's fields; ``size`` is the original image's. Faults are added to ``graph.faults``."""
    regions: dict[str, Box] = {}
    others: dict[str, tuple[float, ...]] = {}
    for name, edges in graph.objects.items():
        if name not in IMAGENOME_REGIONS and name not in OTHER_OBJECTS:
            message = f"{name!r} is not a region of Chest ImaGenome; its box is kept in extra only"
            graph.faults.append(FieldError("bbox_name", message))
        try:
            box = _inside(edges, size)
        except InputError as error:
            graph.faults.append(FieldError(f"objects {name!r}", str(error), box_kind(error)))
            continue
        if name in IMAGENOME_REGIONS:
            regions[name] = box
        else:
            others[name] = box.as_tuple()
    extra: dict[str, Any] = {"scene_graph": _plain_graph(graph, regions)}
    if others:
        extra["other_objects"] = others
    if graph.about.get("age_decile"):
        extra["age_decile"] = str(graph.about["age_decile"])
    return {
        "sex": graph.about.get("gender") or None,
        "phrases": tuple(_phrases(graph, regions)),
        "regions": regions,
        "findings": {name: said for name, said in _findings(graph.relations).items() if name not in STATES},
        "extra": extra,
        "region_findings": _region_findings(graph.relations),
    }


def _inside(edges: Sequence[float], size: Size) -> Box:
    """Return a region's box, clipped to the image: the original pipeline lets lungs and abdomen extend beyond it.

    If more than half of it is outside, it belongs to an image of another size, which is a fault.
    """
    try:
        return pixel_box(edges, size)
    except InputError:
        (x0, y0, x1, y1), (height, width) = edges, size
        cut = Box.clipped(x0 / width, y0 / height, x1 / width, y1 / height)
        if cut is None or cut.area * width * height < (x1 - x0) * (y1 - y0) / 2:
            raise
        return cut


def _phrases(graph: Graph, regions: Mapping[str, Box]) -> Iterable[Phrase]:
    by_sentence = grouped((relation.sentence_id, relation) for relation in graph.relations)
    for sentence_id, (text, named) in sorted(graph.sentences.items(), key=lambda item: _sentence_order(item[0])):
        within = [name for name in named if name in IMAGENOME_REGIONS]
        told = _region_findings(by_sentence.get(sentence_id, ()))
        findings = _findings(by_sentence.get(sentence_id, ()))
        yield Phrase(
            text,
            boxes=tuple(regions[name] for name in within if name in regions),
            regions=tuple(within),
            findings=findings,
            locations={
                finding: places
                for finding, polarity in findings.items()
                if (places := tuple(name for name in within if told.get(name, {}).get(finding) is polarity))
            },
        )


def _sentence_order(sentence_id: str) -> tuple[float, str]:
    """Return a sort key that orders sentence ids, ``50414267|10``, as in the report."""
    number = sentence_id.rpartition("|")[2]
    try:
        return float(number), sentence_id
    except ValueError:
        return float("inf"), sentence_id


def _findings(relations: Iterable[Relation]) -> dict[str, Polarity]:
    names = label_map("imagenome-53", "findings")
    known = label_set("imagenome-53").findings
    found: dict[str, Polarity] = {}
    for relation in relations:
        meant: Sequence[str] = ()
        if relation.category in FINDING_CATEGORIES and relation.name in known:
            meant = names.apply(relation.name) or ()
        elif relation.category == "nlp" and relation.affirmed and relation.name in STATES:
            meant = (relation.name,)
        for finding in meant:
            if relation.affirmed:
                found[finding] = Polarity.POSITIVE
            else:
                found.setdefault(finding, Polarity.NEGATIVE)
    return found


def _region_findings(relations: Iterable[Relation]) -> dict[str, dict[str, Polarity]]:
    by_region = grouped((one.region, one) for one in relations if one.region in IMAGENOME_REGIONS)
    return {region: found for region, some in by_region.items() if (found := _findings(some))}


def _plain_graph(graph: Graph, regions: Mapping[str, Box]) -> dict[str, Any]:
    plain: dict[str, dict[str, Any]] = {
        name: {"box": list(box.as_tuple()), "yes": [], "no": [], "other": []} for name, box in regions.items()
    }
    for relation in graph.relations:
        entry = plain.setdefault(relation.region, {"box": None, "yes": [], "no": [], "other": []})
        answer = "yes" if relation.affirmed else "no"
        if relation.category in FINDING_CATEGORIES:
            kind, value = answer, relation.name
        else:
            kind, value = "other", f"{relation.category}|{answer}|{relation.name}"
        if value not in entry[kind]:
            entry[kind].append(value)
    return plain
