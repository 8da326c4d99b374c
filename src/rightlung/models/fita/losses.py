"""FITA's losses, Eqs. 1 and 3 to 5, as functions of tensors, and the labels that they learn from.

Eq. 6 adds them up with the weights of a recipe: 1 for ``report_generation``, 1 for ``image_classification`` (λ_cls-I),
0.1 for ``image_text_contrastive`` (λ_itc).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from rightlung.lexicon.labeller import OBSERVATIONS, observations
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.contrastive import contrastive_loss, cosine_similarity, find_pairs

NO_FINDING = OBSERVATIONS.index("No Finding")
CLASSES = len(OBSERVATIONS)


@lru_cache(maxsize=1 << 17)
def _labels(report: str) -> tuple[int, ...]:
    values = {"positive": 1, "uncertain": 2}
    return tuple(values.get(said or "", 0) for said in observations(report).values())


def report_labels(reports: Sequence[str]) -> Tensor:
    """Return what reports say of CheXpert's 14 observations (n, 14): 1 present, 2 uncertain, 0 negative or blank."""
    return torch.tensor([_labels(report) for report in reports], dtype=torch.long).view(-1, CLASSES)


def output_count(uncertain: str) -> int:
    """Return the number of logits: one for each observation and, for ``apart``, one for each that may be uncertain."""
    return 2 * CLASSES - 1 if uncertain == "apart" else CLASSES


def classification_loss(logits: Tensor, labels: Tensor, known: Tensor | None = None) -> Tensor:
    """Return Eq. 3 for logits (n, 14), or (n, 27) with "uncertain" as a category of its own, and labels (n, 14).

    The mean over images and over the 14 observations of the binary cross-entropy of "present" plus, but for "No
    Finding", of "uncertain". ``known`` (n,) bool are the images that count; all, if it is None.
    """
    present = binary_cross_entropy_with_logits(logits[:, :CLASSES].float(), (labels == 1).float(), reduction="none")
    total = present.sum(1)
    if logits.shape[1] > CLASSES:
        wanted = torch.cat([labels[:, :NO_FINDING], labels[:, NO_FINDING + 1 :]], dim=1) == 2
        uncertain = binary_cross_entropy_with_logits(logits[:, CLASSES:].float(), wanted.float(), reduction="none")
        total = total + uncertain.sum(1)
    counted = torch.ones_like(total) if known is None else known.to(total.dtype)
    return (total / CLASSES * counted).sum() / counted.sum().clamp_min(1)


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """Return Eq. 4 of embeddings (t, e) each: mean of max(‖a − p‖² − ‖a − n‖² + β, 0).

    The paper prints a plus sign before the negative's distance, a misprint: it would pull negatives close, too.
    """
    near, far = (((anchors - others) ** 2).sum(-1) for others in (positives, negatives))
    return (near - far + margin).clamp_min(0).mean()


def generation_loss(logits: Tensor, ids: Tensor, learned: Tensor) -> Tensor:
    """Return Eq. 1: the cross-entropy of each next token; logits (n, t, v), ``ids`` and ``learned`` (n, t).

    The mean over the tokens of the batch, as in R2Gen; the paper prints a sum. The end token counts.
    """
    wanted = ids.masked_fill(~learned, -100)[:, 1:]
    total = cross_entropy(logits[:, :-1].flatten(0, 1).float(), wanted.flatten(), ignore_index=-100, reduction="sum")
    return total / (wanted != -100).sum().clamp_min(1)


def alignment_loss(
    images: Tensor, texts: Tensor, batch: TrainingBatch, reports: Sequence[str], temperature: float,
    gather: Gather | None,
) -> Tensor:  # fmt: skip
    """Return Eq. 5 of image and text features (n, d) each: half the sum of both directions' cross-entropies.

    Another image with an equal report is no negative.
    """
    pairs = find_pairs(replace(batch, texts=reports, image_of_text=range(len(reports))), gather, True)
    all_images, all_texts = (images, texts) if gather is None else (gather(images), gather(texts))
    image_logits = cosine_similarity(images, all_texts) / temperature
    text_logits = cosine_similarity(texts, all_images) / temperature
    return contrastive_loss(image_logits, text_logits, pairs) / 2
