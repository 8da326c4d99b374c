"""Positions of patches, and torchvision's weights in the ResNet of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d, relu
from transformers import ResNetConfig, ResNetModel

from rightlung.models.encoders.image import ImageEncoder, ImageEncoderConfig, smooth_positions, torchvision_name

RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}


def test_positions_are_alike_for_neighbours_and_unlike_across_the_image() -> None:
    torch.manual_seed(0)
    position = torch.nn.functional.normalize(smooth_positions(256, (20, 20)), dim=0)
    beside = (position[:, :, 1:] * position[:, :, :-1]).sum(0).mean()
    below = (position[:, 1:] * position[:, :-1]).sum(0).mean()
    opposite = (position * position.flip(2)).sum(0)[:, :5].mean()  # the same height on the other side
    assert float(beside) > 0.9
    assert float(below) > 0.9
    assert abs(float(opposite)) < 0.5


@pytest.mark.parametrize("grid", [(20, 20), (4, 7), (19, 10)])
def test_positions_have_their_grid_and_nothing_in_common(grid: tuple[int, int]) -> None:
    torch.manual_seed(0)
    position = smooth_positions(6, grid)
    assert position.shape == (6, *grid)
    torch.testing.assert_close(position.mean((1, 2)), torch.zeros(6), atol=1e-6, rtol=0)


def test_positions_are_added_to_the_patches_and_are_learned() -> None:
    config = ImageEncoderConfig("resnet", RESNET, size=64, pyramid_levels=(1,), position_embeddings=True)
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


def torchvision_stages(images: Tensor, weights: dict[str, Tensor], depths: tuple[int, ...]) -> list[Tensor]:
    """Torchvision's ResNet ("v1.5": the 3 x 3 convolution has the stride) as its forward is written, from its names."""

    def step(features: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        kernel = weights[f"{conv}.weight"]
        mean, variance, scale, shift = (
            weights[f"{norm}.{name}"] for name in ("running_mean", "running_var", "weight", "bias")
        )
        found = conv2d(features, kernel, stride=stride, padding=kernel.shape[2] // 2)
        return batch_norm(found, mean, variance, scale, shift)

    features = max_pool2d(relu(step(images, "conv1", "bn1", 2)), 3, 2, 1)
    stages = []
    for stage, depth in enumerate(depths, start=1):
        for number in range(depth):
            block, stride = f"layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1
            found = relu(step(features, f"{block}.conv1", f"{block}.bn1"))
            found = relu(step(found, f"{block}.conv2", f"{block}.bn2", stride))
            found = step(found, f"{block}.conv3", f"{block}.bn3")
            if f"{block}.downsample.0.weight" in weights:
                features = step(features, f"{block}.downsample.0", f"{block}.downsample.1", stride)
            features = relu(found + features)
        stages.append(features)
    return stages


def test_a_resnet_gives_torchvisions_features_for_the_weights_of_its_names() -> None:
    torch.manual_seed(0)
    options = ResNetConfig(embedding_size=8, hidden_sizes=[16, 32, 64, 128], depths=[2, 1, 2, 1])
    model: Any = ResNetModel(options).eval()  # type: ignore[no-untyped-call]
    for name, value in model.state_dict().items():
        if "normalization" in name and value.is_floating_point():
            value.copy_(torch.rand_like(value) + 0.5)
    weights = {torchvision_name(name): value for name, value in model.state_dict().items()}
    images = torch.randn(2, 3, 75, 75)
    with torch.no_grad():
        ours = model(images, output_hidden_states=True).hidden_states[1:]
        for found, expected in zip(ours, torchvision_stages(images, weights, (2, 1, 2, 1)), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_patches_alone_are_those_of_the_encoder_with_a_global_embedding() -> None:
    config = ImageEncoderConfig("resnet", RESNET, size=64, pyramid_levels=(1, 2, 3))
    torch.manual_seed(0)
    encoder = ImageEncoder(config, 12).eval()
    alone = ImageEncoder(config, 12, global_embedding=False).eval()
    alone.load_state_dict({name: value for name, value in encoder.state_dict().items() if "global" not in name})
    images = torch.rand(2, 1, 64, 64)
    with torch.no_grad():
        assert torch.equal(alone.patches(images), encoder(images).patch_embeddings)
