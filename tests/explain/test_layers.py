"""Grad-CAM at a layer of real encoders, beside finite differences.

The weight of a channel is the mean of the score's gradient over positions: what the score gains, over the number of
positions, when that channel rises by a hair everywhere. So it can be measured without autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from torch import nn

from rightlung.core import InputError
from rightlung.explain import ActivationHook, encoder_grad_cam

HAIR = 1e-5
HF: Any = transformers  # whose configurations take more than their signatures say


@dataclass(frozen=True)
class Encoder:
    build: Callable[[], nn.Module]
    layer: str
    image: tuple[int, int]
    grid: tuple[int, int]
    prefix: int | None = None  # tokens before the grid; None for feature maps


def classifier(family: str, **options: Any) -> nn.Module:
    config = getattr(HF, f"{family}Config")(num_channels=1, num_labels=3, **options)
    model: nn.Module = getattr(HF, f"{family}ForImageClassification")(config)
    return model


resnet = partial(classifier, "ResNet", embedding_size=4, hidden_sizes=[6, 8], depths=[1, 1], layer_type="basic")
convnext = partial(classifier, "ConvNext", hidden_sizes=[4, 6], depths=[1, 1], num_stages=2)
vit = partial(
    classifier, "ViT", image_size=32, patch_size=8, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=12,
)  # fmt: skip
swin = partial(
    classifier, "Swin", image_size=32, patch_size=4, embed_dim=4, depths=[1, 1], num_heads=[1, 2], window_size=4
)
ENCODERS = {
    "resnet": Encoder(resnet, "resnet.encoder.stages.1", (32, 48), (4, 6)),
    "convnext": Encoder(convnext, "convnext.encoder.stages.1", (32, 48), (4, 6)),
    "vit": Encoder(vit, "vit.layers.0", (32, 32), (4, 4), prefix=1),
    "swin": Encoder(swin, "swin.encoder.layers.0.blocks.0", (32, 32), (8, 8), prefix=0),
}


def score(output: Any) -> torch.Tensor:
    logits: torch.Tensor = output.logits
    return logits[:, 1] + 0.3 * logits[:, 2] ** 2


def measured(model: nn.Module, encoder: Encoder, pixels: torch.Tensor) -> NDArray[np.float64]:
    """Grad-CAM by moving one channel at a time, up and down, and watching the score."""
    module = dict(model.named_modules())[encoder.layer]
    kept: list[torch.Tensor] = []

    def run(channel: int | None, by: float) -> torch.Tensor:
        def change(_: nn.Module, __: object, output: Any) -> Any:
            values = output[0] if isinstance(output, tuple) else output
            moved = values.clone()
            if channel is None:
                kept.append(values)
            elif encoder.prefix is None:
                moved[:, channel] += by
            else:
                moved[:, encoder.prefix :, channel] += by
            return (moved, *output[1:]) if isinstance(output, tuple) else moved

        handle = module.register_forward_hook(change)
        try:
            with torch.no_grad():
                return score(model(pixels))
        finally:
            handle.remove()

    run(None, 0.0)
    values = kept[0].numpy()
    if encoder.prefix is not None:
        values = values[:, encoder.prefix :].transpose(0, 2, 1).reshape(len(values), -1, *encoder.grid)
    positions = encoder.grid[0] * encoder.grid[1]
    total = np.zeros((len(pixels), *encoder.grid))
    for channel in range(values.shape[1]):
        slope = (run(channel, HAIR) - run(channel, -HAIR)).numpy() / (2 * HAIR * positions)
        total += slope[:, None, None] * values[:, channel]
    return total.clip(0)


@pytest.mark.parametrize("name", ENCODERS)
def test_grad_cam_of_an_encoder_is_what_moving_its_channels_does_to_the_score(name: str) -> None:
    encoder = ENCODERS[name]
    torch.manual_seed(3)
    model = encoder.build().double().eval()
    for parameter in model.parameters():  # the initial weights are so small that every map would look alike
        parameter.data.normal_(std=0.4)
    pixels = torch.rand(2, 1, *encoder.image, dtype=torch.float64)
    expected = measured(model, encoder, pixels)
    maps = encoder_grad_cam(model, encoder.layer, score, pixels)
    assert expected.max(axis=(1, 2)).min() > 0  # else this shows nothing
    np.testing.assert_allclose(maps.detach().numpy(), expected, rtol=1e-4, atol=1e-7)


def test_a_frozen_encoder_gives_the_same_map_and_the_hook_is_gone_afterwards() -> None:
    torch.manual_seed(0)
    model = resnet().eval()
    pixels = torch.rand(1, 1, 32, 32)
    free = encoder_grad_cam(model, "resnet.encoder.stages.1", score, pixels)
    model.requires_grad_(False)
    with torch.no_grad():
        frozen = encoder_grad_cam(model, "resnet.encoder.stages.1", score, pixels)
    torch.testing.assert_close(frozen, free)
    assert not dict(model.named_modules())["resnet.encoder.stages.1"]._forward_hooks


def test_tokens_lie_on_the_grid_that_is_said_row_by_row_behind_all_that_come_before() -> None:
    tokens = torch.arange(2 * 8 * 1, dtype=torch.float32).reshape(2, 8, 1).requires_grad_()
    with ActivationHook(nn.Sequential(nn.Identity()), "0", grid=(2, 3)) as layer:
        layer.activations = tokens
        maps = layer.grad_cam(tokens.sum(dim=(1, 2)))
    assert maps.tolist() == [[[2, 3, 4], [5, 6, 7]], [[10, 11, 12], [13, 14, 15]]]


def test_channels_may_come_last() -> None:
    model = nn.Sequential(nn.Identity())
    pixels = torch.rand(1, 2, 3, 5)
    maps = encoder_grad_cam(model, "0", lambda output: output[..., 1].sum(dim=(1, 2)), pixels, channels_last=True)
    assert maps.shape == (1, 2, 3)


def test_a_score_of_the_class_token_alone_is_no_reason_for_an_empty_map() -> None:
    torch.manual_seed(0)
    with pytest.raises(InputError, match="uses only the class token of layer"):
        encoder_grad_cam(vit().eval(), "vit.layers.1", score, torch.rand(1, 1, 32, 32))


@pytest.mark.parametrize(
    ("layer", "score_of", "message"),
    [
        (
            "resnet.encoder.stage.1",
            score,
            "unknown layer 'resnet.encoder.stage.1'; did you mean 'resnet.encoder.stage",
        ),
        ("resnet.encoder.stages.1", lambda output: output.logits.detach().sum(), "no gradient"),
        ("resnet.encoder.stages.1", lambda _: 2 * torch.ones(1, requires_grad=True), "does not depend on layer"),
        ("classifier.1", lambda output: output.logits.sum(), r"got \(1, 3\)"),
    ],
)
def test_what_cannot_be_explained_is_said(layer: str, score_of: Callable[[Any], torch.Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder_grad_cam(resnet().eval(), layer, score_of, torch.rand(1, 1, 32, 32))
    with ActivationHook(resnet(), "classifier.1") as watched, pytest.raises(InputError, match="did not run"):
        watched.grad_cam(torch.ones(1, requires_grad=True))


@pytest.mark.parametrize(
    ("grid", "message"), [(None, "6 tokens, which are not on a square grid"), ((3, 3), "too few for a grid of 3 x 3")]
)
def test_tokens_that_fill_no_grid_are_refused(grid: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder_grad_cam(nn.Sequential(nn.Identity()), "0", torch.sum, torch.rand(1, 6, 2), grid=grid)
