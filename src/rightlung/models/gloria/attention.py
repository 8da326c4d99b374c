"""Attention of words on regions (GLoRIA, Eq. 1), and what it makes similar.

Shapes: ``t`` texts of ``w`` words, ``i`` images of ``r`` regions, vectors of ``d``; ``q = t w`` is all words in a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

CELLS_AT_ONCE = {"cuda": 1 << 27, "cpu": 1 << 20}
"""How many scores (words x regions of all pairs) are held at a time: half a gigabyte, or what a cache holds."""
ALIGNMENT = {"cuda": 16}
"""Empty regions are added up to a multiple of this: matrix units want their rows aligned (19 x 19 are not)."""


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
    words: Tensor,
    real: Tensor,
    regions: Tensor,
    rule: AttentionRule,
    word_temperature: float = 5.0,
    compiled: bool = False,
) -> Tensor:
    """Similarity of every text with every image through their words and regions, (t, i).

    ``words`` (t, w, d), ``real`` (t, w) bool, ``regions`` (i, r, d). For each word: its attention over the regions, the
    cosine of the word with the region vector so attended (its context), and then log-sum-exp over the words of
    ``word_temperature`` times that.

    The context is never formed. Its product with the word is the attention-weighted sum of the scores, and its length
    follows from the Gram matrix of the regions: r² numbers an image instead of w·d a pair. Pairs are worked off in
    blocks of a fixed size and, where there is more than one, computed again for the gradient, which is written out
    below: memory grows with the batch and not with its square. Blocks hold texts of about the same length, so that
    little is computed for padding. ``compiled`` fuses what lies between the products.
    """
    if torch.is_autocast_enabled(words.device.type):
        precision = torch.get_autocast_dtype(words.device.type)
        words, regions = words.to(precision), regions.to(precision)
    temperature = torch.as_tensor(rule.temperature, dtype=torch.float32, device=words.device)
    if outside := -regions.shape[1] % ALIGNMENT.get(words.device.type, 1):
        regions = torch.nn.functional.pad(regions, (0, 0, 0, outside))
    lengths, order = [words.shape[1]] * len(words), None
    if _cells_at_once(regions) < words.shape[0] * words.shape[1] * regions.shape[0] * regions.shape[1]:
        last = (torch.arange(1, real.shape[1] + 1, device=real.device) * real).amax(dim=1)  # real word of each text
        sorted_lengths, order = last.sort(stable=True)
        lengths, words, real = sorted_lengths.tolist(), words[order], real[order]
    with torch.autocast(words.device.type, enabled=False):
        norms = words.float().norm(dim=-1).clamp_min(1e-8)
        gram = regions @ regions.transpose(1, 2)
        how = _How(outside, rule.softmaxes, word_temperature, compiled)
        similarity: Tensor = _LocalSimilarity.apply(  # type: ignore[no-untyped-call]
            words, norms, regions, gram, temperature, real, lengths, how
        )
    return similarity if order is None else similarity[order.argsort()]


def _cells_at_once(regions: Tensor) -> int:
    return CELLS_AT_ONCE.get(regions.device.type, CELLS_AT_ONCE["cpu"])


class _How(NamedTuple):
    """What is the same for all blocks."""

    outside: int  # empty regions at the end
    softmaxes: int
    word_temperature: float
    compiled: bool


class _LocalSimilarity(torch.autograd.Function):
    """Blocks forward, blocks backward. The gradient is exact; of the gradient there is none."""

    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
        norms: Tensor,
        regions: Tensor,
        gram: Tensor,
        temperature: Tensor,
        real: Tensor,
        lengths: list[int],
        how: _How,
    ) -> Tensor:
        forward_block, _ = _blocks(how.compiled)
        walk = list(_walk(lengths, regions))
        kept: tuple[Tensor, ...] = ()
        similarity = norms.new_empty(len(words), len(regions))
        for texts, images in walk:
            block = words[texts], norms[texts], regions[images], gram[images], temperature, real[texts]
            similarity[texts[0], images], *parts = forward_block(*block, how)
            if len(walk) == 1 and any(ctx.needs_input_grad):
                kept = tuple(parts)
        ctx.save_for_backward(words, norms, regions, gram, temperature, real, *kept)
        ctx.settings = walk, how
        return similarity

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        words, norms, regions, gram, temperature, real, *kept = ctx.saved_tensors
        walk, how = ctx.settings
        _, backward_block = _blocks(how.compiled)
        given = words, norms, regions, gram, temperature
        totals = [torch.zeros_like(one, dtype=torch.float32) for one in given]
        for texts, images in walk:
            block = words[texts], norms[texts], regions[images], gram[images], temperature, real[texts]
            parts = backward_block(gradient[texts[0], images], *block, how, *kept)
            for total, place, part in zip(totals, (texts, texts, images, images, ...), parts, strict=True):
                total[place] += part
        return *(total.to(one.dtype) for total, one in zip(totals, given, strict=True)), None, None, None


def _walk(lengths: Sequence[int], regions: Tensor) -> Iterator[tuple[tuple[slice, slice], slice]]:
    """Yield blocks, texts and their words by images, whose scores number about `CELLS_AT_ONCE`; lengths are sorted."""
    images, end = len(regions), len(lengths)
    while end:
        most = max(1, lengths[end - 1])
        budget = max(1, _cells_at_once(regions) // (most * regions.shape[1]))
        parts = max(1, math.ceil(images / math.isqrt(budget)))  # about square, and alike
        step_images = max(1, math.ceil(images / parts))
        begin = max(0, end - budget // step_images)
        for first in range(0, images, step_images):
            yield (slice(begin, end), slice(most)), slice(first, first + step_images)
        end = begin


def _attend_block(
    words: Tensor, regions: Tensor, gram: Tensor, temperature: Tensor, real: Tensor, how: _How
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, what the softmax over regions is taken of, attention, and attention times Gram: (q, i, r) each."""
    count, most, width = words.shape
    images, cells, _ = regions.shape
    scores = (words.reshape(count * most, width) @ regions.reshape(images * cells, width).T).float()
    scores = scores.reshape(count * most, images, cells)
    shares = scores
    if how.softmaxes == 2:
        hidden = ~real[:, :, None, None]
        spread = scores.reshape(count, most, images, cells).masked_fill(hidden, -math.inf).softmax(dim=1)
        shares = spread.reshape(count * most, images, cells)
    logits = shares * temperature
    if how.outside:
        beyond = torch.arange(cells, device=logits.device) >= cells - how.outside
        logits = logits.masked_fill(beyond, -math.inf)
    attention = logits.softmax(dim=-1)
    lengthened = torch.bmm(attention.to(gram.dtype).transpose(0, 1), gram).transpose(0, 1)
    return scores, shares, attention, lengthened


def _cosines(
    scores: Tensor, attention: Tensor, lengthened: Tensor, norms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cosine of word and context (q, i), and what it is made of: their product, the context's length, the word's.

    Where regions cancel, rounding can leave less of the length than the product shows it to have: then it is that, and
    the cosine 1 or -1.
    """
    along = (attention * scores).sum(-1)
    own = norms.reshape(-1, 1)
    length = (attention * lengthened.float()).sum(-1).clamp_min(1e-16).sqrt()
    return (along / (length * own)).clamp(-1.0, 1.0), along, length, own


def _forward_block(
    words: Tensor, norms: Tensor, regions: Tensor, gram: Tensor, temperature: Tensor, real: Tensor, how: _How
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Similarity (t, i), and what it was made of, which the gradient wants again."""
    parts = _attend_block(words, regions, gram, temperature, real, how)
    scores, _, attention, lengthened = parts
    cosine, _, _, _ = _cosines(scores, attention, lengthened, norms)
    logits = (how.word_temperature * cosine).reshape(*real.shape, len(regions))
    return logits.masked_fill(~real[..., None], -math.inf).logsumexp(dim=1), *parts


def _backward_block(
    gradient: Tensor,
    words: Tensor,
    norms: Tensor,
    regions: Tensor,
    gram: Tensor,
    temperature: Tensor,
    real: Tensor,
    how: _How,
    *kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of words, norms, regions, Gram matrices and the temperature, given that of the similarity (t, i).

    ``kept`` is what `_attend_block` gave, where it was kept.
    """
    count, most, width = words.shape
    images, cells, _ = regions.shape
    scores, shares, attention, lengthened = kept or _attend_block(words, regions, gram, temperature, real, how)
    cosine, along, length, own = _cosines(scores, attention, lengthened, norms)

    logits = (how.word_temperature * cosine).reshape(count, most, images).masked_fill(~real[..., None], -math.inf)
    of_cosine = (gradient[:, None] * how.word_temperature * logits.softmax(dim=1)).reshape(count * most, images)
    of_cosine = of_cosine * (cosine.abs() < 1)  # where it was held back it does not move
    of_along = of_cosine / (length * own)
    of_square = -0.5 * of_cosine * along / (length**3 * own)  # of the squared length
    of_norms = (-of_cosine * cosine / own).sum(1).reshape(count, most)

    # of_attention less its mean under attention, which is known already: the sums are along and length squared.
    mean = of_along * along + 2 * of_square * length**2
    of_attention = of_along[..., None] * scores + 2 * of_square[..., None] * lengthened.float()
    of_shares = attention * (of_attention - mean[..., None])
    of_temperature = (of_shares * shares).sum()
    of_shares = temperature * of_shares
    if how.softmaxes == 2:
        spread, change = (part.reshape(count, most, images, cells) for part in (shares, of_shares))
        of_shares = (spread * (change - (spread * change).sum(1, keepdim=True))).reshape(count * most, images, cells)
    of_scores = (of_along[..., None] * attention + of_shares).to(words.dtype).reshape(count * most, images * cells)

    weighted = (of_square[..., None] * attention).to(gram.dtype)
    of_gram = torch.bmm(weighted.permute(1, 2, 0), attention.to(gram.dtype).transpose(0, 1))
    of_words = (of_scores @ regions.reshape(images * cells, width)).reshape(count, most, width)
    of_regions = (of_scores.T @ words.reshape(count * most, width)).reshape(images, cells, width)
    return of_words, of_norms, of_regions, of_gram, of_temperature


@functools.cache
def _blocks(compiled: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    blocks = _forward_block, _backward_block
    return (torch.compile(blocks[0]), torch.compile(blocks[1])) if compiled else blocks
