"""The network's shapes, its pooling beside hand calculations, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rightlung.core import InputError
from rightlung.models.classifier import NetworkConfig, ResidualNetwork

TINY: dict[str, Any] = {"widths": (4, 4, 8, 8), "blocks": (1, 1, 1, 1)}


@pytest.mark.parametrize(("stride", "rows"), [(8, 16), (16, 8), (32, 4)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_stride_sets_the_resolution_of_the_map(stride: int, rows: int, norm: Any) -> None:
    network = ResidualNetwork(NetworkConfig(3, stride=stride, norm=norm, **TINY)).eval()
    images = torch.zeros(2, 1, 128, 128)
    assert network.features(images).shape == (2, 8, rows, rows)
    assert network(images).shape == (2, 3)


def test_the_default_is_as_large_as_a_resnet_18_for_one_channel_and_eight_classes() -> None:
    count = sum(parameter.numel() for parameter in ResidualNetwork(NetworkConfig(8)).parameters())
    # torchvision's ResNet-18 has 11,689,512: less two input channels' kernels, and 8 instead of 1,000 classes.
    assert count == 11_689_512 - 2 * 64 * 49 - 992 * 513


def test_log_sum_exp_pooling_lies_between_the_mean_and_the_maximum_and_moves_with_its_sharpness() -> None:
    positions = torch.tensor([[[[0.0, 1.0], [2.0, 5.0]]]])

    def pooled(sharpness: float) -> float:
        config = NetworkConfig(1, pooling="lse", sharpness=sharpness, **TINY)
        return float(ResidualNetwork(config).pool(positions))

    by_hand = math.log((1 + math.e + math.e**2 + math.e**5) / 4)
    assert pooled(1.0) == pytest.approx(by_hand, rel=1e-6)
    assert pooled(0.001) == pytest.approx(2.0, abs=0.01)
    assert pooled(1000.0) == pytest.approx(5.0, abs=0.01)
    assert float(ResidualNetwork(NetworkConfig(1, **TINY)).pool(positions)) == 2.0


def test_sharp_pooling_of_large_logits_stays_finite() -> None:
    network = ResidualNetwork(NetworkConfig(1, pooling="lse", sharpness=50.0, **TINY))
    assert float(network.pool(torch.full((1, 1, 2, 2), 40.0))) == pytest.approx(40.0, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"widths": (4, 4)}, "widths must be four"),
        ({"blocks": (1, 1, 0, 1)}, "blocks must be four"),
        ({"norm": "layer"}, "norm 'layer'"),
        ({"pooling": "max"}, "pooling 'max'"),
        ({"stride": 4}, "stride"),
        ({"sharpness": 0.0}, "sharpness"),
        ({"dropout": 1.0}, "dropout"),
        ({"outputs": 0}, "outputs"),
    ],
)
def test_an_impossible_network_is_refused_by_field(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        NetworkConfig(**({"outputs": 2} | changes))
