"""Gather sharded (FSDP) weights for a checkpoint or a saved model, and shard them again.

Names are those of the plain model, so that a run can be resumed with or without sharding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_WRAPPINGS = ("_forward_module.", "_original_module.", "_fsdp_wrapped_module.")
_PREFIX = "model."  # of the module that calls the model


def named_parameters(wrapped: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters under the names of the plain model, however it is wrapped."""
    for name, parameter in wrapped.named_parameters():
        yield _plain_name(name), parameter


def whole_weights(wrapped: Any, current: Sequence[Tensor], averages: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Gather the weights on every process, or their EMA where ``averages`` are given."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    _exchange(current, averages)
    found: dict[str, Any] = get_model_state_dict(wrapped, options=_options(wrapped))
    _exchange(current, averages)
    return {_plain_name(name): value for name, value in found.items()}


def whole_state(
    wrapped: Any, optimizer: Any, current: Sequence[Tensor], averages: Sequence[Tensor] | None
) -> dict[str, Tensor]:
    """Gather the contents of a checkpoint."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    found = {f"weights/{name}": value for name, value in whole_weights(wrapped, current, None).items()}
    if averages is not None:
        found |= {f"ema/{name}": value for name, value in whole_weights(wrapped, current, averages).items()}
    state: Any = get_optimizer_state_dict(wrapped, optimizer, options=_options(wrapped))["state"]
    for name, values in state.items():
        found |= {f"optimizer/{_plain_name(name)}/{key}": torch.as_tensor(value) for key, value in values.items()}
    return found


@torch.no_grad()
def load_state(
    wrapped: Any,
    optimizer: Any,
    current: Sequence[Tensor],
    averages: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    average: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Shard what `whole_state` gathered."""
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    for values in (average or weights, weights):  # the EMA first: it is copied from the loaded weights
        named: Any = {_PREFIX + name: value for name, value in values.items()}
        set_model_state_dict(wrapped, named, options=_options(wrapped))
        if values is not weights or not average:
            for weight, own_average in zip(current, averages, strict=True):
                own_average.copy_(weight)
    whole: Any = get_optimizer_state_dict(wrapped, optimizer, options=_options(wrapped))
    whole["state"] = {_PREFIX + name: dict(values) for name, values in state.items()}
    set_optimizer_state_dict(wrapped, optimizer, whole, options=_options(wrapped))


def _options(wrapped: nn.Module) -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    # On the CPU, offloading would return memory that torch then frees.
    return StateDictOptions(full_state_dict=True, cpu_offload=any(value.is_cuda for value in wrapped.parameters()))


@torch.no_grad()
def _exchange(current: Sequence[Tensor], averages: Sequence[Tensor] | None) -> None:
    for weight, own_average in zip(current, averages, strict=True) if averages is not None else ():
        kept = weight.clone()
        weight.copy_(own_average)
        own_average.copy_(kept)


def _plain_name(name: str) -> str:
    for wrapping in _WRAPPINGS:
        name = name.replace(wrapping, "")
    return name.removeprefix(_PREFIX)
