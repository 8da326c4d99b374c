"""Hard-negative losses (of our variant +Sided, docs/wrong-lung.md): a one-sided text against its hard negative.

The hard negative is the same text with "left" and "right" exchanged. Both are compared in the text's own image. Every
loss is summed over such texts and divided by the number of all texts of the batch, so that a batch with few of them
counts little, and the mean over processes is the global batch's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rightlung.models.base import TrainingBatch
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.losses.base import GloriaLossInputs, Loss, hard_negatives
from rightlung.models.gloria.losses.contrastive import sentence_similarity


class _HardNegativeLoss(Loss):
    """A loss of texts and their hard negatives; subclasses compare them."""

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the hard negatives."""
        return list(hard_negatives(batch).values())

    def forward(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the loss of all texts that have a hard negative; 0 if none has one."""
        batch, negative_of = inputs.batch, hard_negatives(inputs.batch)
        if not negative_of:
            return inputs.zero
        texts = inputs.embeddings_of([batch.texts[index] for index in negative_of])
        negatives = inputs.embeddings_of(list(negative_of.values()))
        losses = self._compare(inputs, texts, negatives, [batch.image_of_text[index] for index in negative_of])
        return losses.sum() / len(batch.texts)

    def _compare(
        self, inputs: GloriaLossInputs, texts: TextEmbeddings, negatives: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        """Return the loss (n,) of n texts and their hard negatives; ``image_indices`` are their images."""
        raise NotImplementedError


class HardNegativeRanking(_HardNegativeLoss):
    """The text must be more similar to its image than its hard negative is (`sentence_similarity`)."""

    def _compare(
        self, inputs: GloriaLossInputs, texts: TextEmbeddings, negatives: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        model = inputs.model
        patches = model.patch_keys(inputs.image_keys)[torch.tensor(image_indices, device=model.device)]
        text_similarity, negative_similarity = (
            sentence_similarity(
                model.normalize_for_attention(sentences.global_embedding), patches, model.temperature, pairwise=True
            )
            for sentences in (texts, negatives)
        )
        return softplus(self.config.local_temperature * (negative_similarity - text_similarity))


class HardNegativeOverlap(_HardNegativeLoss):
    """The hard negative must attend to other patches than the text (`overlap_loss`)."""

    def _compare(
        self, inputs: GloriaLossInputs, texts: TextEmbeddings, negatives: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        first_patch = 0 if inputs.model.no_attention_token is None else 1
        text_attention, negative_attention = (
            inputs.model.log_attention(some, inputs.image_keys, image_indices)[:, first_patch:]
            for some in (texts, negatives)
        )
        return overlap_loss(text_attention, negative_attention)


class HardNegativeAbstention(_HardNegativeLoss):
    """The hard negative must attend to the no-attention token, and the text to patches (`abstention_loss`)."""

    def _compare(
        self, inputs: GloriaLossInputs, texts: TextEmbeddings, negatives: TextEmbeddings, image_indices: Sequence[int]
    ) -> Tensor:
        return abstention_loss(
            *(inputs.model.log_attention(some, inputs.image_keys, image_indices) for some in (texts, negatives))
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
