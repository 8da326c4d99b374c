"""Random masking and text exchange for UNITER's losses, drawn on the CPU so that every device gives the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

REPLACED, KEPT = 0.1, 0.1
"""Shares of the masked tokens that become a random token, or stay, instead of becoming ``[MASK]`` (BERT, 3.1)."""


def draw_mask(candidates: Tensor, probability: float, generator: torch.Generator | None = None) -> Tensor:
    """Return a random mask (n, m) of the ``candidates`` (n, m): at least one in every row that has any."""
    drawn = torch.rand(candidates.shape, generator=generator).to(candidates.device, non_blocking=True)
    drawn = drawn.masked_fill(~candidates, 2.0)
    least = drawn.amin(dim=1, keepdim=True) if candidates.shape[1] else drawn
    return candidates & ((drawn < probability) | (drawn == least))


def mask_tokens(
    ids: Tensor, mask: Tensor, mask_id: int, vocabulary: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return token ids (n, length) with the masked ones as ``[MASK]``, a random token, or unchanged."""
    fate = torch.rand(ids.shape, generator=generator)
    random_ids = torch.randint(vocabulary, ids.shape, generator=generator)
    return torch.where(mask & (fate < 1.0 - KEPT), torch.where(fate < REPLACED, random_ids, mask_id), ids)


def exchange_texts(texts: Sequence[str], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Give half of the images another image's text: the index of each image's text (n,), and whether it matches (n,).

    The same words from another image match (1.0). Other words may match, too, which UNITER ignores.
    """
    count = len(texts)
    order = torch.randperm(count, generator=generator)
    half = count // 2
    indices = torch.arange(count)
    indices[order[:half]] = order[1 : half + 1]
    matches = [float(texts[other] == text) for text, other in zip(texts, indices.tolist(), strict=True)]
    return indices, torch.tensor(matches)
