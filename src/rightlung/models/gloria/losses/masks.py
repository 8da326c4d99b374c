"""Losses that compare the attention of phrases with their masks, or with whether they are present at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rightlung.models.base import TrainingBatch
from rightlung.models.gloria.losses.base import GloriaLossInputs, Loss


class _MaskLoss(Loss):
    """A loss of phrases with masks; subclasses compare attention and mask.

    A phrase without a mask should attend to any patches if it is present in the image, and to the no-attention token if
    it is absent. It has no loss if neither is known (NaN), or if there is no token.
    """

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the phrases."""
        return list(batch.target("phrases")["texts"])

    def forward(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the sum over the phrases, divided by the number of images."""
        phrases, model = inputs.batch.target("phrases"), inputs.model
        if not phrases["texts"]:
            return inputs.zero
        attention = model.log_attention(
            inputs.embeddings_of(phrases["texts"]), inputs.image_keys, phrases["image_indices"]
        ).float()
        masks = adaptive_avg_pool2d(phrases["masks"][:, None], model.image_encoder.grid).flatten(1)
        has_token = model.no_attention_token is not None
        losses = self.phrase_losses(attention, masks, phrases["has_mask"], phrases["present"], has_token)
        return losses.sum() / len(inputs.batch)

    def phrase_losses(
        self, log_attention: Tensor, masks: Tensor, has_mask: Tensor, present: Tensor, has_token: bool
    ) -> Tensor:
        """Return the loss of each phrase, (n,), from its log attention (n, [1 +] p).

        With ``has_token``, the first column belongs to the no-attention token. ``masks`` (n, p) hold the covered share
        of each patch and count where ``has_mask``; ``present`` is 1, 0 or NaN.
        """
        patches = log_attention[:, 1:] if has_token else log_attention
        has_mask = has_mask & (masks.sum(1) > 0)
        zero = log_attention.new_zeros(())
        losses = torch.where(has_mask, self._compare(patches, masks), zero)
        if has_token:
            losses = losses + torch.where(~has_mask & (present == 1), -torch.logsumexp(patches, dim=1), zero)
            losses = losses + torch.where(~has_mask & (present == 0), -log_attention[:, 0], zero)
        return losses

    def _compare(self, log_attention: Tensor, masks: Tensor) -> Tensor:
        """Return the loss (n,) of the log attention on patches (n, p) and the masks (n, p)."""
        raise NotImplementedError


def mask_cross_entropy(log_attention: Tensor, masks: Tensor) -> Tensor:
    """Return the cross-entropy (n,) of masks (n, p), scaled to a sum of 1, and attention."""
    return -(masks / masks.sum(1).clamp_min(1e-6)[:, None] * log_attention).sum(1)


class MaskCrossEntropy(_MaskLoss):
    """The cross-entropy of mask and attention, which spreads the attention evenly over the mask."""

    def _compare(self, log_attention: Tensor, masks: Tensor) -> Tensor:
        return mask_cross_entropy(log_attention, masks)


class AttentionInMask(_MaskLoss):
    """The negative logarithm of the attention in the mask, wherever in it.

    The code of the few-shot variant of "That's the Wrong Lung!" uses this loss.
    """

    def _compare(self, log_attention: Tensor, masks: Tensor) -> Tensor:
        return -torch.logsumexp(log_attention + masks.clamp_min(1e-12).log(), dim=1)
