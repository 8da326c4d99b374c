"""The state of an optimizer, saved and restored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rightlung.training.weights import TrainState, frozen_copy

IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(memory_format=torch.channels_last)


def made() -> TrainState:
    """Weights as on a GPU: channels last, one of them frozen, with a fused optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.GroupNorm(1, 5))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from the stubs
    model[0].weight.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.1, fused=True)
    return TrainState(model, frozen_copy(model), model, optimizer, 0.9)


def step(state: TrainState) -> None:
    state.optimizer.zero_grad()
    (state.model(IMAGES) ** 3).mean().backward()
    state.optimizer.step()


def contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a checkpoint holds: safetensors writes contiguous tensors."""
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}


def test_a_restored_optimizer_has_the_memory_format_of_the_parameters_and_goes_on_alike() -> None:
    one, other = made(), made()
    step(one)
    other.load_state_dict(contiguous(one.state_dict()))
    for parameter, values in other.optimizer.state.items():
        assert values["exp_avg"].stride() == values["exp_avg_sq"].stride() == parameter.stride()
        assert values["step"].dtype == torch.float32
    assert any(not parameter.is_contiguous() for parameter in other.optimizer.state)
    step(one)
    step(other)
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0)
