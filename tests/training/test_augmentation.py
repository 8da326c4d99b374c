"""Random changes to images: nothing is changed by nothing, and masks move along."""

from __future__ import annotations

import torch
from torch import Tensor

from rightlung.training.augmentation import Augmentation, AugmentationParams, apply_params, move_masks, sample_params

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


def test_the_same_seed_augments_the_same_way_and_values_stay_in_range() -> None:
    images = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    first, again, other = (apply_params(images, drawn(images, Augmentation(), seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float(first.min()) >= 0.0
    assert float(first.max()) <= 1.0
