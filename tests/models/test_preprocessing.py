"""Letterboxing and its undoing, standardisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rightlung.core import Extent, Heatmap
from rightlung.models.preprocessing import letterbox, standardise


def test_a_tall_image_is_padded_left_and_right_and_the_extent_says_so() -> None:
    square, extent = letterbox(np.ones((200, 100), dtype=np.float32), 64)
    assert square.shape == (64, 64)
    assert float(square[:, 16:48].min()) == pytest.approx(1.0, abs=1e-6)
    assert square[:, :16].max() == 0.0
    assert extent == Extent.letterbox((200, 100))


def test_a_square_of_the_right_size_is_left_as_it_is() -> None:
    image = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    square, extent = letterbox(image, 64)
    assert np.array_equal(square.numpy(), image)
    assert extent == Extent()


@pytest.mark.parametrize("shape", [(90, 200), (211, 97), (100, 100), (64, 3)])
def test_a_mark_seen_in_the_square_is_found_in_the_image_where_it_was(shape: tuple[int, int]) -> None:
    image = np.zeros(shape, dtype=np.float32)
    row, column = shape[0] // 4, shape[1] * 2 // 3
    image[row, column] = 1.0
    square, extent = letterbox(image, 64)
    back = Heatmap(square.numpy(), extent).to_size(shape)
    found = np.unravel_index(back.argmax(), shape)
    pixel = max(shape) / 64  # one pixel of the square, in pixels of the image
    assert abs(found[0] - row) <= pixel
    assert abs(found[1] - column) <= pixel


def test_standardised_images_forget_brightness_and_contrast() -> None:
    image = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    standard = standardise(image)
    assert float(standard.mean()) == pytest.approx(0, abs=1e-6)
    assert float(standard.std(correction=0)) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(standardise(0.2 + 0.5 * image), standard, atol=1e-5, rtol=1e-5)


def test_a_blank_image_becomes_zeros_not_nan() -> None:
    assert torch.equal(standardise(torch.full((1, 1, 4, 4), 0.5)), torch.zeros(1, 1, 4, 4))
