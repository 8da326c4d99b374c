"""Grad-CAM (Selvaraju et al., ICCV 2017) at a named layer of any encoder, convolutional or transformer.

A forward hook records the activations, and autograd gives the gradients. The encoder is not changed.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from rightlung.core import InputError, Size
from rightlung.core.checks import check_size
from rightlung.explain.gradcam import grad_cam


class ActivationHook:
    """Record the output of a layer while the model runs, and compute Grad-CAM of a score from it.

    ::

        with ActivationHook(model, "encoder.stages.3") as layer:
            score = model(pixels).logits[:, 4]
            maps = layer.grad_cam(score)

    The output may be feature maps ``(n, channels, rows, cols)`` (or channels last) or tokens ``(n, tokens, channels)``.
    Tokens lie on ``grid``, and tokens before it (class token, registers) are left out; the default is a square grid
    with or without one class token. If the layer runs more than once, the last run counts.
    """

    def __init__(self, model: nn.Module, layer: str, *, grid: Size | None = None, channels_last: bool = False) -> None:
        self.name = layer
        self.grid = None if grid is None else check_size(grid, "grid")
        self.channels_last = channels_last
        self.activations: torch.Tensor | None = None
        self._module = _layer(model, layer)
        self._handle: torch.utils.hooks.RemovableHandle | None = None

    def __enter__(self) -> ActivationHook:
        self._handle = self._module.register_forward_hook(self._keep)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _keep(self, module: nn.Module, inputs: object, output: object) -> None:
        activations = _first_tensor(output, self.name)
        if not activations.requires_grad and torch.is_grad_enabled():
            activations.requires_grad_()  # nothing before the layer requires gradients in a frozen encoder
        self.activations = activations

    def grad_cam(self, score: torch.Tensor) -> torch.Tensor:
        """Return the maps ``(n, rows, cols)`` of a score: one number per image, or their sum."""
        if self.activations is None:
            raise InputError(f"layer {self.name!r} did not run: the model was not called or does not use it")
        if not score.requires_grad:
            raise InputError("the score has no gradient; compute it from the model's output inside torch.enable_grad()")
        (gradients,) = torch.autograd.grad(score.sum(), self.activations, allow_unused=True, retain_graph=True)
        if gradients is None:
            raise InputError(f"the score does not depend on layer {self.name!r}")
        features, slopes = (self._as_maps(part) for part in (self.activations.detach(), gradients))
        if not bool(slopes.any()) and bool(gradients.any()):
            raise InputError(f"the score uses only the class token of layer {self.name!r}; choose an earlier layer")
        return grad_cam(features, slopes)

    def _as_maps(self, values: torch.Tensor) -> torch.Tensor:
        """Return a layer's output as ``(n, channels, rows, cols)``."""
        if values.ndim == 4:
            return values.permute(0, 3, 1, 2) if self.channels_last else values
        if values.ndim != 3:
            expected = "(n, channels, rows, cols) or (n, tokens, channels)"
            raise InputError(f"layer {self.name!r} must return {expected}; got {tuple(values.shape)}")
        count = values.shape[1]
        rows, columns = self.grid or _square(count, self.name)
        before = count - rows * columns
        if before < 0:
            raise InputError(f"layer {self.name!r} has {count} tokens, too few for a grid of {rows} x {columns}")
        return values[:, before:].transpose(1, 2).reshape(len(values), -1, rows, columns)


def encoder_grad_cam(
    model: nn.Module,
    layer: str,
    score: Callable[[Any], torch.Tensor],
    *inputs: Any,
    grid: Size | None = None,
    channels_last: bool = False,
    **named_inputs: Any,
) -> torch.Tensor:
    """Call the model and return Grad-CAM ``(n, rows, cols)`` at ``layer`` for ``score`` of its output.

    ``score`` returns one number per image (or their sum), such as ``lambda output: output.logits[:, 4]``.
    """
    with torch.enable_grad(), ActivationHook(model, layer, grid=grid, channels_last=channels_last) as hook:
        return hook.grad_cam(score(model(*inputs, **named_inputs)))


def _layer(model: nn.Module, name: str) -> nn.Module:
    modules: dict[str, nn.Module] = dict(model.named_modules())
    if name not in modules:
        near = difflib.get_close_matches(name, modules, n=1, cutoff=0.3)
        suggestion = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(f"unknown layer {name!r}{suggestion} model.named_modules() lists all {len(modules):,}")
    return modules[name]


def _first_tensor(output: object, name: str) -> torch.Tensor:
    """Return the first tensor of a layer's output."""
    found = output
    if isinstance(found, Mapping):
        found = next(iter(found.values()), None)
    if isinstance(found, tuple | list):
        found = found[0] if found else None
    if not isinstance(found, torch.Tensor):
        raise InputError(f"layer {name!r} returns {type(output).__name__}, which does not start with a tensor")
    return found


def _square(tokens: int, name: str) -> Size:
    for count in (tokens, tokens - 1):
        side = math.isqrt(max(count, 0))
        if side and side * side == count:
            return side, side
    raise InputError(f"layer {name!r} has {tokens} tokens, which are not on a square grid; pass grid=(rows, cols)")
