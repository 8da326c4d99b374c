"""The region-relationship-augmented encoder and the U-connection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.models.fita.config import FitaConfig
from rightlung.models.fita.encoder import RegionEncoder, RegionRelations, relative_positions, sinusoidal
from tests.models.fita.tiny import create, pictures


def test_published_positions_are_logarithms_of_distances_and_signed_ones_know_the_direction() -> None:
    published, signed = (relative_positions((2, 3), given) for given in (False, True))
    assert published.shape == (6, 6, 4)
    np.testing.assert_allclose(published[0, 5], [math.log(2), math.log(1), 0, 0], atol=1e-6)
    np.testing.assert_allclose(published[0, 0], [math.log(1e-3)] * 2 + [0, 0], atol=1e-6)
    assert torch.equal(published, published.transpose(0, 1))
    np.testing.assert_allclose(signed[0, 5], [math.log(3), math.log(2), 0, 0], atol=1e-6)
    assert torch.equal(signed, -signed.transpose(0, 1))


def test_positions_are_embedded_as_in_relation_networks() -> None:
    (found,) = sinusoidal(torch.tensor([[0.3, -0.2, 0.0, 0.1]]))
    angles = [100 * value / 1000 ** (wave / 8) for value in (0.3, -0.2, 0.0, 0.1) for wave in range(8)]
    np.testing.assert_allclose(found, [*map(math.sin, angles), *map(math.cos, angles)], atol=1e-4)


def test_the_bias_is_the_logarithm_of_a_relu() -> None:
    relations = RegionRelations(2, (2, 2), signed=True)
    weights = relations.project.weight.detach().numpy(), relations.project.bias.detach().numpy()
    omega = np.maximum(relations.geometry.numpy() @ weights[0].T + weights[1], 0)
    np.testing.assert_allclose(
        relations()[0].detach().numpy(), np.log(np.maximum(omega, 1e-6)).transpose(2, 0, 1), atol=1e-4
    )


@pytest.mark.parametrize(("positions", "blind"), [("absolute", True), ("signed", False)])
def test_published_positions_cannot_tell_a_mirrored_image_and_signed_ones_can(positions: str, blind: bool) -> None:
    torch.manual_seed(0)
    config = FitaConfig(dimension=16, heads=2, layers=2, hidden_size=16, positions=positions)  # type: ignore[arg-type]
    encoder = RegionEncoder(config, (3, 4)).eval()
    patches = torch.randn(1, 3, 4, 16)
    found, mirrored = (encoder(one.flatten(1, 2))[-1].view(3, 4, 16) for one in (patches, patches.flip(2)))
    assert torch.allclose(found, mirrored.flip(1), atol=1e-4) == blind


@pytest.mark.parametrize(("connection", "read"), [("u", [2, 1, 0]), ("last", [2, 2, 2]), ("parallel", [0, 1, 2])])
def test_decoder_layers_read_the_encoder_layers_of_the_connection(connection: str, read: list[int]) -> None:
    model = create(connection=connection)
    with torch.no_grad():
        encoded = model.encode(pictures(1))
        crossed = model.memory(encoded).crossed
        layers: Any = model.decoder.layers
        for number, (layer, level) in enumerate(zip(layers, read, strict=True)):
            keys, values = layer.crossed.keys_values(encoded.levels[level])
            assert torch.equal(crossed[:, number, 0], keys)
            assert torch.equal(crossed[:, number, 1], values)
