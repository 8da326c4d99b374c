"""Losses of expert images besides the host's: priming (the paper), tied embeddings and map targets (ours, +Tied)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, cosine_similarity, mse_loss

from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.gloria.losses.base import Loss
from rightlung.models.gloria.losses.masks import mask_cross_entropy

if TYPE_CHECKING:
    from rightlung.models.eclip.model import Eclip, EclipGloria


@dataclass(frozen=True, eq=False)
class ExpertStep:
    """The ``p`` annotated images of a batch, and where they stand in it.

    ``main`` are the rows of the other images, ``rows`` those of the expert images in the batch that the host encodes.
    """

    model: Eclip | EclipGloria
    main: list[int]
    rows: list[int]
    plain: Tensor  # (p, channels, size, size) standardised, without the map
    maps: Tensor  # (p, grid, grid) in 0 to 1
    matches_text: Tensor  # (p,) bool
    text_rows: list[int]  # of the images' texts in the batch
    image_of_text: list[int]  # 0 to p - 1, for each of them

    @cached_property
    def plain_embeddings(self) -> ImageEmbeddings:
        """The embeddings of the annotated images without their maps."""
        embeddings: ImageEmbeddings = self.model.image_encoder(self.plain, standardised=True)
        return embeddings


class _ExpertLoss(Loss):
    """A loss of the expert images of a batch; 0 for a batch without any. It serves both hosts."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)

    def forward(self, inputs: Any) -> Tensor:
        """Return the loss."""
        step: ExpertStep = inputs.batch.target("expert")["step"]
        nothing = inputs.images.global_embedding.sum() * 0.0
        return self.compare(inputs, step) if step.rows else nothing

    def compare(self, inputs: Any, step: ExpertStep) -> Tensor:
        """Return the loss of a batch with expert images."""
        raise NotImplementedError


class Priming(_ExpertLoss):
    """Teaches the processor to return the image where the map is one everywhere, on the images without a map."""

    def forward(self, inputs: Any) -> Tensor:
        """Return the mean squared error."""
        step: ExpertStep = inputs.batch.target("expert")["step"]
        images = inputs.batch.images[step.main]
        ones = torch.ones_like(images[:, :1])
        return mse_loss(step.model.processor(images, ones).float(), images.float())


class Tied(_ExpertLoss):
    """Draws the embedding of the plain image to that of the expert image, which gets no gradient: 1 - cosine."""

    def compare(self, inputs: Any, step: ExpertStep) -> Tensor:
        """Return the mean over the annotated images."""
        plain = step.plain_embeddings.global_embedding.float()
        expert = inputs.images.global_embedding[step.rows].detach().float()
        return 1.0 - cosine_similarity(plain, expert, dim=-1).mean()


class MapTarget(_ExpertLoss):
    """Trains the map of the plain image and its text toward the expert's map, by cross-entropy.

    The map is the softmax over the patches of the scaled cosines (CLIP), or the attention (GLoRIA). Only texts that the
    expert's map is about count.
    """

    def compare(self, inputs: Any, step: ExpertStep) -> Tensor:
        """Return the sum over the texts divided by their number."""
        model, device = step.model, step.maps.device
        texts = inputs.texts[torch.tensor(step.text_rows, device=device)]
        attention = model.log_patch_attention(step.plain_embeddings, texts, step.image_of_text).float()
        own = torch.tensor(step.image_of_text, device=device)
        masks = adaptive_avg_pool2d(step.maps[own][:, None], model.image_encoder.grid).flatten(1)
        losses = mask_cross_entropy(attention, masks)
        return torch.where(step.matches_text[own], losses, 0.0).sum() / len(own)


EXPERT_LOSSES: dict[str, type[Loss]] = {"priming": Priming, "tied": Tied, "map_target": MapTarget}
