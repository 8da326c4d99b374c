"""Where a model runs."""

from __future__ import annotations


def chosen_device(name: str | None) -> str:
    """Return the device asked for; without one, the first CUDA device if there is any, else the CPU."""
    if name is not None:
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
