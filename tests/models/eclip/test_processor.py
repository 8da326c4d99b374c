"""The heatmap processors: size, symmetry, and agreement with the released one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.core.settings import read_settings
from rightlung.models.eclip import ExpertConfig, build_processor
from rightlung.models.eclip.processor import AttentionProcessor


def waves(*shape: int, speed: float = 0.37) -> Tensor:
    """Numbers that look random and are the same everywhere."""
    count = int(torch.tensor(shape).prod())
    return torch.sin(speed * torch.arange(count, dtype=torch.float64) ** 1.3).float().view(shape)


def filled(model: AttentionProcessor, size: float = 0.06) -> AttentionProcessor:
    with torch.no_grad():
        for number, (_, weight) in enumerate(sorted(model.named_parameters())):
            weight.copy_(size * waves(*weight.shape, speed=0.3 + 0.05 * number))
    return model


def config(**settings: Any) -> ExpertConfig:
    read: ExpertConfig = read_settings(ExpertConfig, settings)
    return read


def test_the_papers_processor_has_722435_parameters() -> None:
    model = build_processor(ExpertConfig(), channels=3, size=224)
    assert sum(weight.numel() for weight in model.parameters()) == 722_435


def test_it_agrees_with_the_released_processor() -> None:
    """Against `AlphaMaskEncoderMHAWithHeatmap` of ykumards/eCLIP @5f79125 (eclip/model/blocks.py).

    The expected numbers were made by loading the weights of `filled` into that class, by layer, and running it once on
    the images and maps below. None of its code is here.
    """
    model = filled(AttentionProcessor(3, 16, 256, 8))
    images, maps = waves(2, 3, 32, 48, speed=0.9), waves(2, 1, 32, 48, speed=0.21).abs()
    with torch.no_grad():
        made = model(images, maps)
        assert float((model(images, torch.ones_like(maps)) - made).abs().max()) > 0.01
    assert made.shape == images.shape
    expected = torch.tensor(EXPECTED)
    torch.testing.assert_close(made[:, :, ::13, ::17].flatten()[: len(EXPECTED)], expected, atol=1e-5, rtol=0)
    assert float(made.abs().mean()) == pytest.approx(MEAN, abs=1e-5)


def test_permuting_the_patches_permutes_the_result() -> None:
    model = filled(AttentionProcessor(1, 8, 16, 4), 0.5)
    images, maps = waves(1, 1, 8, 32), waves(1, 1, 8, 32, speed=0.5).abs()
    order = [2, 0, 3, 1]

    def permuted(pixels: Tensor) -> Tensor:
        return torch.cat([pixels[..., 8 * one : 8 * one + 8] for one in order], dim=-1)

    with torch.no_grad():
        torch.testing.assert_close(model(permuted(images), permuted(maps)), permuted(model(images, maps)))
        assert not torch.allclose(model(images, permuted(maps)), model(images, maps), atol=1e-4)


def test_where_the_map_is_zero_all_patches_become_the_same() -> None:
    model = filled(AttentionProcessor(1, 8, 16, 4), 0.5)
    with torch.no_grad():
        made = model(waves(1, 1, 8, 32), torch.zeros(1, 1, 8, 32))
    for begin in (8, 16, 24):
        torch.testing.assert_close(made[..., begin : begin + 8], made[..., :8])


def test_the_residual_processor_changes_nothing_at_the_start_and_can_learn() -> None:
    model = build_processor(config(processor="residual", width=16, heads=2), channels=1, size=64)
    images, maps = waves(2, 1, 64, 64), torch.rand(2, 1, 64, 64)
    assert torch.equal(model(images, maps), images)
    model(images, maps).square().sum().backward()
    assert isinstance(model, AttentionProcessor)
    assert model.to_pixels.weight.grad is not None
    assert float(model.to_pixels.weight.grad.abs().sum()) > 0


def test_mask_and_cnn() -> None:
    images, maps = waves(2, 1, 20, 20), torch.rand(2, 1, 20, 20)
    assert torch.equal(build_processor(config(processor="mask"), 1, 20)(images, maps), images * maps)
    cnn = build_processor(config(processor="cnn"), 1, 20)
    assert cnn(images, maps).shape == images.shape
    assert not torch.allclose(cnn(images, maps), cnn(images, torch.ones_like(maps)))


def test_ones_are_learned_as_an_identity() -> None:
    """Priming must reconstruct images that it has not seen, as a PSNR: 10 log10(range² / mean squared error)."""
    torch.manual_seed(0)
    model = build_processor(config(patch=4, width=32, heads=2), channels=1, size=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    chance = torch.Generator().manual_seed(0)

    def smooth(count: int) -> Tensor:
        return torch.randn(count, 1, 16, 16, generator=chance).cumsum(2).cumsum(3) / 16

    def psnr(images: Tensor) -> float:
        with torch.no_grad():
            error = (model(images, torch.ones_like(images)) - images).square().mean()
        return float(10 * torch.log10((images.max() - images.min()) ** 2 / error))

    fresh = smooth(64)
    before = psnr(fresh)
    for _ in range(400):
        images = smooth(32)
        optimizer.zero_grad()
        (model(images, torch.ones_like(images)) - images).square().mean().backward()
        optimizer.step()
    assert before < 20
    assert psnr(fresh) > 27  # dB; before, an image of one grey for each patch would do as well


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 10, "heads": 4}, r"expert\.heads must divide expert\.width, 10; got 4"),
        ({"patch": 12}, r"expert\.patch must divide image\.size, 64; got 12"),
        ({"mixup_alpha": -1}, r"expert\.mixup_alpha"),
    ],
)
def test_a_wrong_setting_names_its_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_processor(config(**settings), 1, 64)


EXPECTED = [
    -0.019743, 0.060684, -0.042369, -0.032318, 0.051245, -0.056254, 0.127702, -0.045678, 0.071276, -0.057799, 0.047305,
    0.042509, 0.153957, -0.059379, 0.155225, 0.002932, 0.0608, 0.16714,
]  # fmt: skip
MEAN = 0.0759585
