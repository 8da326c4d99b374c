"""What a GLoRIA learns from: pairs, through words and regions (local) and as a whole (global), and masks where given.

Each process has its own images and texts and sees the others' through ``gather``; what it returns is the loss of its
own rows, so that the mean over processes is the loss of the joint batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize


def contrastive_loss(own_images: Tensor, own_texts: Tensor, first: int, ignored: Tensor | None = None) -> Tensor:
    """Cross-entropy both ways, added up as in both papers.

    ``own_images`` (n, m) holds the logits of this process's images against all texts, ``own_texts`` (n, m) those of its
    texts against all images; row k belongs to column ``first + k``. ``ignored`` (n, m) bool are pairs that are neither
    right nor wrong.
    """
    right = torch.arange(first, first + len(own_images), device=own_images.device)
    if ignored is not None:
        lowest = torch.finfo(own_images.dtype).min
        own_images, own_texts = own_images.masked_fill(ignored, lowest), own_texts.masked_fill(ignored, lowest)
    return cross_entropy(own_images, right) + cross_entropy(own_texts, right)


def global_logits(whole: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Cosines (n, m) of vectors (n, d) with others (m, d), times the temperature, in single precision."""
    with torch.autocast(whole.device.type, enabled=False):
        return temperature * normalize(whole.float(), dim=-1) @ normalize(others.float(), dim=-1).T


def same_texts(marks: Tensor, all_marks: Tensor, first: int) -> Tensor:
    """Which texts are the same text as a row's own, (n, m) bool, the row's own pair (column ``first + k``) left out."""
    same = marks[:, None] == all_marks[None]
    rows = torch.arange(len(marks), device=marks.device)
    same[rows, first + rows] = False
    return same


def supervised_loss(
    attention: Tensor,
    masks: Tensor,
    located: Tensor,
    present: Tensor,
    images: int,
    supervision: Literal["spread", "inside"] = "spread",
    no_attention: bool = True,
) -> Tensor:
    """Compare the logarithm of attention (p, [1 +] r) with what is known of each phrase; the sum over ``images``.

    With ``no_attention`` the first column is the attention on nothing. A phrase with a place is compared with its mask
    (p, r), shares of cells; one that is present somewhere has its attention anywhere but on nothing; one that is not
    there has it on nothing. What is unknown, or cannot be said without a No-Attn vector, does not count.
    """
    nothing = attention[:, 0] if no_attention else None
    cells = attention[:, 1:] if no_attention else attention
    area = masks.sum(1)
    placed = located & (area > 0)
    if supervision == "spread":
        of_place = -(masks / area.clamp_min(1e-6)[:, None] * cells).sum(1)
    else:
        of_place = -torch.logsumexp(cells + masks.clamp_min(1e-12).log(), dim=1)
    zero = attention.new_zeros(())
    losses = torch.where(placed, of_place, zero)
    if nothing is not None:
        somewhere = torch.logsumexp(cells, dim=1)
        losses = losses + torch.where(~placed & (present == 1), -somewhere, zero)
        losses = losses + torch.where(~placed & (present == 0), -nothing, zero)
    return losses.sum() / max(images, 1)
