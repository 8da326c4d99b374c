"""A short hash of a model's weights: a retrained model may keep its name."""

from __future__ import annotations

import hashlib

import torch


def weights_digest(model: object) -> str | None:
    """Return 16 hexadecimal digits that depend on a torch model's weights, None for any other model."""
    if not isinstance(model, torch.nn.Module):
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
