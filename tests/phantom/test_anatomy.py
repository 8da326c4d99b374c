"""Outlines and region boxes keep to anatomy for patients of every build."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rightlung.core.box import Box
from rightlung.lexicon import IMAGENOME_REGIONS, mirror_region
from rightlung.phantom.render import Rendering, render
from rightlung.phantom.scene import View
from tests.phantom.scenes import EXPOSURE, NORMAL, lesion, varied, with_lesions

SIZE = 128
PATIENTS = 8


@pytest.fixture(scope="module")
def patients() -> Rendering:
    return render(varied(PATIENTS), SIZE)


def bounds(mask: torch.Tensor) -> Box:
    rows = torch.nonzero(mask.any(1)).flatten()
    columns = torch.nonzero(mask.any(0)).flatten()
    size = mask.shape[0]
    return Box(int(columns[0]) / size, int(rows[0]) / size, int(columns[-1] + 1) / size, int(rows[-1] + 1) / size)


def test_lung_boxes_are_those_of_the_lung_masks(patients: Rendering) -> None:
    for index in range(PATIENTS):
        boxes = patients.region_boxes(index)
        for side, name in enumerate(("right lung", "left lung")):
            drawn, told = bounds(patients.lungs[index, side]), boxes[name]
            for edge in ("x0", "y0", "x1", "y1"):
                assert getattr(told, edge) == pytest.approx(getattr(drawn, edge), abs=0.025), (index, name, edge)


def test_the_cardiac_box_is_that_of_the_heart_mask(patients: Rendering) -> None:
    for index in range(PATIENTS):
        drawn, told = bounds(patients.heart[index]), patients.region_boxes(index)["cardiac silhouette"]
        for edge in ("x0", "y0", "x1", "y1"):
            assert getattr(told, edge) == pytest.approx(getattr(drawn, edge), abs=0.05), (index, edge)


def test_sides_are_the_patients(patients: Rendering) -> None:
    for index in range(PATIENTS):
        boxes = patients.region_boxes(index)
        for name in IMAGENOME_REGIONS:
            if name.startswith("right ") and mirror_region(name) != name:
                own, other = boxes[name], boxes[mirror_region(name)]
                assert own.x0 + own.x1 < other.x0 + other.x1, name


def test_zones_lie_on_top_of_one_another_and_inside_their_lung(patients: Rendering) -> None:
    for index in range(PATIENTS):
        boxes = patients.region_boxes(index)
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
    breaths = [replace(NORMAL, exposure=replace(EXPOSURE, inspiration=value)) for value in (0.2, 0.6, 1.0)]
    heights = render(breaths, SIZE).lungs.sum((1, 2, 3)).tolist()
    assert heights == sorted(heights)
    assert heights[2] > 1.1 * heights[0]


def test_rotation_moves_what_lies_in_front_the_other_way_in_an_ap_view() -> None:
    def heart_shift(view: View, rotation: float) -> float:
        exposures = [replace(EXPOSURE, view=view, rotation=angle) for angle in (0.0, rotation)]
        boxes = [
            render([replace(NORMAL, exposure=exposure)], SIZE).region_boxes(0)["cardiac silhouette"]
            for exposure in exposures
        ]
        return (boxes[1].x0 + boxes[1].x1 - boxes[0].x0 - boxes[0].x1) / 2

    assert heart_shift("PA", 10.0) < -0.01
    assert heart_shift("AP", 10.0) > 0.01


def test_a_turned_chest_is_darker_on_the_side_to_which_the_front_turns() -> None:
    def difference(rotation: float) -> float:
        rendering = render([replace(NORMAL, exposure=replace(EXPOSURE, rotation=rotation))], SIZE)
        right, left = (rendering.images[0][rendering.lungs[0, side]].mean() for side in range(2))
        return float(right - left)

    # In a PA view the front turns to the right when the left side comes near the detector.
    assert difference(10.0) < difference(0.0) - 0.02 < difference(-10.0) - 0.04


def test_ap_throws_the_heart_larger() -> None:
    views = [replace(NORMAL, exposure=replace(EXPOSURE, view=view)) for view in ("PA", "AP")]
    hearts = render(views, SIZE).heart.sum((1, 2))
    assert hearts[1] > 1.05 * hearts[0]


def test_scoliosis_bends_the_spine_to_the_side_it_names() -> None:
    straight = render([NORMAL], SIZE).region_boxes(0)["spine"]
    for form, sign in (("dextro", -1.0), ("levo", 1.0)):
        bent = render([with_lesions(lesion("scoliosis", "none", severity=0.9, form=form))], SIZE).region_boxes(0)[
            "spine"
        ]
        assert bent.x1 - bent.x0 > straight.x1 - straight.x0 + 0.03
        bulge = bent.x0 - straight.x0 if sign < 0 else bent.x1 - straight.x1
        assert bulge * sign > 0.03
