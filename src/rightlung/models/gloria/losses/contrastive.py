"""Contrastive losses: each image's text against all texts, and each text's image against all images.

Each process has its own images and texts and sees the others' through ``gather``. It returns the loss of its own rows,
so the mean over processes is the loss of the joint batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from rightlung.models.base import TrainingBatch
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.attention import local_similarity
from rightlung.models.gloria.losses.base import GloriaStep, Loss, Pairs, hard_negatives


def contrastive_loss(
    image_logits: Tensor, text_logits: Tensor, pairs: Pairs, hard_negative_logits: Tensor | None = None
) -> Tensor:
    """Return the cross-entropy in both directions, summed as in both papers: a mean over this process's texts.

    This process has n of all N images and m of all M texts. ``image_logits`` (n, M) compare its images with all texts,
    ``text_logits`` (m, N) its texts with all images. Other texts of the same image are ignored.
    ``hard_negative_logits`` (m,) compare each text's image with the text's hard negative, which is one more negative;
    -inf where there is none.
    """
    lowest = torch.finfo(image_logits.dtype).min
    rows = torch.arange(len(pairs.images), device=image_logits.device)
    ignored = pairs.all_images[None] == pairs.images[:, None]
    if pairs.duplicates is not None:
        ignored = ignored | pairs.duplicates
        # An image that has the same text is ignored, too.
        image_of_column = pairs.all_images.expand(len(pairs.images), -1)
        has_duplicate = torch.zeros_like(text_logits).scatter_reduce(
            1, image_of_column, pairs.duplicates.to(text_logits.dtype), "amax"
        )
        has_duplicate[rows, pairs.images] = 0
        text_logits = text_logits.masked_fill(has_duplicate > 0, lowest)
    ignored[rows, pairs.first_text + rows] = False
    image_logits = image_logits[pairs.images - pairs.first_image].masked_fill(ignored, lowest)
    if hard_negative_logits is not None:
        image_logits = torch.cat([image_logits, hard_negative_logits[:, None].to(image_logits.dtype)], dim=1)
    return cross_entropy(image_logits, pairs.first_text + rows) + cross_entropy(text_logits, pairs.images)


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines (n, m) of embeddings (n, d) and (m, d), in single precision."""
    with torch.autocast(first.device.type, enabled=False):
        return normalize(first.float(), dim=-1) @ normalize(second.float(), dim=-1).T


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

    def _inputs(self, step: GloriaStep, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        """Return the arguments of `_compare`: a tensor of the images (n, ...), one or more of the texts (m, ...)."""
        raise NotImplementedError

    def _compare(self, step: GloriaStep, images: Tensor, *texts: Tensor) -> Tensor:
        """Return the logits (m, n) of the texts with the images."""
        raise NotImplementedError

    def extra_texts(self, batch: TrainingBatch) -> Sequence[str]:
        """Return the hard negatives, if the configuration asks for them."""
        return list(hard_negatives(batch).values()) if self.config.hard_negatives else ()

    def forward(self, step: GloriaStep) -> Tensor:
        """Return the contrastive loss of the batch."""
        images, *texts = self._inputs(step, step.texts)
        if step.gather is None:
            text_logits = self._compare(step, images, *texts)
            image_logits = text_logits.T
        else:
            image_logits = self._compare(step, images, *map(step.gather, texts)).T
            text_logits = self._compare(step, step.gather(images), *texts)
        negatives = self._hard_negative_logits(step) if self.config.hard_negatives else None
        return contrastive_loss(image_logits, text_logits, step.pairs, negatives)

    def _hard_negative_logits(self, step: GloriaStep) -> Tensor:
        """Return the logit of each text's hard negative with its image, (m,); -inf where there is none."""
        device = step.image_keys.device
        result = torch.full((len(step.batch.texts),), -torch.inf, device=device)
        if negative_of := hard_negatives(step.batch):
            text_indices = torch.tensor(list(negative_of), device=device)
            image_indices = torch.tensor([step.batch.image_of_text[index] for index in negative_of], device=device)
            logits = self._compare(step, *self._inputs(step, step.embed(list(negative_of.values()))))
            result = result.index_put((text_indices,), logits.gather(1, image_indices[:, None])[:, 0].float())
        return result


class GlobalContrastive(_Contrastive):
    """GLoRIA's global loss: the cosine of an image's and a text's global embedding."""

    def _inputs(self, step: GloriaStep, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return step.images.global_embedding, texts.global_embedding

    def _compare(self, step: GloriaStep, images: Tensor, *texts: Tensor) -> Tensor:
        return self.config.global_temperature * cosine_similarity(texts[0], images)


class LocalContrastive(_Contrastive):
    """GLoRIA's local loss: every word with the patches that it attends to (`local_similarity`)."""

    def _inputs(self, step: GloriaStep, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return step.image_keys, step.model.attention_embeddings(texts.word_embeddings), texts.attention_mask

    def _compare(self, step: GloriaStep, images: Tensor, *texts: Tensor) -> Tensor:
        config = self.config
        settings = config.attention.softmax_over_words, step.model.temperature, config.word_temperature, config.compile
        return config.local_temperature * local_similarity(texts[0], texts[1], images, *settings)


class SentenceContrastive(_Contrastive):
    """The sentence with its most similar patch (`sentence_similarity`), which is what a sentence's heatmap shows."""

    def _inputs(self, step: GloriaStep, texts: TextEmbeddings) -> tuple[Tensor, ...]:
        return step.model.patch_keys(step.image_keys), step.model.attention_embeddings(texts.global_embedding)

    def _compare(self, step: GloriaStep, images: Tensor, *texts: Tensor) -> Tensor:
        return self.config.local_temperature * sentence_similarity(texts[0], images, step.model.temperature)
