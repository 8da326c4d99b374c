"""Outlines and region boxes keep to anatomy for patients of every build."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rightlung.core import Box, Mask
from rightlung.lexicon import IMAGENOME_REGIONS, mirror_region
from rightlung.phantom.render import Rendering, render
from rightlung.phantom.scene import Scene
from tests.phantom.scenes import EXPOSURE, NORMAL, lesion, varied, with_lesions

SIZE = 128
PATIENTS = 8


@pytest.fixture(scope="module")
def patients() -> Rendering:
    return render(varied(PATIENTS), SIZE)


def bounds(mask: torch.Tensor) -> Box:
    box = Mask(mask.numpy()).box()
    assert box is not None
    return box


def exposed(**changes: Any) -> Scene:
    """Return the normal patient, taken otherwise."""
    return replace(NORMAL, exposure=replace(EXPOSURE, **changes))


def test_boxes_of_lungs_and_heart_are_those_of_their_masks(patients: Rendering) -> None:
    for index in range(PATIENTS):
        (right, left), heart = patients.lungs[index], patients.heart[index]
        masks = (("right lung", right, 0.025), ("left lung", left, 0.025), ("cardiac silhouette", heart, 0.05))
        for name, mask, error in masks:
            told = patients.region_boxes(index)[name]
            assert told.as_tuple() == pytest.approx(bounds(mask).as_tuple(), abs=error), (index, name)


def test_sides_are_the_patients_and_zones_lie_on_top_of_one_another_inside_their_lung(patients: Rendering) -> None:
    for index in range(PATIENTS):
        boxes = patients.region_boxes(index)
        for name in IMAGENOME_REGIONS:
            if name.startswith("right ") and mirror_region(name) != name:
                assert boxes[name].centre[0] < boxes[mirror_region(name)].centre[0], name
        for side in ("right", "left"):
            lung = boxes[f"{side} lung"]
            upper, mid, lower = (boxes[f"{side} {zone} lung zone"] for zone in ("upper", "mid", "lower"))
            assert upper.y1 <= mid.y0 + 0.03 <= mid.y1 <= lower.y0 + 0.06
            assert boxes[f"{side} apical zone"].y1 < upper.y1
            for part in (upper, mid, lower):
                assert lung.x0 - 0.002 <= part.x0 < part.x1 <= lung.x1 + 0.002
                assert lung.y0 - 0.002 <= part.y0 < part.y1 <= lung.y1 + 0.002


def test_the_right_dome_is_the_higher_one(patients: Rendering) -> None:
    straight = [replace(scene, exposure=replace(scene.exposure, tilt=0.0)) for scene in varied(PATIENTS)]
    rendering = render(straight, SIZE)
    for index in range(PATIENTS):
        boxes = rendering.region_boxes(index)
        assert 0.0 < boxes["left hemidiaphragm"].y0 - boxes["right hemidiaphragm"].y0 < 0.1


def test_lungs_and_heart_do_not_overlap(patients: Rendering) -> None:
    assert not (patients.lungs[:, 0] & patients.lungs[:, 1]).any()
    assert not (patients.lungs.any(1) & patients.heart).any()


def test_a_deep_breath_lowers_the_domes() -> None:
    heights = render([exposed(inspiration=value) for value in (0.2, 0.6, 1.0)], SIZE).lungs.sum((1, 2, 3)).tolist()
    assert heights == sorted(heights)
    assert heights[2] > 1.1 * heights[0]


def test_an_ap_view_throws_the_heart_larger_and_rotation_moves_it_the_other_way() -> None:
    for view, sign in (("PA", -1.0), ("AP", 1.0)):
        turned = render([exposed(view=view, rotation=angle) for angle in (0.0, 10.0)], SIZE)
        straight, moved = (turned.region_boxes(index)["cardiac silhouette"].centre[0] for index in range(2))
        assert sign * (moved - straight) > 0.01
    hearts = render([exposed(view=view) for view in ("PA", "AP")], SIZE).heart.sum((1, 2))
    assert hearts[1] > 1.05 * hearts[0]


def test_a_turned_chest_is_darker_on_the_side_to_which_the_front_turns() -> None:
    def difference(rotation: float) -> float:
        rendering = render([exposed(rotation=rotation)], SIZE)
        right, left = (rendering.images[0][rendering.lungs[0, side]].mean() for side in range(2))
        return float(right - left)

    # In a PA view the front turns to the right when the left side comes near the detector.
    assert difference(10.0) < difference(0.0) - 0.02 < difference(-10.0) - 0.04


def test_scoliosis_bends_the_spine_to_the_side_it_names() -> None:
    straight = render([NORMAL], SIZE).region_boxes(0)["spine"]
    for form, sign in (("dextro", -1.0), ("levo", 1.0)):
        curved = with_lesions(lesion("scoliosis", "none", severity=0.9, form=form))
        bent = render([curved], SIZE).region_boxes(0)["spine"]
        assert bent.x1 - bent.x0 > straight.x1 - straight.x0 + 0.03
        bulge = bent.x0 - straight.x0 if sign < 0 else bent.x1 - straight.x1
        assert bulge * sign > 0.03
