"""A model with random weights instead of its own: what do its answers owe to the architecture alone?"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from rightlung.core import InputError


def untrained(model: Any, seed: int = 0) -> Any:
    """Return a copy of a model with random weights, equal for equal seeds.

    Every module is initialised as PyTorch does it; parameters that no module initialises get normal numbers with the
    mean and standard deviation of the trained ones, and single numbers (temperatures, gates) stay. A model that is no
    torch module is copied with its torch modules exchanged; it is an error if it has none.
    """
    modules = {"": model} if isinstance(model, nn.Module) else getattr(model, "__dict__", {})
    modules = {name: one for name, one in modules.items() if isinstance(one, nn.Module)}
    if not any(True for one in modules.values() for _ in one.parameters()):
        raise InputError(
            f"{type(model).__name__} has no weights of PyTorch that could be re-initialised: leave out the condition "
            "untrained"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        changed = {name: _initialised(one) for name, one in modules.items()}
    if "" in changed:
        return changed[""]
    made = copy.copy(model)
    vars(made).update(changed)
    return made


@torch.no_grad()
def _initialised(module: nn.Module) -> nn.Module:
    made = copy.deepcopy(module)
    device = next(made.parameters()).device
    made.cpu()  # random numbers must not depend on the device
    for part in made.modules():
        reset = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
            continue
        for parameter in part.parameters(recurse=False):
            if parameter.numel() > 1:
                parameter.normal_(float(parameter.mean()), float(parameter.std()))
    return made.to(device)
