"""What a GLoRIA learns from: pairs, through words and regions (local) and as a whole (global), and masks where given.

Each process has its own images and texts and sees the others' through ``gather``; what it returns is the loss of its
own rows, so that the mean over processes is the loss of the joint batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, softplus


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which texts of the joint batch belong to which images, as this process sees it.

    ``of`` (m,) are the images of its own texts, numbered in the joint batch, ``all_of`` (M,) those of all texts;
    ``first`` and ``first_image`` are the numbers of its own first text and image. ``same`` (m, M) bool says which texts
    are the very same, which are then neither right nor wrong; None where all are wrong.
    """

    of: Tensor
    all_of: Tensor
    first: int
    first_image: int
    same: Tensor | None


def contrastive_loss(own_images: Tensor, own_texts: Tensor, pairs: Pairs, contrary: Tensor | None = None) -> Tensor:
    """Cross-entropy both ways, added up as in both papers: a mean over this process's texts.

    ``own_images`` (n, M) holds the logits of this process's images against all texts, ``own_texts`` (m, N) those of its
    texts against all images. Other texts of an image are neither right nor wrong beside the one that is asked about.
    ``contrary`` (m,) are the logits of each text's image with the contrary of the text, -inf where there is none: one
    more text that is wrong.
    """
    lowest = torch.finfo(own_images.dtype).min
    rows = torch.arange(len(pairs.of), device=own_images.device)
    beside = pairs.all_of[None] == pairs.of[:, None]
    if pairs.same is not None:
        beside = beside | pairs.same
        # An image that has the same text is neither right nor wrong for it.
        of_each = pairs.all_of.expand(len(pairs.of), -1)
        too = torch.zeros_like(own_texts).scatter_reduce(1, of_each, pairs.same.to(own_texts.dtype), "amax") > 0
        too[rows, pairs.of] = False
        own_texts = own_texts.masked_fill(too, lowest)
    beside[rows, pairs.first + rows] = False
    of_images = own_images[pairs.of - pairs.first_image].masked_fill(beside, lowest)
    if contrary is not None:
        of_images = torch.cat([of_images, contrary[:, None].to(of_images.dtype)], dim=1)
    return cross_entropy(of_images, pairs.first + rows) + cross_entropy(own_texts, pairs.of)


def global_logits(whole: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Cosines (n, m) of vectors (n, d) with others (m, d), times the temperature, in single precision."""
    with torch.autocast(whole.device.type, enabled=False):
        return temperature * normalize(whole.float(), dim=-1) @ normalize(others.float(), dim=-1).T


def sentence_similarity(
    sentences: Tensor, regions: Tensor, temperature: Tensor | float, paired: bool = False
) -> Tensor:
    """Similarity (t, i) of sentences (t, d) with the regions (i, r, d) that fit them best, in single precision.

    A soft maximum over the regions: the logarithm of the mean of exp(temperature times score), over the temperature.
    ``paired`` compares pair by pair, (n,).
    """
    with torch.autocast(sentences.device.type, enabled=False):
        scores = torch.einsum("nd,nrd->nr" if paired else "td,ird->tir", sentences.float(), regions.float())
        return (torch.logsumexp(temperature * scores, dim=-1) - math.log(scores.shape[-1])) / temperature


def apart_loss(attention: Tensor, contrary: Tensor, margin: float = 1.0) -> Tensor:
    """How much a contrary text attends where its text does, (p,), from the logarithms of both attentions (p, r).

    Where the text attends, the contrary is to have less than an even share by a factor of e to the ``margin``. Only the
    contrary is moved.
    """
    own, other = attention.detach().float().softmax(dim=-1), contrary.float().log_softmax(dim=-1)
    return softplus((own * (other + math.log(other.shape[-1]))).sum(-1) + margin)


def abstain_loss(attention: Tensor, contrary: Tensor) -> Tensor:
    """What it costs, (p,), that a text attends to nothing and its contrary to something.

    From the logarithms of both attentions (p, 1 + r), the first of each that on nothing.
    """
    return -torch.logsumexp(attention[:, 1:].float(), dim=-1) - contrary[:, 0].float()


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
