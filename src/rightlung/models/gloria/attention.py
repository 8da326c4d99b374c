"""Attention of words on regions (GLoRIA, Eq. 1), and what it makes similar.

Shapes: ``t`` texts of ``w`` words, ``i`` images of ``r`` regions, vectors of ``d``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CELLS_AT_ONCE = {"cuda": 1 << 27, "cpu": 1 << 21}
"""How many scores (texts x words x images x regions) are held at a time: half a gigabyte, or what a cache holds."""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """The part of the settings that the arithmetic needs; ``temperature`` may be a learned scalar."""

    softmaxes: Literal[1, 2]
    temperature: Tensor | float


def attend(scores: Tensor, real: Tensor, rule: AttentionRule) -> Tensor:
    """Turn scores (t, w, ..., r) into attention over regions, (t, w, ..., r).

    With two softmaxes the first is over the real words (t, w) of a text; what padding attends to means nothing.
    """
    if rule.softmaxes == 2:
        hidden = ~real.reshape(*real.shape, *(1,) * (scores.ndim - 2))
        scores = scores.masked_fill(hidden, -math.inf).softmax(dim=1)
    return (scores * rule.temperature).softmax(dim=-1)


def local_similarity(
    words: Tensor, real: Tensor, regions: Tensor, rule: AttentionRule, word_temperature: float = 5.0
) -> Tensor:
    """Similarity of every text with every image through their words and regions, (t, i).

    ``words`` (t, w, d), ``real`` (t, w) bool, ``regions`` (i, r, d). For each word: its attention over the regions, the
    cosine of the word with the region vector so attended (its context), and then log-sum-exp over the words of
    ``word_temperature`` times that.

    The context is never formed. Its product with the word is the attention-weighted sum of the scores, and its length
    follows from the Gram matrix of the regions: r² numbers an image instead of w·d a pair. Pairs are worked off in
    blocks of a fixed size and recomputed for the gradient, so that memory grows with the batch and not with its square.
    """
    temperature = torch.as_tensor(rule.temperature, dtype=torch.float32, device=words.device)
    norms = words.float().norm(dim=-1).clamp_min(1e-8)
    gram = regions @ regions.transpose(1, 2)
    step_texts, step_images = _block(len(words), words.shape[1], len(regions), regions.shape[1], words.device.type)
    rows = []
    for begin in range(0, len(words), step_texts):
        texts = slice(begin, begin + step_texts)
        parts = []
        for first in range(0, len(regions), step_images):
            images = slice(first, first + step_images)
            given = (
                words[texts], real[texts], norms[texts], regions[images], gram[images], temperature, rule.softmaxes,
                word_temperature,
            )  # fmt: skip
            parts.append(checkpoint(block_similarity, *given, use_reentrant=False, preserve_rng_state=False))
        rows.append(torch.cat(parts, dim=1))
    return torch.cat(rows)


def block_similarity(
    words: Tensor,
    real: Tensor,
    norms: Tensor,
    regions: Tensor,
    gram: Tensor,
    temperature: Tensor,
    softmaxes: Literal[1, 2],
    word_temperature: float,
) -> Tensor:
    """One block of `local_similarity`, (t, i), given the regions' products (i, r, r) and the words' norms (t, w)."""
    count, most, width = words.shape
    images, cells, _ = regions.shape
    # One product of two matrices: (i, r, d) by (d, t w).
    scores = (regions.reshape(images * cells, width) @ words.reshape(count * most, width).T).reshape(
        images, cells, count, most
    )
    scores = scores.permute(2, 3, 0, 1).float()  # (t, w, i, r)
    attention = attend(scores, real, AttentionRule(softmaxes, temperature))
    along = (attention * scores).sum(-1)
    flat = attention.permute(2, 0, 1, 3).reshape(images, count * most, cells).to(gram.dtype)
    squared = (torch.bmm(flat, gram) * flat).float().sum(-1).reshape(images, count, most).permute(1, 2, 0)
    cosine = along / (squared.clamp_min(1e-16).sqrt() * norms[..., None])
    return (word_temperature * cosine).masked_fill(~real[..., None], -math.inf).logsumexp(dim=1)


def _block(texts: int, words: int, images: int, regions: int, device: str) -> tuple[int, int]:
    """How many texts and images to take at once so that their scores number about `CELLS_AT_ONCE`."""
    budget = CELLS_AT_ONCE.get(device, CELLS_AT_ONCE["cpu"]) // (words * regions)
    step_images = max(1, min(images, budget))
    return max(1, min(texts, budget // step_images)), step_images
