"""The interface of GLoRIA's losses, and the encodings of a training step that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rightlung.lexicon.side_changes import with_sides_exchanged
from rightlung.models.base import Gather, TrainingBatch
from rightlung.models.contrastive import Pairs, find_pairs
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.text import TextEmbeddings

if TYPE_CHECKING:
    from rightlung.models.gloria.config import GloriaConfig
    from rightlung.models.gloria.model import Gloria


@dataclass(frozen=True, eq=False)
class GloriaLossInputs:
    """A batch and its encodings, computed once and shared by all losses.

    ``image_keys`` (n, [1 +] p, d) are the patch embeddings as attention compares them (`Gloria.attention_keys`).
    ``encoded_texts`` are the texts of the batch and every loss's `Loss.extra_texts`; ``text_rows`` maps texts to rows.
    ``gather`` collects tensors from all processes; None with a single process.
    """

    model: Gloria
    batch: TrainingBatch
    gather: Gather | None
    images: ImageEmbeddings
    image_keys: Tensor
    encoded_texts: TextEmbeddings
    text_rows: Mapping[str, int]

    def embeddings_of(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return the embeddings of some of the encoded texts."""
        return self.encoded_texts[torch.tensor([self.text_rows[text] for text in texts], device=self.model.device)]

    @cached_property
    def texts(self) -> TextEmbeddings:
        """The embeddings of the batch's texts."""
        return self.embeddings_of(self.batch.texts)

    @cached_property
    def pairs(self) -> Pairs:
        """The texts of each image in the global batch."""
        return find_pairs(self.batch, self.gather, self.model.config.duplicate_texts == "ignore")

    @property
    def zero(self) -> Tensor:
        """A loss of 0 with a gradient of 0, for a batch that a loss cannot learn from."""
        return self.image_keys.sum() * 0.0


def hard_negatives(batch: TrainingBatch) -> dict[int, str]:
    """Return the hard negatives by the index of their text: the same text with "left" and "right" exchanged.

    Only texts that name exactly one side have one. If the image also has the exchanged text (effusions on both sides),
    there is none, because it would be true.
    """
    pairs = list(zip(batch.image_of_text, batch.texts, strict=True))
    existing = set(pairs)
    return {
        index: exchanged
        for index, (image, text) in enumerate(pairs)
        if (exchanged := with_sides_exchanged(text)) is not None and (image, exchanged) not in existing
    }


class Loss(nn.Module):
    """One term of the training loss. It returns the loss of this process's own rows (see `Trainable`)."""

    def __init__(self, config: GloriaConfig) -> None:
        super().__init__()
        self.config = config

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the texts that this loss needs encoded besides those of the batch."""
        return ()

    def forward(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the loss, a scalar."""
        raise NotImplementedError
