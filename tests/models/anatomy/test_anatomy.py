"""The anatomy model: what its losses want, where its boxes and masks lie in an image, and what mirroring does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rightlung.core import InputError
from rightlung.lexicon import IMAGENOME_REGIONS, STRUCTURES, mirror_region
from rightlung.models.anatomy import AnatomyConfig, AnatomyModel
from rightlung.models.anatomy.losses import box_loss, confidence_loss, iou, mask_loss, spoilt
from rightlung.models.anatomy.network import Anatomy, _corner_boxes
from rightlung.models.base import RegionFinder, TrainingBatch
from rightlung.models.folder import load_folder, save_model
from rightlung.phantom.config import default_config
from rightlung.phantom.render import render
from rightlung.phantom.structures import structure_masks
from rightlung.phantom.study import study_scene
from tests.models.anatomy.boxes import box_iou

SMALL = {"size": 32, "channels": [8, 8, 16, 16], "save_dtype": "float32"}


def batch(known: tuple[bool, ...] = (True, True, True, False)) -> TrainingBatch:
    """Phantoms at 32 pixels; the last one counts as a real image without known anatomy."""
    scenes = [study_scene(default_config(), 5, index) for index in range(len(known))]
    rendering, masks = render(scenes, 64), structure_masks(scenes, 16).float()
    boxes = rendering.regions.float()
    return TrainingBatch(
        torch.nn.functional.avg_pool2d(rendering.images[:, None], 2),
        [],
        targets={
            "structures": {"shares": masks, "known": torch.tensor(known)},
            "regions": {"boxes": boxes, "present": torch.ones(boxes.shape[:2], dtype=torch.bool)},
        },
        seed=3,
    )


def test_training_lowers_every_loss_and_a_saved_model_answers_the_same(tmp_path: Path) -> None:
    model, data = AnatomyModel.create(SMALL, [], 1), batch()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    history = []
    for _ in range(40):
        losses = model(data)
        history.append({name: float(value.detach()) for name, value in losses.items()})
        optimizer.zero_grad()
        torch.stack([*losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert all(history[-1][name] < 0.9 * first for name, first in history[0].items()), (history[0], history[-1])
    save_model(model, tmp_path / "model")
    image = data.images[0, 0].numpy()
    loaded = load_folder(tmp_path / "model")
    assert isinstance(loaded, RegionFinder)
    assert loaded.regions([image]) == model.regions([image])


def test_regions_of_a_mirrored_copy_are_the_mirrored_regions_of_the_other_side() -> None:
    model, image = AnatomyModel.create(SMALL, [], 1), batch((True,)).images[0, 0].numpy()[:, :24]
    reading, mirrored = model.read([image, np.ascontiguousarray(image[:, ::-1])])
    for name, one in reading.regions.items():
        other = mirrored.regions[mirror_region(name)]
        x0, y0, x1, y1 = one.box.as_tuple()
        assert other.box.as_tuple() == pytest.approx((1 - x1, y0, 1 - x0, y1), abs=1e-5)
        assert other.score == pytest.approx(one.score, abs=1e-5)
    for name in STRUCTURES:
        theirs = mirrored.structures[mirror_region(name)].pixels[:, ::-1]
        assert (theirs == reading.structures[name].pixels).mean() > 0.999


def test_an_answer_is_in_fractions_of_the_image_whatever_its_shape() -> None:
    model, image = AnatomyModel.create(SMALL, [], 1), batch((True,)).images[0, 0].numpy()
    narrow = image[:, 8:24]  # 32 x 16 pixels, letterboxed by 8 columns on either side
    tall, square = model.read([narrow, np.pad(narrow, ((0, 0), (8, 8)))])
    assert tall.structures["left lung"].size == (32, 16)
    for name, one in tall.regions.items():
        x0, y0, x1, y1 = square.regions[name].box.as_tuple()
        moved = [min(max(2 * x - 0.5, 0.0), 1.0) for x in (x0, x1)]
        assert one.box.as_tuple() == pytest.approx((moved[0], y0, moved[1], y1), abs=1e-4)


def test_corners_are_centres_of_mass_of_heatmaps() -> None:
    logits = torch.full((1, 4, 10, 10), -50.0)  # two boxes
    logits[0, 0, 2, 3] = logits[0, 1, 7, 8] = 50.0
    logits[0, 2, 4, 0] = logits[0, 2, 4, 9] = logits[0, 3, 9, 9] = 50.0  # one corner between two cells
    boxes, spread = _corner_boxes(logits)
    centre = [(cell + 0.5) / 10 for cell in range(10)]
    scaled = [1.06 * (place - 0.5) + 0.5 for place in (centre[3], centre[2], centre[8], centre[7])]
    assert boxes[0, 0].tolist() == pytest.approx(scaled, abs=1e-5)
    assert boxes[0, 1, 0].item() == pytest.approx(0.5, abs=1e-5)
    assert spread[0, 1, 0].item() == pytest.approx(1.06 * 0.45, abs=1e-4)
    assert spread[0, 0].max().item() < 1e-3


def test_losses_equal_their_definitions() -> None:
    truth = torch.zeros(1, 1, 4, 4)
    truth[..., :2] = 1.0
    logits = torch.full_like(truth, 9.0)
    dice = 1 - (2 * 8 + 1) / (16 + 8 + 1)
    assert mask_loss(logits, truth).item() == pytest.approx(dice + 4.5, abs=2e-3)
    boxes, others = torch.tensor([[[0.0, 0.0, 0.4, 0.4]]]), torch.tensor([[[0.2, 0.0, 0.6, 0.4]]])
    assert iou(boxes, others).item() == pytest.approx(box_iou((0, 0, 0.4, 0.4), (0.2, 0, 0.6, 0.4)))
    present = torch.ones(1, 1, dtype=torch.bool)
    assert box_loss(boxes, others, present).item() == pytest.approx(5 * 2 * (0.2 - 0.005) + 1 - 1 / 3, abs=1e-5)
    assert box_loss(boxes, others, ~present).item() == 0.0
    sure = torch.tensor([[8.0]])
    assert confidence_loss(sure, boxes, boxes, present).item() < 1e-3
    assert confidence_loss(sure, boxes, boxes, ~present).item() == pytest.approx(8.0, abs=1e-3)


def test_spoilt_images_are_turned_inverted_or_destroyed_and_say_how() -> None:
    images = batch((True,)).images.expand(64, -1, -1, -1)
    spoilt_images, kinds = spoilt(images, 7)
    assert set(kinds.tolist()) == {1, 2, 3, 4}
    for image, changed, kind in zip(images, spoilt_images, kinds.tolist(), strict=True):
        undone = {1: changed.transpose(1, 2), 2: changed.flip(1), 3: 1 - changed}.get(kind)
        if undone is not None:
            ways = [undone, undone.flip(1), undone.flip(2), undone.flip(1, 2)]
            assert any(torch.allclose(way, image, atol=1e-6) for way in ways)
        else:
            assert not torch.allclose(changed, image, atol=0.05)
    assert torch.equal(spoilt(images, 7)[0], spoilt_images)


def test_the_configuration_is_checked_and_regions_have_their_other_side() -> None:
    with pytest.raises(InputError, match="size must be a multiple of 16; got 100"):
        AnatomyConfig(size=100)
    with pytest.raises(InputError, match="channels must be multiples of 8; got 12"):
        AnatomyConfig(channels=(8, 12, 16, 16))
    boxes = torch.rand(2, len(IMAGENOME_REGIONS), 4)
    anatomy = Anatomy(torch.randn(2, 12, 4, 4), boxes, torch.randn(2, 29), torch.randn(2, 5))
    twice = anatomy.mirrored().mirrored()
    torch.testing.assert_close(twice.boxes, boxes)
    torch.testing.assert_close(twice.masks, anatomy.masks)
