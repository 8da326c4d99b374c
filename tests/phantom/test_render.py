from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import FINDING_ORDER
from rightlung.phantom.image import anatomy, skeleton
from rightlung.phantom.render import Rendering, render
from rightlung.phantom.scene import Device, Scene
from tests.phantom.scenes import EXPOSURE, NORMAL, lesion, varied, with_devices, with_lesions

SIZE = 128


@pytest.fixture(scope="module")
def normal() -> Rendering:
    return render([NORMAL], SIZE)


def with_one(finding: str, *where: Any, **others: Any) -> Rendering:
    """Render the normal patient with one finding."""
    return render([with_lesions(lesion(finding, *where, **others))], SIZE)


def centre(mask: Tensor) -> tuple[float, float]:
    rows, columns = torch.nonzero(mask, as_tuple=True)
    return float(columns.float().mean() + 0.5) / mask.shape[1], float(rows.float().mean() + 0.5) / mask.shape[0]


def everything() -> Scene:
    return replace(
        with_lesions(
            lesion("edema", "both"), lesion("nodule", size=1.5), lesion("nodule", "left", size=2.0),
            lesion("pleural effusion", "left"), lesion("pneumothorax", form="apical"), lesion("calcified granuloma"),
            lesion("rib fracture", "left", form="rib 6"), lesion("consolidation", size=5.0, place=(0.5, 0.8)),
        ),
        devices=(
            Device("pacemaker", "left", "right ventricle", 0.5, True, 1),
            Device("nasogastric tube", "none", "stomach", 0.9, True, 2),
        ),
    )  # fmt: skip


def test_shapes_and_types() -> None:
    rendering = render([NORMAL, everything()], 96)
    assert rendering.images.shape == (2, 96, 96)
    assert rendering.images.dtype == torch.float32
    assert 0.0 <= float(rendering.images.min()) < float(rendering.images.max()) <= 1.0
    assert rendering.lungs.shape == (2, 2, 96, 96)
    assert rendering.lungs.dtype == rendering.heart.dtype == torch.bool
    assert [tuple(masks.shape) for masks in rendering.lesion_masks] == [(0, 96, 96), (8, 96, 96)]
    assert [tuple(masks.shape) for masks in rendering.device_masks] == [(0, 96, 96), (2, 96, 96)]
    assert rendering.regions.shape == (2, len(IMAGENOME_REGIONS), 4)
    assert all(mask.any() for mask in (*rendering.lesion_masks[1], *rendering.device_masks[1]))


def test_a_scene_is_the_same_alone_and_in_any_batch() -> None:
    scenes = [*varied(9), everything()]
    together = render(scenes, SIZE)
    backwards = render(scenes[::-1], SIZE)
    for index, scene in enumerate(scenes):
        alone = render([scene], SIZE)
        assert torch.equal(alone.images[0], backwards.images[len(scenes) - 1 - index])
        for name in ("images", "lungs", "regions", "lesion_masks", "device_masks"):
            assert torch.equal(getattr(alone, name)[0], getattr(together, name)[index]), name


def test_seeds_change_what_they_are_seeds_of(normal: Rendering) -> None:
    other_noise = render([replace(NORMAL, exposure=replace(EXPOSURE, seed=6))], SIZE)
    other_body = render([replace(NORMAL, body=replace(NORMAL.body, seed=12))], SIZE)
    assert torch.equal(normal.heart, other_noise.heart)
    assert not torch.equal(normal.images, other_noise.images)
    assert float((normal.images - other_noise.images).abs().mean()) < 0.02
    assert not torch.equal(normal.lungs, other_body.lungs)


def test_the_same_anatomy_at_twice_the_size(normal: Rendering) -> None:
    large = render([NORMAL], 2 * SIZE)
    assert torch.allclose(large.regions, normal.regions)
    small = torch.nn.functional.avg_pool2d(large.images[:, None], 2)[:, 0]
    assert float((small - normal.images).abs().mean()) < 0.02
    shared = large.lungs[:, :, ::2, ::2] & normal.lungs
    assert shared.sum() / normal.lungs.sum() > 0.97


def test_lungs_are_dark_and_the_abdomen_is_bright(normal: Rendering) -> None:
    image = normal.images[0]
    lung = float(image[normal.lungs[0].any(0)].mean())
    heart = float(image[normal.heart[0]].mean())
    assert lung + 0.2 < heart
    assert lung + 0.3 < float(image[-12:, 40:88].mean())
    assert float(image[:3, :3].mean()) < 0.1


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "finding",
    ["pleural effusion", "pneumothorax", "consolidation", "pneumonia", "lung opacity", "atelectasis", "nodule", "mass",
     "pleural thickening", "calcified granuloma"],
)  # fmt: skip
def test_a_finding_lies_in_the_lung_its_side_names(finding: str, side: str) -> None:
    own, other = (0, 1) if side == "right" else (1, 0)
    rendering = with_one(finding, side)
    mask = rendering.lesion_masks[0][0]
    assert mask.any()
    assert not (mask & rendering.lungs[0, other]).any()
    assert (mask & rendering.lungs[0, own]).sum() >= 0.99 * mask.sum()
    # The patient's left is on the picture's right.
    assert (centre(mask)[0] > 0.5) == (side == "left")


@pytest.mark.parametrize(
    "finding", ["consolidation", "pneumonia", "lung opacity", "atelectasis", "nodule", "mass", "calcified granuloma"]
)
def test_a_focal_finding_brightens_its_mask_by_severity_and_nothing_else(finding: str, normal: Rendering) -> None:
    gains = []
    for severity in (0.2, 0.6, 1.0):
        size = {"nodule": 2.0, "calcified granuloma": 0.8}.get(finding, 5.0)
        rendering = with_one(finding, size=size, severity=severity)
        change = rendering.images[0] - normal.images[0]
        mask = rendering.lesion_masks[0][0]
        gains.append(float(change[mask].mean()))
        grown = torch.nn.functional.max_pool2d(mask[None].float(), 31, 1, 15)[0] > 0
        assert float(change[~grown].abs().max()) < 0.03
        assert float(change[~grown].abs().mean()) < 0.004
    assert 0.01 < gains[0] < gains[1] < gains[2]


def test_severity_enlarges_an_effusion_up_to_a_white_lung(normal: Rendering) -> None:
    shares = []
    for severity in (0.05, 0.3, 0.6, 1.0):
        rendering = with_one("pleural effusion", "left", severity=severity)
        mask = rendering.lesion_masks[0][0]
        shares.append(float((mask & rendering.lungs[0, 1]).sum() / rendering.lungs[0, 1].sum()))
        assert float((rendering.images[0] - normal.images[0])[mask & normal.lungs[0, 1]].mean()) > 0.05
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert shares[-1] > 0.9


def test_a_pneumothorax_is_black_and_without_vessels(normal: Rendering, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = with_lesions(lesion("pneumothorax", severity=0.8, form="lateral"))
    rendering = render([scene], SIZE)
    mask = rendering.lesion_masks[0][0]
    inner = -torch.nn.functional.max_pool2d(-mask[None].float(), 5, 1, 2)[0] > 0
    assert float((rendering.images[0] - normal.images[0])[inner].mean()) < -0.05

    def no_vessels(depth: Tensor) -> Tensor:
        return torch.zeros(1, SIZE, SIZE)

    monkeypatch.setattr("rightlung.phantom.image.vessels.draw_vessels", no_vessels)
    bare, bare_normal = render([scene], SIZE), render([NORMAL], SIZE)
    lost = float((rendering.images[0] - bare.images[0])[inner].abs().mean())
    lost_normal = float((normal.images[0] - bare_normal.images[0])[inner].abs().mean())
    assert lost < 0.25 * lost_normal


@pytest.mark.parametrize("form", ["apical", "lateral"])
def test_a_moderate_pneumothorax_shows_a_bright_line_at_its_border(form: str, normal: Rendering) -> None:
    rendering = render([with_lesions(lesion("pneumothorax", severity=0.4, form=form))], 2 * SIZE)
    before = render([NORMAL], 2 * SIZE)
    change = rendering.images[0] - before.images[0]
    mask = rendering.lesion_masks[0][0].float()
    grown, shrunk = (torch.nn.functional.max_pool2d(part[None], 3, 1, 1)[0] for part in (mask, 1 - mask))
    deep_in_lung = -torch.nn.functional.max_pool2d(-before.lungs[0, :1].float(), 9, 1, 4)[0] > 0
    line = (grown > 0) & (shrunk > 0) & deep_in_lung
    beyond = (mask > 0) & (shrunk == 0) & deep_in_lung
    assert float(change[line].mean()) > float(change[beyond].mean()) + 0.02
    assert float(change[beyond].mean()) > -0.2  # darker, not a void


def test_a_broken_rib_has_a_gap(normal: Rendering) -> None:
    axes, radii = skeleton.ribs(anatomy.build([NORMAL]))
    broken = with_lesions(lesion("rib fracture", place=(0.8, 0.5), form="rib 6", severity=0.9))
    found = skeleton.break_ribs(anatomy.build([broken]), axes, radii)
    cut = np.flatnonzero(radii[0, 0, 5] == 0.0)
    assert len(cut) == 2
    ends = axes[0, 0, 5, [cut[0] - 1, cut[1] + 1]]
    assert np.linalg.norm(ends[1] - ends[0]) > 0.5  # centimetres
    assert np.allclose(found[0, 0], ends.mean(0))
    assert (radii[0, 1] > 0).all()


@pytest.mark.parametrize("form", ["apical", "lateral"])
def test_a_moderate_thickening_brightens_the_pleura(form: str, normal: Rendering) -> None:
    rendering = with_one("pleural thickening", severity=0.4, form=form)
    assert float((rendering.images[0] - normal.images[0])[rendering.lesion_masks[0][0]].mean()) > 0.04


def test_tension_pushes_heart_and_dome_away_and_a_collapsed_lobe_pulls_the_heart_near(normal: Rendering) -> None:
    tension = with_one("pneumothorax", "left", severity=0.9, form="tension")
    collapse = with_one("atelectasis", "left", severity=0.9, form="lobar", region="left lower lung zone")
    pushed, usual, pulled = (centre(part.heart[0])[0] for part in (tension, normal, collapse))
    assert pushed < usual - 0.03
    assert pulled > usual + 0.02
    low, high = (part.region_boxes(0)["left hemidiaphragm"].y0 for part in (tension, normal))
    assert low > high + 0.02
    assert collapse.lungs[0, 1].sum() < 0.95 * normal.lungs[0, 1].sum()


def cardiothoracic_ratio(rendering: Rendering) -> float:
    heart = torch.nonzero(rendering.heart[0].any(0)).flatten()
    chest = torch.nonzero(rendering.lungs[0].any(0).any(0)).flatten()
    return float((heart[-1] - heart[0] + 1) / (chest[-1] - chest[0] + 1))


def test_the_heart_is_as_wide_as_the_finding_says(normal: Rendering) -> None:
    assert 0.38 < cardiothoracic_ratio(normal) < 0.5
    ratios = []
    for severity in (0.0, 0.5, 1.0):
        rendering = with_one("cardiomegaly", "none", severity=severity)
        ratios.append(cardiothoracic_ratio(rendering))
        assert torch.equal(rendering.lesion_masks[0][0], rendering.heart[0])
    assert 0.5 < ratios[0] < ratios[1] < ratios[2]


def test_emphysema_darkens_and_low_volumes_shrink_the_lungs(normal: Rendering) -> None:
    airy = with_one("emphysema", "both", severity=0.8)
    shallow = with_one("low lung volumes", "both", severity=0.8)
    both = normal.lungs[0].any(0)
    assert float(airy.images[0][both].mean()) < float(normal.images[0][both].mean()) - 0.03
    assert airy.lungs.sum() > normal.lungs.sum()
    assert shallow.lungs.sum() < 0.9 * normal.lungs.sum()


def test_a_broken_rib_changes_the_picture_at_its_mask_only(normal: Rendering) -> None:
    rendering = with_one("rib fracture", place=(0.8, 0.5), form="rib 6")
    change = (rendering.images[0] - normal.images[0]).abs()
    mask = rendering.lesion_masks[0][0]
    assert mask.sum() < 0.02 * mask.numel()
    assert float(change[mask].mean()) > 20 * float(change[~mask].mean())


@pytest.mark.parametrize("finding", FINDING_ORDER)
def test_every_finding_has_a_mask(finding: str) -> None:
    side = "none" if finding in ("cardiomegaly", "enlarged cardiomediastinum", "hiatal hernia", "scoliosis") else "both"
    side = "right" if finding in ("rib fracture", "nodule", "calcified granuloma") else side
    rendering = render([with_lesions(lesion(finding, side))], 96)  # type: ignore[arg-type]
    share = float(rendering.lesion_masks[0][0].float().mean())
    assert 0.0 < share < 0.6


def test_unknown_names_and_nothing_at_all_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown finding 'noduel'; did you mean 'nodule'\?"):
        render([with_lesions(lesion("noduel"))], 96)
    with pytest.raises(InputError, match=r"unknown device 'pacemakr'; did you mean 'pacemaker'\?"):
        render([with_devices(Device("pacemakr", "left", "", 0.5, True))], 96)
    with pytest.raises(InputError, match="no scenes"):
        render([], 96)
