"""CLIP's training losses by name, and the encodings of a training step that they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor, nn

from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.contrastive import Pairs, contrastive_loss, cosine_similarity, find_pairs
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.mixing import MIXING_LOSSES

if TYPE_CHECKING:
    from rightlung.models.clip.model import Clip


@dataclass(frozen=True, eq=False)
class ClipLossInputs:
    """A batch and its encodings, in one space but not of unit length; ``gather`` is None with a single process."""

    model: Clip
    batch: TrainingBatch
    gather: Gather | None
    images: ImageEmbeddings
    texts: TextEmbeddings

    @cached_property
    def pairs(self) -> Pairs:
        """The texts of each image in the global batch."""
        return find_pairs(self.batch, self.gather, self.model.config.duplicate_texts == "ignore")


class Contrastive(nn.Module):
    """CLIP's loss, symmetric InfoNCE: the mean of the cross-entropies in both directions."""

    def forward(self, inputs: ClipLossInputs) -> Tensor:
        """Return the loss of this process's own images and texts."""
        images, texts, scale = inputs.images.global_embedding, inputs.texts.global_embedding, inputs.model.scale
        if inputs.gather is None:
            image_logits = scale * cosine_similarity(images, texts)
            text_logits = image_logits.T
        else:
            image_logits = scale * cosine_similarity(images, inputs.gather(texts))
            text_logits = scale * cosine_similarity(texts, inputs.gather(images))
        return contrastive_loss(image_logits, text_logits, inputs.pairs) / 2


LOSSES: dict[str, type[nn.Module]] = {"contrastive": Contrastive, **MIXING_LOSSES}
