"""Attention of words over regions as maps, with the attention on the no-attention token as abstention.

"That's the Wrong Lung!" (section 4.1) prepends one learned vector to the regions. In GLoRIA (Eq. 4) each word has one
distribution over regions; a sentence's map is their mean.
"""

from __future__ import annotations

import torch

from rightlung.core import InputError, Size
from rightlung.core.checks import check_size


def attention_maps(
    weights: torch.Tensor, grid: Size, *, words: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return maps ``(n, rows, cols)`` and abstentions ``(n,)`` from attention ``(n, words, regions)``.

    Regions are in reading order. If there is one more column than the grid has cells, the **first** is the No-Attn
    token, and its share of the attention is the abstention (else 0). The map is the mean over the words that ``words``
    ``(n, words)`` selects (not padding or special tokens; default: all). Without any word the map is empty and, with a
    no-attention token, the abstention 1.

    >>> maps, abstention = attention_maps(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]]]), (1, 2))
    >>> [round(value, 3) for value in maps.flatten().tolist()], round(abstention.item(), 3)
    ([0.575, 0.125], 0.3)
    """
    rows, columns = check_size(grid, "grid")
    if weights.ndim != 3 or weights.shape[2] not in (rows * columns, rows * columns + 1):
        shape = f"(n, words, {rows * columns}), or one more with a no-attention token"
        raise InputError(f"attention over {rows} x {columns} cells must be {shape}; got {tuple(weights.shape)}")
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise InputError("attention weights must be finite and non-negative")
    if words is None:
        words = torch.ones(weights.shape[:2], device=weights.device)
    if words.shape != weights.shape[:2]:
        raise InputError(f"words must have shape {tuple(weights.shape[:2])}; got {tuple(words.shape)}")
    counted = words.bool().to(weights.dtype)
    mean = torch.einsum("nw,nwr->nr", counted, weights) / counted.sum(dim=1, keepdim=True).clamp_min(1.0)
    has_slot = weights.shape[2] == rows * columns + 1
    if not has_slot:
        return mean.reshape(-1, rows, columns), torch.zeros_like(mean[:, 0])
    total = mean.sum(dim=1)
    share = mean[:, 0] / torch.where(total > 0, total, 1.0)
    abstention = torch.where(total > 0, share, 1.0).clamp(0.0, 1.0)  # rounding may exceed 1
    return mean[:, 1:].reshape(-1, rows, columns), abstention
