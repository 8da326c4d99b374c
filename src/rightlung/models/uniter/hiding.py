"""What a UNITER's tasks hide or exchange. All chance is drawn on the CPU, so that every device sees the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

REPLACED, KEPT = 0.1, 0.1
"""Shares of the chosen pieces that become another piece, or stay, instead of becoming ``[MASK]`` (BERT, 3.1)."""


def choose(may: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Choose of what ``may`` (n, m) be chosen by a chance of ``share``, in each row at least one where there is any."""
    drawn = torch.rand(may.shape, generator=generator).to(may.device, non_blocking=True).masked_fill(~may, 2.0)
    least = drawn.amin(dim=1, keepdim=True) if may.shape[1] else drawn
    return may & ((drawn < share) | (drawn == least))


def hide_pieces(
    ids: Tensor, chosen: Tensor, mask: int, vocabulary: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return the pieces (n, length) with the chosen ones as ``[MASK]``, some of them as any piece or as they were."""
    fate = torch.rand(ids.shape, generator=generator)
    others = torch.randint(vocabulary, ids.shape, generator=generator)
    hidden = torch.where(fate < REPLACED, others, mask)
    return torch.where(chosen & (fate < 1.0 - KEPT), hidden, ids)


def exchange(texts: Sequence[str], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Give half of the images another one's text: whose text each has now (n,), and whether it is its own (n,), 1 or 0.

    The same words from another image are right, too. (Other words may be, too, which UNITER passes over.)
    """
    count = len(texts)
    order = torch.randperm(count, generator=generator)
    half = count // 2
    whose = torch.arange(count)
    whose[order[:half]] = order[1 : half + 1]
    right = [float(texts[other] == text) for text, other in zip(texts, whose.tolist(), strict=True)]
    return whose, torch.tensor(right)
