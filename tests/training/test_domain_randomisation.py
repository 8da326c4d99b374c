"""Domain randomisation: each switch does what its name says, and those that are off draw no random numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.training.augmentation import Augmentation, AugmentationParams, apply_params, sample_params
from rightlung.training.domain_randomisation import monotone_curves
from tests.training.recipes import small

STILL = Augmentation().times(0)
IMAGES = torch.rand(6, 1, 32, 32, generator=torch.Generator().manual_seed(5)) * 0.8 + 0.1
EARLIER = [-0.09800603985786438, 0.9060387015342712, 0.11867562681436539, 0.33944809436798096]
"""Drawn by the release without these switches."""
SWITCHES: dict[str, Any] = {"inversion": 0.5, "contrast_curve": 1.0, "bias_field": 0.2, "sharpen": 1.5}


def drawn(settings: Augmentation, images: Tensor = IMAGES) -> tuple[AugmentationParams, float]:
    """The parameters of a batch, and the next random number after them."""
    generator = torch.Generator().manual_seed(11)
    params = sample_params(images.shape, settings, generator, torch.arange(len(images)), len(images), images.device)
    return params, float(torch.rand(1, generator=generator))


def test_the_default_draws_what_it_drew_before_there_were_these_switches() -> None:
    params, following = drawn(Augmentation())
    assert params.cutout is not None
    figures = [float(params.rotation[0]), float(params.cutout[0, 0, 0]), float(params.cutout[5, 0, 3]), following]
    np.testing.assert_allclose(figures, EARLIER, rtol=1e-6)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_only_what_it_names(name: str) -> None:
    plain, _ = drawn(Augmentation())
    changed, _ = drawn(replace(Augmentation(), **{name: SWITCHES[name]}))
    for setting in (
        "rotation",
        "scale",
        "shear",
        "shift",
        "gamma",
        "contrast",
        "brightness",
        "blur",
        "noise",
        "cutout",
    ):
        assert torch.equal(getattr(plain, setting), getattr(changed, setting)), setting
    assert not torch.equal(apply_params(IMAGES, plain), apply_params(IMAGES, changed))


def test_half_of_the_images_are_inverted() -> None:
    images = IMAGES.repeat(40, 1, 1, 1)
    params, _ = drawn(replace(STILL, inversion=0.5), images)
    changed = apply_params(images, params)
    upright = (changed - images).abs().amax((1, 2, 3)) < 1e-4
    inverted = (changed - (1 - images)).abs().amax((1, 2, 3)) < 1e-4
    assert bool((upright ^ inverted).all())
    assert 90 < int(inverted.sum()) < 150


def test_contrast_curves_rise_and_are_those_of_numpy() -> None:
    params, _ = drawn(replace(STILL, contrast_curve=1.5))
    curves = params.domain.curves
    assert curves is not None
    assert bool((curves.diff(dim=1) > 0).all())
    assert curves.std(0)[4] > 0.03  # each image has its own
    places = np.linspace(0, 1, 9)
    for image, curve, changed in zip(IMAGES, curves, apply_params(IMAGES, params), strict=True):
        np.testing.assert_allclose(changed.numpy(), np.interp(image.numpy(), places, curve.numpy()), atol=1e-4)
    torch.testing.assert_close(monotone_curves(torch.zeros(1, 4)), torch.linspace(0, 1, 5)[None])


def test_a_bias_field_is_smooth_and_bounded_at_its_points() -> None:
    grey = torch.full((6, 1, 64, 64), 0.5)
    params, _ = drawn(replace(STILL, bias_field=0.2), grey)
    field = apply_params(grey, params)[:, 0] - 0.5
    assert params.domain.bias is not None
    torch.testing.assert_close(field[:, ::21, ::21], params.domain.bias[:, 0], atol=1e-4, rtol=0)  # at its 4 x 4 points
    assert 0.1 < float(params.domain.bias.abs().max()) <= 0.2
    # Neighbouring points, 21 pixels apart, differ by at most 0.4; a cubic is nowhere twice as steep as the line.
    assert max(float(field.diff(dim=axis).abs().max()) for axis in (1, 2)) < 2 * 0.4 / 21


def test_sharpening_adds_the_fine_detail_that_blurring_takes_away() -> None:
    edge = torch.full((6, 1, 16, 16), 0.4)
    edge[..., 8:] = 0.6
    params, _ = drawn(replace(STILL, sharpen=1.0), edge)
    assert params.domain.sharpening is not None
    share = params.domain.sharpening[:, 0, 0, 0]
    rows = apply_params(edge, params)[:, 0, 8]
    # Blurred twice over three pixels, the last dark pixel is 0.4 + 0.2 / 3, and the one before 0.4 + 0.2 / 9.
    torch.testing.assert_close(rows[:, 7], 0.4 - share * 0.2 / 3, atol=1e-4, rtol=0)
    torch.testing.assert_close(rows[:, 6], 0.4 - share * 0.2 / 9, atol=1e-4, rtol=0)


def test_coarse_dropout_covers_each_of_its_rectangles() -> None:
    params, _ = drawn(replace(STILL, cutout=0.4, cutout_count=5))
    assert params.cutout is not None
    assert params.cutout.shape == (6, 5, 4)
    places = (np.arange(32) + 0.5) / 32
    for image, rectangles, changed in zip(IMAGES, params.cutout.numpy(), apply_params(IMAGES, params), strict=True):
        covered = np.zeros((32, 32), bool)
        for y, half_height, x, half_width in rectangles:
            covered |= (np.abs(places - y) < half_height)[:, None] & (np.abs(places - x) < half_width)[None]
        expected = np.where(covered, image[0].mean(), image[0].numpy())
        assert covered.any()
        np.testing.assert_allclose(changed[0].numpy(), expected, atol=1e-4)


def test_the_switches_are_fields_of_a_recipe(tmp_path: Path) -> None:
    changes = [f"augmentation.{name}={value}" for name, value in SWITCHES.items()]
    augmentation = small(tmp_path, *changes, "augmentation.cutout_count=4").augmentation
    assert augmentation == replace(Augmentation(), **SWITCHES, cutout_count=4)
    assert augmentation.times(10).inversion == 1.0
    assert augmentation.times(10).cutout_count == 4
    for change, message in (
        ("augmentation.inversion=2", r"augmentation\.inversion must be from 0 to 1; got 2"),
        ("augmentation.sharpen=-1", r"augmentation\.sharpen must be from 0 to 10; got -1"),
        ("augmentation={cutout: 0, cutout_count: 3}", "cutout_count has no effect with cutout: 0"),
    ):
        with pytest.raises(InputError, match=message):
            small(tmp_path, change)
