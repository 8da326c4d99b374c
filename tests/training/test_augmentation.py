"""Random changes to images: nothing is changed by nothing, and masks move along."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.training.augmentation import (
    PIXELS_ONLY,
    Augmentation,
    AugmentationParams,
    apply_params,
    move_masks,
    sample_params,
)
from rightlung.training.log import TrainingProgress
from rightlung.training.loop import train
from tests.training.recipes import CPU, small

NOTHING = Augmentation(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def drawn(images: Tensor, settings: Augmentation, seed: int) -> AugmentationParams:
    generator, rows = torch.Generator().manual_seed(seed), torch.arange(len(images))
    return sample_params(images.shape, settings, generator, rows, len(images), images.device)


def test_augmentation_of_nothing_changes_nothing() -> None:
    images = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)).clamp_min(1e-4)
    torch.testing.assert_close(apply_params(images, drawn(images, NOTHING, 0)), images, atol=1e-5, rtol=1e-5)


def test_masks_move_along_with_the_images_and_nothing_is_mirrored() -> None:
    images = torch.zeros(16, 1, 64, 64)
    images[:, :, 20:28, 8:16] = 1.0  # on the left, above the middle
    params = drawn(images, Augmentation(brightness=0, contrast=0, gamma=0, noise=0, blur=0, cutout=0), 1)
    changed, masks = apply_params(images, params), move_masks(images, params)
    assert not torch.allclose(changed, images, atol=0.1)
    torch.testing.assert_close(changed, masks, atol=1e-3, rtol=0)
    middles = (masks.sum(dim=(1, 2)) * torch.arange(64.0)).sum(dim=1) / masks.sum(dim=(1, 2, 3))
    assert bool((middles < 28).all())


def test_augmentation_can_be_scaled_as_a_whole() -> None:
    assert Augmentation().times(0) == NOTHING
    assert Augmentation().times(2).rotation == 16.0
    assert Augmentation().times(2).blur == 1.0


def test_half_of_the_images_are_mirrored_unless_the_recipe_says_otherwise() -> None:
    assert Augmentation().mirrored_share == 0.0
    assert Augmentation(mirror="words").mirrored_share == 0.5
    assert Augmentation(mirror="pixels", mirror_probability=0.25).mirrored_share == 0.25
    with pytest.raises(InputError, match="mirror_probability has no effect with mirror: none"):
        Augmentation(mirror_probability=0.5)


def test_a_run_that_mirrors_pixels_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mirror in ("words", "pixels"):
        recipe = small(tmp_path, f"augmentation.mirror={mirror}", "schedule.steps=2", "schedule.warmup_steps=0")
        train(recipe, tmp_path / mirror, hardware=CPU, progress=TrainingProgress())
        assert (PIXELS_ONLY in " ".join(capsys.readouterr().err.split())) is (mirror == "pixels")


def test_the_same_seed_augments_the_same_way_and_values_stay_in_range() -> None:
    images = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    first, again, other = (apply_params(images, drawn(images, Augmentation(), seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.min()) >= 0.0
    assert float(first.max()) <= 1.0
