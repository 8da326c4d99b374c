"""Sharded (FSDP) weights: gathered for a checkpoint or a saved model, and sharded again.

Names are those of the plain model, so that a run can be resumed with or without sharding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.training.weights import TrainState

_WRAPPINGS = ("_forward_module.", "_original_module.", "_fsdp_wrapped_module.")
_PREFIX = "model."  # of the module that calls the model


def named_parameters(wrapped: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield parameters under the names of the plain model, however it is wrapped."""
    for name, parameter in wrapped.named_parameters():
        yield _plain_name(name), parameter


class ShardedTrainState(TrainState):
    """`TrainState` of a module of which each process holds its shards."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._current = [parameter.detach() for parameter in self.wrapped.parameters()]
        self._average = self._ema_parameters = [weight.clone() for weight in self._current]

    def ema_model(self) -> nn.Module:
        """Return the model with the EMA weights. All processes must call it."""
        self._ema_model.load_state_dict(self._gathered(averaged=self.ema > 0))
        return self._ema_model.eval()

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything by name, for a checkpoint. All processes must call it."""
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        found = {f"weights/{name}": value for name, value in self._gathered().items()}
        if self.ema > 0:
            found |= {f"ema/{name}": value for name, value in self._gathered(averaged=True).items()}
        state: Any = get_optimizer_state_dict(self.wrapped, self.optimizer, options=self._options())["state"]
        for name, values in state.items():
            found |= {f"optimizer/{_plain_name(name)}/{key}": torch.as_tensor(value) for key, value in values.items()}
        return found

    @torch.no_grad()
    def _load(
        self, weights: Mapping[str, Tensor], average: Mapping[str, Tensor], state: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        from torch.distributed.checkpoint import state_dict

        for values in (average or weights, weights):  # the EMA first: it is copied from the loaded weights
            named: Any = {_PREFIX + name: value for name, value in values.items()}
            state_dict.set_model_state_dict(self.wrapped, named, options=self._options())
            if values is not weights or not average:
                torch._foreach_copy_(self._average, self._current)
        whole: Any = state_dict.get_optimizer_state_dict(self.wrapped, self.optimizer, options=self._options())
        whole["state"] = {_PREFIX + name: dict(values) for name, values in state.items()}
        state_dict.set_optimizer_state_dict(self.wrapped, self.optimizer, whole, options=self._options())

    @torch.no_grad()
    def _gathered(self, averaged: bool = False) -> dict[str, Tensor]:
        """Return the weights, or their EMA, which takes their place meanwhile, gathered on every process."""
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        self._exchange(averaged)
        found: dict[str, Any] = get_model_state_dict(self.wrapped, options=self._options())
        self._exchange(averaged)
        return {_plain_name(name): value for name, value in found.items()}

    def _exchange(self, averaged: bool) -> None:
        for weight, average in zip(self._current, self._average, strict=True) if averaged else ():
            kept = weight.clone()  # one at a time, to save memory
            weight.copy_(average)
            average.copy_(kept)

    def _options(self) -> Any:
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        # On the CPU, offloading would return memory that torch then frees.
        offload = any(value.is_cuda for value in self.wrapped.parameters())
        return StateDictOptions(full_state_dict=True, cpu_offload=offload)


def _plain_name(name: str) -> str:
    for wrapping in _WRAPPINGS:
        name = name.replace(wrapping, "")
    return name.removeprefix(_PREFIX)
