"""Where regions lie, before anything is learned."""

from __future__ import annotations

import pytest
import torch

from rightlung.models.encoders.image import ImageEncoder, ImageEncoderConfig, _smooth_positions

RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}


def test_positions_are_alike_for_neighbours_and_unlike_across_the_image() -> None:
    torch.manual_seed(0)
    position = torch.nn.functional.normalize(_smooth_positions(256, (20, 20)), dim=0)
    beside = (position[:, :, 1:] * position[:, :, :-1]).sum(0).mean()
    below = (position[:, 1:] * position[:, :-1]).sum(0).mean()
    opposite = (position * position.flip(2)).sum(0)[:, :5].mean()  # the same height on the other side
    assert float(beside) > 0.9
    assert float(below) > 0.9
    assert abs(float(opposite)) < 0.5


@pytest.mark.parametrize("grid", [(20, 20), (4, 7), (19, 10)])
def test_positions_have_their_grid_and_nothing_in_common(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    position = _smooth_positions(6, grid)
    assert position.shape == (6, *grid)
    torch.testing.assert_close(position.mean((1, 2)), torch.zeros(6), atol=1e-6, rtol=0)


def test_positions_are_added_to_the_regions_and_are_learned() -> None:
    config = ImageEncoderConfig("resnet", RESNET, size=64, levels=(1,), positions=True)
    torch.manual_seed(0)
    encoder = ImageEncoder(config, 12).train(False)
    images = torch.rand(2, 1, 64, 64)
    with_positions = encoder(images).patch_embeddings
    with_positions.sum().backward()
    assert encoder.position is not None
    assert encoder.position.grad is not None
    assert encoder.position.grad.abs().min() > 0
    kept, encoder.position = encoder.position, None
    torch.testing.assert_close(encoder(images).patch_embeddings + kept, with_positions)
