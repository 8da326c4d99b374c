"""Weights that are spread over processes (FSDP), gathered for a checkpoint or for the model, and spread again.

The names are those of the plain model, so that a run may go on with or without sharding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_WRAPPINGS = ("_forward_module.", "_original_module.", "_fsdp_wrapped_module.")
_PREFIX = "model."  # of the module that calls the model


def named_parameters(wrapped: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters by the names that the plain model gives them, however it is wrapped."""
    for name, parameter in wrapped.named_parameters():
        yield _plain_name(name), parameter


def whole_weights(wrapped: Any, leaders: Sequence[Tensor], followers: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Gather the weights on every process; those of ``followers``, their average, where it is given."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    _exchange(leaders, followers)
    found: dict[str, Any] = get_model_state_dict(wrapped, options=_options(wrapped))
    _exchange(leaders, followers)
    return {_plain_name(name): value for name, value in found.items()}


def whole_state(
    wrapped: Any, optimiser: Any, leaders: Sequence[Tensor], followers: Sequence[Tensor] | None
) -> dict[str, Tensor]:
    """Gather everything that a checkpoint holds."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    found = {f"weights/{name}": value for name, value in whole_weights(wrapped, leaders, None).items()}
    if followers is not None:
        found |= {f"average/{name}": value for name, value in whole_weights(wrapped, leaders, followers).items()}
    state: Any = get_optimizer_state_dict(wrapped, optimiser, options=_options(wrapped))["state"]
    for name, values in state.items():
        found |= {f"optimiser/{_plain_name(name)}/{key}": torch.as_tensor(value) for key, value in values.items()}
    return found


@torch.no_grad()
def load_state(
    wrapped: Any,
    optimiser: Any,
    leaders: Sequence[Tensor],
    followers: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    average: Mapping[str, Tensor],
    state: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Spread what `whole_state` gathered."""
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    for values in (average or weights, weights):  # the average first, from where the followers take it
        named: Any = {_PREFIX + name: value for name, value in values.items()}
        set_model_state_dict(wrapped, named, options=_options(wrapped))
        if values is not weights or not average:
            for leader, follower in zip(leaders, followers, strict=True):
                follower.copy_(leader)
    whole: Any = get_optimizer_state_dict(wrapped, optimiser, options=_options(wrapped))
    whole["state"] = {_PREFIX + name: dict(values) for name, values in state.items()}
    set_optimizer_state_dict(wrapped, optimiser, whole, options=_options(wrapped))


def _options(wrapped: nn.Module) -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    # On the CPU there is nothing to move away, and torch would hand out memory that it then frees.
    return StateDictOptions(full_state_dict=True, cpu_offload=any(value.is_cuda for value in wrapped.parameters()))


@torch.no_grad()
def _exchange(leaders: Sequence[Tensor], followers: Sequence[Tensor] | None) -> None:
    for leader, follower in zip(leaders, followers, strict=True) if followers is not None else ():
        kept = leader.clone()
        leader.copy_(follower)
        follower.copy_(kept)


def _plain_name(name: str) -> str:
    for wrapping in _WRAPPINGS:
        name = name.replace(wrapping, "")
    return name.removeprefix(_PREFIX)
