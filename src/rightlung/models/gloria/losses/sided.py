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


class _Sided(Loss):
    """A loss of texts and their hard negatives; subclasses compare them."""

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the hard negatives."""
        return list(hard_negatives(batch).values())

    def forward(self, step: GloriaStep) -> Tensor:
        """Return the loss of all texts that have a hard negative; 0 if none has one."""
        negatives = hard_negatives(step.batch)
        if not negatives:
            return step.zero
        batch = step.batch
        right, wrong = step.embed([batch.texts[text] for text in negatives]), step.embed(list(negatives.values()))
        losses = self._compare(step, right, wrong, [batch.image_of_text[text] for text in negatives])
        return losses.sum() / len(batch.texts)

    def _compare(self, step: GloriaStep, right: TextEmbeddings, wrong: TextEmbeddings, images: list[int]) -> Tensor:
        """Return the loss of each text and its hard negative, (n,), in its image."""
        raise NotImplementedError


class SideRanking(_Sided):
    """The text must fit its image better than its hard negative (`sentence_similarity`)."""

    def _compare(self, step: GloriaStep, right: TextEmbeddings, wrong: TextEmbeddings, images: list[int]) -> Tensor:
        model = step.model
        patches = model.without_token(step.image_keys)[torch.tensor(images, device=model.device)]
        sentences = [model.attention_queries(text.global_embedding) for text in (right, wrong)]
        fits = [sentence_similarity(one, patches, model.temperature, pairwise=True) for one in sentences]
        return softplus(self.config.local_temperature * (fits[1] - fits[0]))


class SideSeparation(_Sided):
    """The hard negative must attend to other patches than the text (`separation_loss`)."""

    def _compare(self, step: GloriaStep, right: TextEmbeddings, wrong: TextEmbeddings, images: list[int]) -> Tensor:
        first = 0 if step.model.no_attention_token is None else 1  # only patches count
        text, negative = (step.model.log_attention(one, step.image_keys, images)[:, first:] for one in (right, wrong))
        return separation_loss(text, negative)


class SideAbstention(_Sided):
    """The hard negative must attend to the no-attention token, and the text to patches (`abstention_loss`)."""

    def _compare(self, step: GloriaStep, right: TextEmbeddings, wrong: TextEmbeddings, images: list[int]) -> Tensor:
        return abstention_loss(*(step.model.log_attention(text, step.image_keys, images) for text in (right, wrong)))


def separation_loss(log_attention: Tensor, negative_log_attention: Tensor, margin: float = 1.0) -> Tensor:
    """Return how much hard negatives attend where their texts do, (n,), given both log attentions (n, p).

    On the patches that a text attends to, its hard negative should have less than uniform attention, by a factor of
    exp(``margin``). The gradient moves only the hard negative's attention.
    """
    text = log_attention.detach().float().softmax(dim=-1)
    negative = negative_log_attention.float().log_softmax(dim=-1)
    return softplus((text * (negative + math.log(negative.shape[-1]))).sum(-1) + margin)


def abstention_loss(log_attention: Tensor, negative_log_attention: Tensor) -> Tensor:
    """Return the loss (n,) of texts that attend to the no-attention token, and of hard negatives that do not.

    Both log attentions are (n, 1 + p), the no-attention token first.
    """
    return -torch.logsumexp(log_attention[:, 1:].float(), dim=-1) - negative_log_attention[:, 0].float()
