"""The scene graph says of each region what the lesions make true of it, in Chest ImaGenome's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rightlung.core import Box, Polarity
from rightlung.lexicon import IMAGENOME_REGIONS, label_set
from rightlung.phantom.config import default_config
from rightlung.phantom.graph import ATTRIBUTES, finding_locations, lesion_regions, region_findings, scene_graph, triples
from rightlung.phantom.render import render
from rightlung.phantom.report import Statement
from rightlung.phantom.sampling import sample_scene
from rightlung.phantom.scene import Lesion, Scene
from rightlung.phantom.study import make_studies

BLANK = replace(sample_scene(default_config(), 1, 0), lesions=(), devices=())
BLANK = replace(BLANK, body=replace(BLANK.body, aorta=0.1))


def graph_of(*lesions: Lesion) -> dict[str, Any]:
    scene: Scene = replace(BLANK, lesions=lesions)
    rendering = render([scene], 64)
    boxes, masks = rendering.region_boxes(0), rendering.lesion_masks[0].numpy()
    reached = [lesion_regions(lesion, mask, boxes) for lesion, mask in zip(lesions, masks, strict=True)]
    return scene_graph(scene, boxes, reached)


def regions_with(graph: dict[str, Any], attribute: str, answer: str = "yes") -> set[str]:
    return {name for name, entry in graph.items() if attribute in entry[answer]}


def test_every_attribute_is_one_of_the_53_and_every_region_one_of_the_29() -> None:
    assert set(ATTRIBUTES) <= set(label_set("imagenome-53").labels)
    graph = graph_of()
    assert tuple(graph) == IMAGENOME_REGIONS
    for entry in graph.values():
        Box.from_sequence(entry["box"])
        assert entry["yes"] == []


def test_a_consolidation_is_in_its_zone_and_its_lung_and_not_in_the_other() -> None:
    graph = graph_of(Lesion("consolidation", "left", "left lower lung zone", (0.5, 0.8), 5.0, 0.7, seed=1))
    for attribute in ("consolidation", "airspace opacity", "lung opacity"):
        assert {"left lower lung zone", "left lung"} <= regions_with(graph, attribute)
        assert not any(name.startswith("right") for name in regions_with(graph, attribute))
        assert {"right lung", "right lower lung zone", "left apical zone"} <= regions_with(graph, attribute, "no")
    assert "left lung" in regions_with(graph, "pneumothorax", "no")


def test_edema_reaches_into_the_zones_of_both_lungs() -> None:
    graph = graph_of(Lesion("edema", "both", "lungs", (0.5, 0.5), 0.0, 0.8, "alveolar", 1))
    found = regions_with(graph, "pulmonary edema/hazy opacity")
    assert {"right lung", "left lung", "right mid lung zone", "left mid lung zone"} <= found
    assert found == regions_with(graph, "vascular congestion")


def test_air_and_fluid_on_one_side_are_a_hydropneumothorax_there_alone() -> None:
    air = Lesion("pneumothorax", "right", "right apical zone", (0.5, 0.05), 0.0, 0.4, "apical", 1)
    other = replace(FLUID, side="left", region="left costophrenic angle")
    assert "right lung" in regions_with(graph_of(air, FLUID), "hydropneumothorax")
    assert regions_with(graph_of(air, other), "hydropneumothorax") == set()
    assert regions_with(graph_of(FLUID), "costophrenic angle blunting") == {"right costophrenic angle"}


def test_tension_displaces_the_mediastinum() -> None:
    air = Lesion("pneumothorax", "left", "left lung", (0.85, 0.4), 0.0, 0.9, "tension", 1)
    assert regions_with(graph_of(air), "mediastinal displacement") == {"mediastinum"}
    assert regions_with(graph_of(replace(air, form="lateral")), "mediastinal displacement") == set()


def test_two_nodules_are_multiple_only_where_both_are() -> None:
    one = Lesion("nodule", "right", "right upper lung zone", (0.5, 0.2), 2.0, 0.6, "", 1)
    two = replace(one, region="right lower lung zone", place=(0.5, 0.8), seed=2)
    far = replace(two, side="left", region="left lower lung zone")
    assert regions_with(graph_of(one, two), "multiple masses/nodules") == {"right lung"}
    assert regions_with(graph_of(one, far), "multiple masses/nodules") == set()


@pytest.mark.parametrize(
    ("finding", "region", "attribute"),
    [
        ("cardiomegaly", "cardiac silhouette", "enlarged cardiac silhouette"),
        ("scoliosis", "spine", "scoliosis"),
        ("hiatal hernia", "cardiac silhouette", "hernia"),
        ("enlarged cardiomediastinum", "upper mediastinum", "mediastinal widening"),
    ],
)
def test_what_lies_in_the_middle_is_told_there(finding: str, region: str, attribute: str) -> None:
    form = "dextro" if finding == "scoliosis" else ""
    graph = graph_of(Lesion(finding, "none", region, (0.5, 0.5), 5.0, 0.6, form, 1))
    assert region in regions_with(graph, attribute)
    assert not any("lung" in name for name in regions_with(graph, attribute))


def test_no_attribute_is_both_yes_and_no_and_truth_agrees_with_the_labels() -> None:
    for study in make_studies(default_config(), 9, range(12), 64):
        graph = study.extra["scene_graph"]
        for entry in graph.values():
            assert not set(entry["yes"]) & set(entry["no"])
        for attribute, finding in (
            ("pleural effusion", "pleural effusion"),
            ("pneumothorax", "pneumothorax"),
            ("enlarged cardiac silhouette", "cardiomegaly"),
            ("rib fracture", "rib fracture"),
            ("lung opacity", "lung opacity"),
        ):
            assert bool(regions_with(graph, attribute)) == (study.findings[finding] == "positive"), study.id


def test_triples_are_written_as_the_data_set_writes_them() -> None:
    graph = graph_of(Lesion("pneumonia", "left", "left mid lung zone", (0.5, 0.5), 5.0, 0.7, seed=3))
    found = set(triples(graph))
    assert ("left mid lung zone", "disease|yes|pneumonia") in found
    assert ("left mid lung zone", "anatomicalfinding|yes|lung opacity") in found
    assert ("right lung", "anatomicalfinding|no|lung opacity") in found
    assert not any(name == "left mid lung zone" and "consolidation" in text for name, text in found)


def test_a_lesion_outside_the_picture_still_counts_in_its_own_region() -> None:
    scene = replace(BLANK, lesions=(Lesion("nodule", "left", "left apical zone", (0.5, 0.1), 1.0, 0.5, seed=1),))
    boxes = render([scene], 64).region_boxes(0)
    graph = scene_graph(scene, boxes, [lesion_regions(scene.lesions[0], np.zeros((64, 64), dtype=bool), boxes)])
    assert regions_with(graph, "lung lesion") == {"left apical zone", "left upper lung zone", "left lung"}


NODULE = Lesion("nodule", "left", "left upper lung zone", (0.5, 0.2), 2.0, 0.6, "", 1)
FLUID = Lesion("pleural effusion", "right", "right costophrenic angle", (0.8, 0.93), 0.0, 0.4, "", 2)
REACHED = [{"left upper lung zone", "left lung"}, {"right costophrenic angle", "right lung", "right lower lung zone"}]


def test_each_finding_of_a_sentence_has_the_regions_of_its_own_lesions() -> None:
    findings = {
        "nodule": Polarity.POSITIVE, "pleural effusion": Polarity.UNCERTAIN, "pneumothorax": Polarity.NEGATIVE
    }  # fmt: skip
    text, regions = "Left nodule, possible right effusion, no pneumothorax.", (NODULE.region, FLUID.region)
    statement = Statement(text, regions, findings, (0, 1))
    scene = replace(BLANK, lesions=(NODULE, FLUID))
    assert finding_locations(scene, statement, REACHED) == {
        "nodule": ("left upper lung zone", "left lung"),
        "pleural effusion": ("right costophrenic angle", "right lung"),  # not the lower zone: nobody speaks of it
    }
    both = {"nodule": Polarity.POSITIVE, "support devices": Polarity.POSITIVE}
    tube = replace(statement, regions=(NODULE.region, "carina"), findings=both, lesions=(0,), devices=(0,))
    assert finding_locations(scene, tube, REACHED)["support devices"] == ("carina",)
    alone = replace(tube, lesions=(), findings={"support devices": Polarity.POSITIVE})
    assert finding_locations(scene, alone, REACHED) == {}


def test_a_lesion_is_in_the_regions_it_reaches_and_absent_from_the_others_it_could_lie_in() -> None:
    found = region_findings(replace(BLANK, lesions=(NODULE, FLUID)), REACHED)
    assert tuple(found) == IMAGENOME_REGIONS
    assert {name for name, told in found.items() if told.get("nodule") == "positive"} == REACHED[0]
    assert {name for name, told in found.items() if told.get("pleural effusion") == "positive"} == REACHED[1]
    assert found["left lung"]["lung lesion"] == "positive"  # which a nodule is
    assert found["right lung"]["nodule"] == "negative"
    assert found["left upper lung zone"]["rib fracture"] == "negative"
    assert "nodule" not in found["spine"]  # can not lie there: nothing is said
    assert not any("support devices" in told or "no finding" in told for told in found.values())


def test_the_regions_of_a_study_agree_with_its_findings_and_sentences() -> None:
    several = 0
    for study in make_studies(default_config(), 9, range(24), 64):
        there = {name for told in study.region_findings.values() for name, said in told.items() if said == "positive"}
        findings = {name for name, said in study.findings.items() if said == "positive"}
        assert there == findings - {"support devices", "no finding"}
        for phrase in study.phrases:
            assert set(phrase.locations) <= set(phrase.findings)
            several += len(set(phrase.locations.values())) > 1
    assert several
