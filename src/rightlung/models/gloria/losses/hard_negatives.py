"""+Sided's losses: a text that names one side against its hard negative, the same text with the side exchanged.

Both are compared in the text's own image. Every loss is summed over such texts and divided by the number of all texts
of the batch, so that a batch with few of them counts little, and the mean over processes is the joint batch's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rightlung.models.base import TrainingBatch
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.losses.base import GloriaStep, Loss, hard_negatives
from rightlung.models.gloria.losses.contrastive import sentence_similarity


class _HardNegativeLoss(Loss):
    """A loss of texts and their hard negatives; subclasses compare them."""

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the hard negatives."""
        return list(hard_negatives(batch).values())

    def forward(self, step: GloriaStep) -> Tensor:
        """Return the loss of all texts that have a hard negative; 0 if none has one."""
        batch, negative_of = step.batch, hard_negatives(step.batch)
        if not negative_of:
            return step.zero
        texts = step.embed([batch.texts[index] for index in negative_of])
        negatives = step.embed(list(negative_of.values()))
        losses = self._compare(step, texts, negatives, [batch.image_of_text[index] for index in negative_of])
        return losses.sum() / len(batch.texts)

    def _compare(
        self, step: GloriaStep, texts: TextEmbeddings, negatives: TextEmbeddings, images: Sequence[int]
    ) -> Tensor:
        """Return the loss (n,) of n texts and their hard negatives; ``images`` are the indices of the texts' images."""
        raise NotImplementedError


class HardNegativeRanking(_HardNegativeLoss):
    """The text must be more similar to its image than its hard negative is (`sentence_similarity`)."""

    def _compare(
        self, step: GloriaStep, texts: TextEmbeddings, negatives: TextEmbeddings, images: Sequence[int]
    ) -> Tensor:
        model = step.model
        patches = model.patch_keys(step.image_keys)[torch.tensor(images, device=model.device)]
        text_similarity, negative_similarity = (
            sentence_similarity(
                model.attention_embeddings(sentences.global_embedding), patches, model.temperature, pairwise=True
            )
            for sentences in (texts, negatives)
        )
        return softplus(self.config.local_temperature * (negative_similarity - text_similarity))


class HardNegativeOverlap(_HardNegativeLoss):
    """The hard negative must attend to other patches than the text (`overlap_loss`)."""

    def _compare(
        self, step: GloriaStep, texts: TextEmbeddings, negatives: TextEmbeddings, images: Sequence[int]
    ) -> Tensor:
        first_patch = 0 if step.model.no_attention_token is None else 1
        text_attention, negative_attention = (
            step.model.log_attention(some, step.image_keys, images)[:, first_patch:] for some in (texts, negatives)
        )
        return overlap_loss(text_attention, negative_attention)


class HardNegativeAbstention(_HardNegativeLoss):
    """The hard negative must attend to the no-attention token, and the text to patches (`abstention_loss`)."""

    def _compare(
        self, step: GloriaStep, texts: TextEmbeddings, negatives: TextEmbeddings, images: Sequence[int]
    ) -> Tensor:
        return abstention_loss(
            *(step.model.log_attention(some, step.image_keys, images) for some in (texts, negatives))
        )


def overlap_loss(log_attention: Tensor, negative_log_attention: Tensor, margin: float = 1.0) -> Tensor:
    """Return how much hard negatives attend where their texts do, (n,), given both log attentions (n, p).

    On the patches that a text attends to, its hard negative should have less than uniform attention, by a factor of
    exp(``margin``). The gradient moves only the hard negative's attention.
    """
    attention = log_attention.detach().float().softmax(dim=-1)
    negative = negative_log_attention.float().log_softmax(dim=-1)
    return softplus((attention * (negative + math.log(negative.shape[-1]))).sum(-1) + margin)


def abstention_loss(log_attention: Tensor, negative_log_attention: Tensor) -> Tensor:
    """Return the loss (n,) of texts that attend to the no-attention token, and of hard negatives that do not.

    Both log attentions are (n, 1 + p), the no-attention token first.
    """
    return -torch.logsumexp(log_attention[:, 1:].float(), dim=-1) - negative_log_attention[:, 0].float()
