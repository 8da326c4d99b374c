"""The weights of a run, their moving average and the optimiser, and how all of them become named tensors and back."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rightlung.core import InputError
from rightlung.training import sharding
from rightlung.training.recipe import Optimiser, Schedule


def rate_at(step: int, rate: float, schedule: Schedule) -> float:
    """Return the learning rate of a step, counted from 0: a rise, then half a cosine down to ``last``."""
    if step < schedule.warm_up:
        return rate * (step + 1) / schedule.warm_up
    done = (step - schedule.warm_up) / max(1, schedule.steps - schedule.warm_up)
    return rate * (schedule.last + (1 - schedule.last) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def build_optimiser(parameters: Mapping[str, nn.Parameter], settings: Optimiser) -> torch.optim.Optimizer:
    """Return the optimiser. Norms and biases do not decay; parameters of ``rates`` have rates of their own."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    used: set[str] = set()
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            continue
        prefixes = sorted((prefix for prefix in settings.rates if name.startswith(prefix)), key=len)
        used.update(prefixes[-1:])
        factor = settings.rates[prefixes[-1]] if prefixes else 1.0
        groups.setdefault((factor, parameter.ndim > 1), []).append(parameter)
    for prefix in settings.rates:
        if prefix not in used:
            raise InputError(f"optimiser.rates.{prefix}: no parameter's name begins with {prefix!r}")
    if not groups:
        raise InputError("the model has no parameter that could be trained")
    described = [
        {"params": chosen, "weight_decay": settings.weight_decay if decays else 0.0, "factor": factor}
        for (factor, decays), chosen in groups.items()
    ]
    if settings.name == "sgd":
        return torch.optim.SGD(described, lr=settings.rate, momentum=settings.betas[0])
    fused = all(parameter.is_cuda for parameter in parameters.values())
    return torch.optim.AdamW(described, lr=settings.rate, betas=settings.betas, fused=fused or None)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, times the group's factor."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["factor"]


def move(optimiser: Any, step: int, rate: float) -> None:
    """Let the optimiser move the weights at a step, counted from 0."""
    try:
        optimiser.step()
    except RuntimeError as error:
        if "without overflow" not in str(error):  # PyTorch has no type for a rate or a decay that is too large
            raise
        raise InputError(
            f"the weights cannot be moved at step {step + 1}, at a learning rate of {rate:.3g}: more than single "
            "precision can hold; a lower optimiser.rate may help"
        ) from None


class Weights:
    """What a run changes. ``model`` is the plain module, ``wrapped`` what runs it (which may be sharded)."""

    def __init__(
        self, model: nn.Module, averaged: nn.Module, wrapped: nn.Module, optimiser: Any, averaging: float, sharded: bool
    ) -> None:
        self.model, self.averaged, self.wrapped, self.optimiser = model, averaged, wrapped, optimiser
        self.averaging, self.sharded = averaging, sharded
        if sharded:
            self._leaders = [parameter.detach() for parameter in wrapped.parameters()]
            self._followers = [leader.clone() for leader in self._leaders]
        else:
            self._leaders = _floating(model)
            self._followers = _floating(averaged)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Move the average towards the weights after ``step`` steps; its memory is short at first."""
        if self.averaging > 0:
            torch._foreach_lerp_(self._followers, self._leaders, 1 - min(self.averaging, step / (step + 9)))

    @torch.no_grad()
    def averaged_model(self) -> nn.Module:
        """Return the model that is saved and validated, with the averaged weights. All processes must call it."""
        if self.sharded:
            followers = self._followers if self.averaging > 0 else None
            self.averaged.load_state_dict(sharding.whole_weights(self.wrapped, self._leaders, followers))
        else:
            own = self.averaged.state_dict()
            for name, tensor in self.model.state_dict().items():
                if self.averaging == 0 or not tensor.is_floating_point():
                    own[name].copy_(tensor)
        return self.averaged.eval()

    def finite(self) -> bool:
        """Whether all parameters of this process, and their average, are numbers. (A buffer may hold an infinity.)"""
        followers = self._followers if self.sharded else list(self.averaged.parameters())
        trained = [*self.wrapped.parameters(), *(followers if self.averaging > 0 else ())]
        return bool(torch.stack([value.detach().isfinite().all() for value in trained]).all())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything by name, for a checkpoint. All processes must call it."""
        if self.sharded:
            followers = self._followers if self.averaging > 0 else None
            return sharding.whole_state(self.wrapped, self.optimiser, self._leaders, followers)
        found = {f"weights/{name}": value for name, value in self.model.state_dict().items()}
        if self.averaging > 0:
            found |= {f"average/{name}": value for name, value in self.averaged.state_dict().items()}
        names = self._names()
        for number, values in self.optimiser.state_dict()["state"].items():
            for key, value in values.items():
                if value is not None:
                    found[f"optimiser/{names[number]}/{key}"] = torch.as_tensor(value)
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` returned."""
        weights, average, flat = (
            {name.removeprefix(part): value for name, value in tensors.items() if name.startswith(part)}
            for part in ("weights/", "average/", "optimiser/")
        )
        state: dict[str, dict[str, Tensor]] = {}
        for name, value in flat.items():
            parameter, _, key = name.rpartition("/")
            state.setdefault(parameter, {})[key] = value
        if self.sharded:
            sharding.load_state(self.wrapped, self.optimiser, self._leaders, self._followers, weights, average, state)
            return
        self.model.load_state_dict(weights)
        if average:
            self.averaged.load_state_dict(average)
        numbers = {name: number for number, name in enumerate(self._names())}
        whole = self.optimiser.state_dict()
        whole["state"] = {numbers[name]: values for name, values in state.items()}
        self.optimiser.load_state_dict(whole)

    def _names(self) -> list[str]:
        """The parameters' names in the optimiser's order."""
        by_identity = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [by_identity[id(parameter)] for group in self.optimiser.param_groups for parameter in group["params"]]


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model that is not trained itself."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def _floating(model: nn.Module) -> list[Tensor]:
    """Weights and running statistics, the tensors themselves; tied ones once."""
    return list(
        {value.data_ptr(): value for value in model.state_dict().values() if value.is_floating_point()}.values()
    )
