"""Supervision of the attention: masks of phrases, and whether a phrase is present at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rightlung.models.base import TrainingBatch
from rightlung.models.gloria.config import MaskLoss
from rightlung.models.gloria.losses.base import GloriaStep, Loss


class MaskSupervision(Loss):
    """The attention of the batch's phrases compared with their masks (`supervised_loss`)."""

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the phrases."""
        return list(batch.target("phrases")["texts"])

    def forward(self, step: GloriaStep) -> Tensor:
        """Return the sum over the phrases, divided by the number of images."""
        phrases, model = step.batch.target("phrases"), step.model
        if not phrases["texts"]:
            return step.zero
        attention = model.log_attention(step.embed(phrases["texts"]), step.image_keys, phrases["images"]).float()
        masks = adaptive_avg_pool2d(phrases["masks"][:, None], model.image_encoder.grid).flatten(1)
        losses = supervised_loss(
            attention,
            masks,
            phrases["located"],
            phrases["present"],
            self.config.mask_loss,
            model.no_attention_token is not None,
        )
        return losses.sum() / len(step.batch)


def supervised_loss(
    log_attention: Tensor,
    masks: Tensor,
    located: Tensor,
    present: Tensor,
    mask_loss: MaskLoss = "cross_entropy",
    no_attention_token: bool = True,
) -> Tensor:
    """Return the loss of each phrase's attention, (n,), from its logarithm (n, [1 +] p).

    With ``no_attention_token``, the first column belongs to that token. A ``located`` phrase is compared with its mask
    (n, p), the covered share of each patch. A phrase that is ``present`` (1) somewhere should attend to any patches, an
    absent one (0) to the token. The loss is 0 if neither is known (NaN), or if there is no token.
    """
    patches = log_attention[:, 1:] if no_attention_token else log_attention
    area = masks.sum(1)
    has_mask = located & (area > 0)
    if mask_loss == "cross_entropy":
        in_mask = -(masks / area.clamp_min(1e-6)[:, None] * patches).sum(1)
    else:
        in_mask = -torch.logsumexp(patches + masks.clamp_min(1e-12).log(), dim=1)
    zero = log_attention.new_zeros(())
    losses = torch.where(has_mask, in_mask, zero)
    if no_attention_token:
        losses = losses + torch.where(~has_mask & (present == 1), -torch.logsumexp(patches, dim=1), zero)
        losses = losses + torch.where(~has_mask & (present == 0), -log_attention[:, 0], zero)
    return losses
