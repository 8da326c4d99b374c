"""The weights of a run, their exponential moving average (EMA) and the optimizer; as named tensors for checkpoints."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rightlung.core import InputError
from rightlung.training.recipe import Optimizer, Recipe


def learning_rate_at(step: int, recipe: Recipe) -> float:
    """Return the learning rate of a step, counted from 0: linear warm-up, then cosine decay."""
    schedule, highest = recipe.schedule, recipe.optimizer.learning_rate
    if step < schedule.warmup_steps:
        return highest * (step + 1) / schedule.warmup_steps
    done = (step - schedule.warmup_steps) / max(1, schedule.steps - schedule.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return highest * (schedule.final_learning_rate_factor + (1 - schedule.final_learning_rate_factor) * cosine)


def build_optimizer(parameters: Mapping[str, nn.Parameter], settings: Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer. Norms and biases have no weight decay; ``learning_rate_factors`` make parameter groups."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    used: set[str] = set()
    factors = settings.learning_rate_factors
    for name, parameter in parameters.items():
        if not parameter.requires_grad:
            continue
        prefixes = sorted((prefix for prefix in factors if name.startswith(prefix)), key=len)
        used.update(prefixes[-1:])
        factor = factors[prefixes[-1]] if prefixes else 1.0
        groups.setdefault((factor, parameter.ndim > 1), []).append(parameter)
    for prefix in factors:
        if prefix not in used:
            raise InputError(f"optimizer.learning_rate_factors.{prefix}: no parameter's name begins with {prefix!r}")
    if not groups:
        raise InputError("the model has no trainable parameter")
    described = [
        {"params": chosen, "weight_decay": settings.weight_decay if decays else 0.0, "factor": factor}
        for (factor, decays), chosen in groups.items()
    ]
    if settings.name == "sgd":
        return torch.optim.SGD(described, lr=settings.learning_rate, momentum=settings.betas[0])
    fused = all(parameter.is_cuda for parameter in parameters.values())
    return torch.optim.AdamW(described, lr=settings.learning_rate, betas=settings.betas, fused=fused or None)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of every parameter group, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["factor"]


class TrainState:
    """Weights, their EMA and the optimizer. ``model`` is the plain module, ``wrapped`` the one that runs."""

    def __init__(
        self, model: nn.Module, ema_model: nn.Module, wrapped: nn.Module, optimizer: torch.optim.Optimizer, ema: float
    ) -> None:
        self.model, self._ema_model, self.wrapped, self.optimizer = model, ema_model, wrapped, optimizer
        self.ema = ema
        self._current, self._average = _floating(model), _floating(ema_model)
        self._ema_parameters: list[Tensor] = list(ema_model.parameters())

    @torch.no_grad()
    def update_ema(self, step: int) -> None:
        """Update the EMA after ``step`` steps; its decay is lower at first."""
        if self.ema > 0:
            torch._foreach_lerp_(self._average, self._current, 1 - min(self.ema, step / (step + 9)))

    @torch.no_grad()
    def ema_model(self) -> nn.Module:
        """Return the model with the EMA weights, which is validated and saved. All processes must call it."""
        own = self._ema_model.state_dict()
        for name, tensor in self.model.state_dict().items():
            if self.ema == 0 or not tensor.is_floating_point():
                own[name].copy_(tensor)
        return self._ema_model.eval()

    def finite(self) -> bool:
        """Whether all parameters of this process and their EMA are finite. (A buffer may hold an infinity.)"""
        trained = [*self.wrapped.parameters(), *(self._ema_parameters if self.ema > 0 else ())]
        return bool(torch.stack([value.detach().isfinite().all() for value in trained]).all())

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything by name, for a checkpoint. All processes must call it."""
        found = {f"weights/{name}": value for name, value in self.model.state_dict().items()}
        if self.ema > 0:
            found |= {f"ema/{name}": value for name, value in self._ema_model.state_dict().items()}
        names = self._names()
        for number, values in self.optimizer.state_dict()["state"].items():
            for key, value in values.items():
                if value is not None:
                    found[f"optimizer/{names[number]}/{key}"] = torch.as_tensor(value)
        return found

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        weights, average, flat = (
            {name.removeprefix(part): value for name, value in tensors.items() if name.startswith(part)}
            for part in ("weights/", "ema/", "optimizer/")
        )
        state: dict[str, dict[str, Tensor]] = {}
        for name, value in flat.items():
            parameter, _, key = name.rpartition("/")
            state.setdefault(parameter, {})[key] = value
        self._load(weights, average, state)

    def _load(
        self, weights: Mapping[str, Tensor], average: Mapping[str, Tensor], state: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        self.model.load_state_dict(weights)
        if average:
            self._ema_model.load_state_dict(average)
        numbers = {name: number for number, name in enumerate(self._names())}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        whole = self.optimizer.state_dict()
        whole["state"] = {
            numbers[name]: {key: _like_parameter(value, parameters[numbers[name]], key) for key, value in own.items()}
            for name, own in state.items()
        }
        self.optimizer.load_state_dict(whole)

    def _names(self) -> list[str]:
        """The parameters' names in the optimizer's order."""
        by_identity = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [by_identity[id(parameter)] for group in self.optimizer.param_groups for parameter in group["params"]]


def frozen_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model without gradients, in evaluation mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def _like_parameter(value: Tensor, parameter: Tensor, key: str) -> Tensor:
    """Return a value of the optimizer's state with its parameter's type, device and memory format.

    A checkpoint is contiguous. Fused optimizers need the strides of the parameter, which may be channels last.
    """
    if key == "step" or value.shape != parameter.shape:
        return value  # torch itself knows where a step count belongs
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _floating(model: nn.Module) -> list[Tensor]:
    """Weights and running statistics, the tensors themselves; tied ones once."""
    return list(
        {value.data_ptr(): value for value in model.state_dict().values() if value.is_floating_point()}.values()
    )
