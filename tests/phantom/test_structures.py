"""Structures are those of the image: the renderer's lungs and heart, and the boxes of the regions."""

from __future__ import annotations

import torch

from rightlung.lexicon import IMAGENOME_REGIONS, STRUCTURES
from rightlung.phantom.config import default_config
from rightlung.phantom.render import render
from rightlung.phantom.structures import structure_masks
from rightlung.phantom.study import study_scene
from tests.models.anatomy.boxes import box_iou, iou

SCENES = [study_scene(default_config(), 5, index) for index in range(10)]
MASKS, RENDERED = structure_masks(SCENES, 192), render(SCENES, 192)


def test_zones_are_disjoint_and_together_the_lung_and_the_heart_is_that_of_the_image() -> None:
    for side in (0, 1):
        zones = MASKS[:, 3 * side : 3 * side + 3]
        assert int(zones.sum(1).max()) == 1
        assert min(map(iou, zones.any(1), RENDERED.lungs[:, side])) > 0.98
    assert min(map(iou, MASKS[:, STRUCTURES.index("cardiac silhouette")], RENDERED.heart)) > 0.97


def test_structures_fill_the_boxes_of_their_regions() -> None:
    found = {}
    for number, name in enumerate(STRUCTURES):
        boxes = RENDERED.regions[:, IMAGENOME_REGIONS.index(name)]
        overlaps = []
        for mask, box in zip(MASKS[:, number], boxes, strict=True):
            rows, columns = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
            around = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / 192
            overlaps.append(box_iou(around.tolist(), box.tolist()))
        found[name] = sum(overlaps) / len(overlaps)
    assert all(value > 0.85 for name, value in found.items() if "lung" in name or "cardiac" in name), found
    assert all(value > 0.6 for value in found.values()), found


def test_nothing_lies_behind_the_border_of_the_exposed_field() -> None:
    scenes = (study_scene(default_config(), 5, index) for index in range(60))
    scene = next(one for one in scenes if max(one.exposure.collimated) > 0.05)
    left, top, right, bottom = (round(192 * border) for border in scene.exposure.collimated)
    hidden = torch.ones(192, 192, dtype=torch.bool)
    hidden[top : 192 - bottom, left : 192 - right] = False
    masks = structure_masks([scene], 192)[0]
    assert bool(hidden.any())
    assert bool(masks.any())
    assert not bool((masks & hidden).any())
