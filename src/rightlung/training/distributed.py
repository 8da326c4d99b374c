"""Gather a tensor from all processes, with gradients, so that contrastive losses see the global batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _Gathered(torch.autograd.Function):
    """Concatenates tensors of one shape from all processes along the first axis; sums gradients over processes.

    Every process's loss depends on everybody's tensors. Data-parallel training then takes the mean over processes of
    the weights' gradients, which makes the whole the gradient of the mean of the processes' losses.
    """

    @staticmethod
    def forward(context: Any, own: Tensor) -> Tensor:
        context.rows = len(own)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous().clone()
        dist.all_reduce(gradient)
        begin = dist.get_rank() * context.rows
        return gradient[begin : begin + context.rows]


def gather(own: Tensor) -> Tensor:
    """Concatenate the tensors of all processes along the first axis, in the order of ranks.

    Shapes may differ: other axes are padded with zeros to the longest (texts of fewer words). With one process the
    tensor itself is returned.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return own
    shape = torch.tensor(own.shape, device=own.device)
    shapes = [torch.empty_like(shape) for _ in range(dist.get_world_size())]
    dist.all_gather(shapes, shape)
    sizes = [tuple(other.tolist()) for other in shapes]
    largest = tuple(max(side) for side in zip(*sizes, strict=True))
    given = own if own.is_floating_point() else own.long()  # some backends cannot gather booleans
    joined: Tensor = _Gathered.apply(_padded(given, largest)).to(own.dtype)  # type: ignore[no-untyped-call]
    if len({size[0] for size in sizes}) == 1:
        return joined
    return torch.cat([part[: size[0]] for part, size in zip(torch.split(joined, largest[0]), sizes, strict=True)])


def _padded(own: Tensor, shape: tuple[int, ...]) -> Tensor:
    missing = [want - have for have, want in zip(own.shape, shape, strict=True)]
    padding = [side for more in reversed(missing) for side in (0, more)]
    return torch.nn.functional.pad(own, padding) if any(missing) else own


def any_process(fabric: Any, here: bool) -> bool:
    """Whether a condition holds in any process. All processes must call it."""
    if fabric.world_size == 1:
        return here
    flag = torch.tensor(float(here), device=fabric.device)
    return bool(fabric.all_reduce(flag, reduce_op="max"))
