"""Devices, markers and borders: on the right side, with tips where they are said to be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rightlung.core.box import Box
from rightlung.phantom.image.devices import DEVICES
from rightlung.phantom.image.marks import lettering
from rightlung.phantom.render import render
from rightlung.phantom.scene import Device
from tests.phantom.scenes import EXPOSURE, NORMAL, lesion, with_devices, with_lesions

SIZE = 128
TIPS = {"pacemaker": "right ventricle", "chest tube": "apex", "nasogastric tube": "stomach"}


@pytest.mark.parametrize("kind", sorted(DEVICES))
def test_a_device_brightens_its_mask_and_leaves_the_rest(kind: str) -> None:
    depth = 4.0 if kind == "endotracheal tube" else 0.9
    rendering = render([NORMAL, with_devices(Device(kind, "left", TIPS.get(kind, ""), depth, True, 3))], SIZE)
    change = rendering.images[1] - rendering.images[0]
    mask = rendering.device_masks[1][0]
    assert float(change[mask].mean()) > 0.02
    near = torch.nn.functional.max_pool2d(mask[None].float(), 25, 1, 12)[0] > 0
    assert float(change[~near].abs().mean()) < 0.005


def tip_of(device: Device) -> tuple[float, float, dict[str, Box]]:
    rendering = render([with_devices(device)], SIZE)
    x, y = rendering.device_tips[0][0].tolist()
    return x, y, rendering.region_boxes(0)


def test_an_endotracheal_tube_ends_as_far_above_the_carina_as_it_says_or_in_the_right_main_bronchus() -> None:
    for depth in (2.0, 5.0):
        x, y, regions = tip_of(Device("endotracheal tube", "none", "trachea", depth, True))
        assert (regions["carina"].centre[1] - y) * 33.5 == pytest.approx(depth, abs=0.3)
        assert regions["trachea"].x0 < x < regions["trachea"].x1
    x, y, regions = tip_of(Device("endotracheal tube", "none", "right main bronchus", -2.0, False))
    assert x < regions["carina"].centre[0] - 0.02
    assert y > regions["carina"].centre[1]


def test_tips_lie_where_they_are_said_to_lie() -> None:
    x, y, regions = tip_of(Device("nasogastric tube", "none", "stomach", 1.0, True))
    assert x > 0.5
    assert y > regions["left hemidiaphragm"].y0
    for side in ("left", "right"):
        x, y, regions = tip_of(Device("central venous line", side, "superior vena cava", 0.5, True))
        assert regions["svc"].x0 <= x <= regions["svc"].x1
        assert regions["svc"].y0 <= y <= regions["svc"].y1
        x, y, regions = tip_of(Device("chest tube", side, "apex", 0.5, True))
        assert regions[f"{side} upper lung zone"].x0 <= x <= regions[f"{side} upper lung zone"].x1
        assert (x > 0.5) == (side == "left")
    x, y, regions = tip_of(Device("pacemaker", "left", "right ventricle", 0.5, True))
    heart = regions["cardiac silhouette"]
    assert heart.x0 < x < heart.x1
    assert heart.y0 < y < heart.y1
    x, y, _ = tip_of(Device("sternal wires", "none", "", 0.5, True))
    assert math.isnan(x)
    assert math.isnan(y)


@pytest.mark.parametrize("letter", ["L", "R"])
def test_the_marker_stands_on_the_side_it_names(letter: str) -> None:
    for seed in range(6):
        plain = replace(NORMAL, exposure=replace(EXPOSURE, seed=seed))
        marked = replace(plain, exposure=replace(plain.exposure, marker=letter))  # type: ignore[arg-type]
        rendering = render([plain, marked], SIZE)
        changed = torch.nonzero(rendering.images[0] != rendering.images[1])
        assert len(changed) > 5
        on_right = changed[:, 1] >= SIZE // 2
        assert bool(on_right.all()) if letter == "L" else not bool(on_right.any())


def test_letters_differ_and_are_not_mirrored() -> None:
    stem = lettering("L", 14)
    assert stem[:, 0].all()
    assert not stem[0, -1]
    assert lettering("R", 14).sum() > stem.sum()


def test_borders_are_black_and_as_wide_as_said() -> None:
    exposure = replace(EXPOSURE, collimated=(0.125, 0.0625, 0.25, 0.0))
    image = render([replace(NORMAL, exposure=exposure)], SIZE).images[0]
    assert float(image[:, :16].max()) == 0.0
    assert float(image[:8].max()) == 0.0
    assert float(image[:, 96:].max()) == 0.0
    assert float(image[-1, 17:95].min()) > 0.0


def test_truth_ends_at_the_collimators_border() -> None:
    borders = replace(EXPOSURE, collimated=(0.375, 0.25, 0.0, 0.125))
    hidden = replace(
        with_lesions(lesion("mass", "right", place=(0.9, 0.5), size=3.0), lesion("mass", "left", size=5.0)),
        devices=(Device("chest tube", "right", "apex", 0.5, True, 3),),
    )
    rendering = render([replace(hidden, exposure=borders)], SIZE)
    outside, inside = rendering.lesion_masks[0]
    assert not outside.any()
    assert inside.any()
    assert math.isnan(float(rendering.device_tips[0][0, 0]))
    for mask in (*rendering.lungs[0], rendering.heart[0], rendering.device_masks[0][0], inside):
        assert not mask[:32].any()
        assert not mask[112:].any()
        assert not mask[:, :48].any()
    boxes = rendering.regions[0]
    assert float(boxes[:, 0].min()) >= 0.375
    assert float(boxes[:, 1].min()) >= 0.25
    assert float(boxes[:, 3].max()) <= 0.875
    assert bool((boxes[:, 2:] > boxes[:, :2]).all())


def test_less_dose_is_more_noise() -> None:
    deviations = []
    for dose in (2.0, 0.4):
        pair = [replace(NORMAL, exposure=replace(EXPOSURE, seed=seed, dose=dose)) for seed in (1, 2)]
        images = render(pair, SIZE).images
        difference = (images[0] - images[1])[100:124, 40:60]  # the liver, where nothing else differs
        deviations.append(float((difference[1:] - difference[:-1]).std()))
    assert deviations[1] > 1.5 * deviations[0]
