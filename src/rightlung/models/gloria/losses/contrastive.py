"""GLoRIA's contrastive losses: each image's text against all texts, and each text's image against all images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rightlung.models.base import TrainingBatch
from rightlung.models.contrastive import contrastive_loss, cosine_similarity
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.attention import local_similarity
from rightlung.models.gloria.losses.base import GloriaLossInputs, Loss, hard_negatives


def sentence_similarity(
    sentences: Tensor, patches: Tensor, temperature: Tensor | float, pairwise: bool = False
) -> Tensor:
    """Return the similarity (t, i) of sentences (t, d) with their best patches (i, p, d), in single precision.

    A soft maximum over the patches: log(mean(exp(temperature · score))) / temperature. ``pairwise`` compares the nth
    sentence with the nth image only, (n,).
    """
    with torch.autocast(sentences.device.type, enabled=False):
        scores = torch.einsum("nd,npd->np" if pairwise else "td,ipd->tip", sentences.float(), patches.float())
        return (torch.logsumexp(temperature * scores, dim=-1) - math.log(scores.shape[-1])) / temperature


class _Contrastive(Loss):
    """A contrastive loss; subclasses say what is compared, and how."""

    def _arguments(self, inputs: GloriaLossInputs, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        """Return the arguments of `_compare`: a tensor of the images (n, ...), one or more of the texts (m, ...)."""
        raise NotImplementedError

    def _compare(self, inputs: GloriaLossInputs, images: Tensor, *texts: Tensor) -> Tensor:
        """Return the logits (m, n) of the texts with the images."""
        raise NotImplementedError

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the hard negatives, if the configuration asks for them."""
        return list(hard_negatives(batch).values()) if self.config.contrastive_hard_negatives else ()

    def forward(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the contrastive loss of the batch."""
        images, *texts = self._arguments(inputs, inputs.texts)
        if inputs.gather is None:
            text_logits = self._compare(inputs, images, *texts)
            image_logits = text_logits.T
        else:
            image_logits = self._compare(inputs, images, *map(inputs.gather, texts)).T
            text_logits = self._compare(inputs, inputs.gather(images), *texts)
        negatives = self._hard_negative_logits(inputs) if self.config.contrastive_hard_negatives else None
        return contrastive_loss(image_logits, text_logits, inputs.pairs, negatives)

    def _hard_negative_logits(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the logit of each text's hard negative with its image, (m,); -inf where there is none."""
        device = inputs.image_keys.device
        result = torch.full((len(inputs.batch.texts),), -torch.inf, device=device)
        if negative_of := hard_negatives(inputs.batch):
            text_indices = torch.tensor(list(negative_of), device=device)
            image_indices = torch.tensor([inputs.batch.image_of_text[index] for index in negative_of], device=device)
            logits = self._compare(inputs, *self._arguments(inputs, inputs.embeddings_of(list(negative_of.values()))))
            result = result.index_put((text_indices,), logits.gather(1, image_indices[:, None])[:, 0].float())
        return result


class GlobalContrastive(_Contrastive):
    """GLoRIA's global loss: the cosine of an image's and a text's global embedding."""

    def _arguments(self, inputs: GloriaLossInputs, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return inputs.images.global_embedding, texts.global_embedding

    def _compare(self, inputs: GloriaLossInputs, images: Tensor, *texts: Tensor) -> Tensor:
        return self.config.global_temperature * cosine_similarity(texts[0], images)


class LocalContrastive(_Contrastive):
    """GLoRIA's local loss: every word with the patches that it attends to (`local_similarity`)."""

    def _arguments(self, inputs: GloriaLossInputs, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return inputs.image_keys, inputs.model.normalize_for_attention(texts.word_embeddings), texts.attention_mask

    def _compare(self, inputs: GloriaLossInputs, images: Tensor, *texts: Tensor) -> Tensor:
        config = self.config
        settings = (
            config.attention.softmax_over_words,
            inputs.model.temperature,
            config.word_temperature,
            config.compile,
        )
        return config.local_temperature * local_similarity(texts[0], texts[1], images, *settings)


class SentenceContrastive(_Contrastive):
    """The sentence with its most similar patch (`sentence_similarity`), which is what a sentence's heatmap shows."""

    def _arguments(self, inputs: GloriaLossInputs, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return inputs.model.patch_keys(inputs.image_keys), inputs.model.normalize_for_attention(texts.global_embedding)

    def _compare(self, inputs: GloriaLossInputs, images: Tensor, *texts: Tensor) -> Tensor:
        return self.config.local_temperature * sentence_similarity(texts[0], images, inputs.model.temperature)
