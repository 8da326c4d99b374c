"""The contrastive losses of ChEX (supp. D.2, Eq. 3, 6, 7 and 8) as functions of embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from rightlung.models.contrastive import Pairs, contrastive_loss, cosine_similarity

PATHOLOGY_TEMPERATURE, REGION_TEMPERATURE, SENTENCE_TEMPERATURE, GLOBAL_TEMPERATURE = 0.2, 0.25, 0.25, 0.2


def match_probability(tokens: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Return the softmax (...) of the dot products of tokens (..., d) with a positive and a negative prompt (Eq. 3)."""
    return ((tokens * positive).sum(-1) - (tokens * negative).sum(-1)).float().sigmoid()


def prompt_probability(tokens: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """Return the softmax (...) of the cosines of tokens (..., d) with a positive and a negative prompt."""
    tokens, positive, negative = (normalize(part.float(), dim=-1) for part in (tokens, positive, negative))
    return match_probability(tokens / temperature, positive, negative)


def pathology_contrast(tokens: Tensor, positive: Tensor, negative: Tensor, labels: Tensor) -> Tensor:
    """Pair the token of each finding with its positive or its negative prompt, against all other prompts (Eq. 6).

    Tokens are (n, c, d), prompts (c, d), and labels (n, c) 1, 0 or NaN for unknown ones, which are left out.
    """
    logits = cosine_similarity(tokens, torch.cat([positive, negative])) / PATHOLOGY_TEMPERATURE  # (n, c, 2 c)
    columns = torch.arange(labels.shape[1], device=labels.device)
    own = torch.where(labels > 0.5, columns, columns + labels.shape[1])
    known = ~labels.isnan()
    if not bool(known.any()):
        return logits.sum() * 0.0
    return cross_entropy(logits[known], own[known])


def region_contrast(tokens: Tensor, positive: Tensor, negative: Tensor, labels: Tensor, used: Tensor) -> Tensor:
    """Align the token of each region with the prompts of all of its labels (Eq. 7).

    Tokens are (n, a, d), prompts (c, d) and labels (n, a, c) 1, 0 or NaN (unknown), which are left out of both sums.
    ``used`` (c,) bool are the classes that take part.
    """
    cosines = [cosine_similarity(tokens, prompts) for prompts in (positive, negative)]
    known = ~labels.isnan() & used
    own = torch.where(labels > 0.5, cosines[0], cosines[1]) / REGION_TEMPERATURE
    counts = known.sum(-1)
    mean = torch.where(known, own, 0.0).sum(-1) / counts.clamp_min(1)
    everything = torch.cat(cosines, dim=-1) / REGION_TEMPERATURE
    lowest = torch.finfo(everything.dtype).min
    total = everything.masked_fill(~torch.cat([known, known], dim=-1), lowest).logsumexp(-1)
    has_labels = counts > 0
    losses = torch.where(has_labels, total - mean, 0.0)
    return losses.sum() / has_labels.sum().clamp_min(1)


def sentence_contrast(tokens: Tensor, prompts: Tensor, images: Tensor, texts: Tensor) -> Tensor:
    """Pair the token of each sentence with its prompt, against those of all sentences of the batch (Eq. 8).

    Tokens and prompts are (s, d); ``images`` and ``texts`` (s,) number the image and the wording of each sentence.
    Sentences of the same wording are no negatives of each other. Each image counts once.
    """
    logits = cosine_similarity(tokens, prompts) / SENTENCE_TEMPERATURE
    same = texts[:, None] == texts
    same.fill_diagonal_(False)
    losses = cross_entropy(
        logits.masked_fill(same, -torch.inf), torch.arange(len(logits), device=logits.device), reduction="none"
    )
    weights = 1.0 / torch.bincount(images)[images]
    return (losses * weights).sum() / weights.sum()


def global_contrast(images: Tensor, texts: Tensor, same: Tensor) -> Tensor:
    """Return the CLIP loss of image and text embeddings (n, d); ``same`` (n, n) marks pairs that are no negatives."""
    logits = cosine_similarity(images, texts) / GLOBAL_TEMPERATURE
    rows = torch.arange(len(logits), device=logits.device)
    duplicates = same & (rows[:, None] != rows)
    return contrastive_loss(logits, logits.T, Pairs(rows, rows, 0, 0, duplicates)) / 2
