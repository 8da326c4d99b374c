"""GLoRIA (Huang et al., ICCV 2021): embeds images and texts in one space, globally and as patches and words.

Departures from the released code: the mean over a sentence excludes padding; the local similarity is the same in
training and inference; and no answer depends on the other images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from rightlung.core import Box, Grounding
from rightlung.core.checks import check_text
from rightlung.explain import as_heatmaps, attention_maps, gradient_attention
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import Gather, Similarities, TrainingBatch
from rightlung.models.contrastive import cosine_similarity
from rightlung.models.dual_encoder import PAIR_BATCH_SIZE, DualEncoder, paired_scores
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.gloria.attention import attend, local_similarity
from rightlung.models.gloria.config import GloriaConfig
from rightlung.models.gloria.losses import LOSSES, GloriaLossInputs
from rightlung.models.gloria.losses.contrastive import sentence_similarity
from rightlung.models.inputs import Images, Phrases, as_images, as_list, as_pairs, phrase_texts
from rightlung.models.roi import check_boxes, crop


class Gloria(DualEncoder):
    """Image and text encoders with word-to-patch attention between them."""

    kind: ClassVar[str] = "gloria"
    own_map = "attention"
    config_type = GloriaConfig
    loss_names = tuple(LOSSES)
    config: GloriaConfig

    def __init__(self, config: GloriaConfig, tokenizer: str) -> None:
        super().__init__(config, tokenizer)
        attention = config.attention
        self.no_attention_token = (
            nn.Parameter(0.02 * torch.randn(config.dimension)) if attention.no_attention_token else None
        )
        self.log_temperature = (
            nn.Parameter(torch.tensor(math.log(attention.temperature))) if attention.learn_temperature else None
        )
        self.losses = nn.ModuleDict({name: config.loss_types[name](self.config) for name in config.losses})

    # ---------------------------------------------------------------- encoding

    @property
    def scale(self) -> float:
        """The factor on the cosines of global embeddings in the losses."""
        return self.config.global_temperature

    @property
    def temperature(self) -> Tensor | float:
        """The factor of the attention scores (an inverse temperature), learned or not."""
        return self.config.attention.temperature if self.log_temperature is None else self.log_temperature.exp()

    def attention_keys(self, patch_embeddings: Tensor) -> Tensor:
        """Return patch embeddings (n, d, rows, cols) as keys (n, [1 +] p, d), the no-attention token first, if any."""
        keys = patch_embeddings.flatten(2).transpose(1, 2)
        if self.no_attention_token is not None:
            keys = torch.cat([self.no_attention_token.to(keys.dtype).expand(len(keys), 1, -1), keys], dim=1)
        return self.normalize_for_attention(keys)

    def normalize_for_attention(self, embeddings: Tensor) -> Tensor:
        """Return embeddings (..., d) whose dot products are the attention scores: of unit length for cosines."""
        return normalize(embeddings, dim=-1) if self.config.attention.similarity == "cosine" else embeddings

    def patch_keys(self, keys: Tensor) -> Tensor:
        """Return the keys of the patches, (n, p, d), without that of the no-attention token."""
        return keys if self.no_attention_token is None else keys[:, 1:]

    def log_attention(self, texts: TextEmbeddings, keys: Tensor, image_indices: Sequence[int]) -> Tensor:
        """Return the log attention (t, [1 +] p) of each text on its image, row ``image_indices`` (t) of ``keys``."""
        if self.config.heatmap_from == "sentence":
            queries = self.normalize_for_attention(texts.global_embedding[:, None])
            return (paired_scores(queries, keys, image_indices)[:, 0] * self.temperature).log_softmax(dim=-1)
        scores = paired_scores(self.normalize_for_attention(texts.word_embeddings), keys, image_indices)
        mask = texts.attention_mask
        attention = attend(scores, mask, self.config.attention.softmax_over_words, self.temperature) * mask[..., None]
        mean = attention.sum(1) / mask.sum(1, keepdim=True)
        return mean.clamp_min(1e-20).log()

    # ---------------------------------------------------------------- training

    def forward(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the configured losses by name. Images and texts are encoded once for all of them."""
        self.check_size(batch, "image.size", self.config.image.size)
        images = self.embed_images(batch)
        losses: dict[str, Any] = dict(self.losses.items())
        extra_texts = (text for loss in losses.values() for text in loss.extra_texts(batch))
        text_rows = {text: row for row, text in enumerate(dict.fromkeys([*batch.texts, *extra_texts]))}
        keys = self.attention_keys(images.patch_embeddings)
        inputs = GloriaLossInputs(self, batch, gather, images, keys, self.embed_texts(list(text_rows)), text_rows)
        return {name: loss(inputs) for name, loss in losses.items()}

    # --------------------------------------------------------------- inference

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the heatmap of each phrase in its image; the abstention is the attention on the no-attention token.

        Images and phrases are paired by `as_pairs`. `use_map` chooses other maps.
        """
        own = self.map_kind == "own"
        return self.ground_by_attention(images, phrases) if own else self.ground_by_kind(images, phrases)

    def ground_by_attention(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the model's own heatmaps, whatever kind of map is chosen."""
        images, phrases = as_pairs(images, phrases)
        texts = phrase_texts(phrases)
        answers: list[Grounding | None] = [None] * len(texts)
        with self.eval_mode():
            for embeddings, extents, batches in self.encode_pairs(images):
                keys = self.attention_keys(embeddings.patch_embeddings)
                for pairs, rows in batches:
                    attention = self.log_attention(self.embed_texts([texts[pair] for pair in pairs]), keys, rows)
                    maps, abstentions = attention_maps(attention.float().exp()[:, None], self.image_encoder.grid)
                    heatmaps = as_heatmaps(maps, [extents[row] for row in rows], abstentions.tolist())
                    for pair, heatmap in zip(pairs, heatmaps, strict=True):
                        answers[pair] = Grounding(heatmap)
        return [answer for answer in answers if answer is not None]

    def gradient_attention_maps(self, pixels: Tensor, texts: Sequence[str], rows: Sequence[int]) -> Tensor:
        """Return attention × gradient of the local similarity with respect to it, without the no-attention token."""
        patches = self.normalize_for_attention(self.image_encoder(pixels).patch_embeddings.flatten(2).transpose(1, 2))
        encoded = self.embed_texts(texts)
        words, mask = self.normalize_for_attention(encoded.word_embeddings).float(), encoded.attention_mask
        if self.config.heatmap_from == "sentence":
            words, mask = self.normalize_for_attention(encoded.global_embedding[:, None]).float(), mask[:, :1]
        maps = patches.new_zeros(len(texts), patches.shape[1], dtype=torch.float32)
        for row in set(rows):
            own = [text for text, image in enumerate(rows) if image == row]
            queries, keys, counted = words[own], patches[row].float(), mask[own]
            attention = attend(queries @ keys.T, counted, self.config.attention.softmax_over_words, self.temperature)
            with torch.enable_grad():
                varied = attention.detach().requires_grad_()
                cosines = (normalize(queries, dim=-1) * normalize(varied @ keys, dim=-1)).sum(dim=-1)
                scores = (self.config.word_temperature * cosines).masked_fill(~counted, -math.inf).logsumexp(dim=1)
                (gradients,) = torch.autograd.grad(scores.sum(), varied)
            weighed = gradient_attention(attention, gradients) * counted[..., None]
            maps[own] = weighed.sum(dim=1) / counted.sum(dim=1, keepdim=True)
        return maps.reshape(-1, *self.image_encoder.grid)

    def similarity(self, images: Images, texts: str | Sequence[str]) -> Similarities:
        """Return the global and local similarity of every image with every text.

        The global one is the cosine of the global embeddings. The local one is that of the ``local`` loss divided by
        ``word_temperature`` or, if heatmaps come from the sentence, that of the ``sentence`` loss.
        """
        images, texts = as_images(images), [check_text(text, "a text") for text in as_list(texts)]
        global_similarity = np.zeros((len(images), len(texts)), dtype=np.float32)
        local = np.zeros_like(global_similarity)
        if not images or not texts:
            return Similarities(global_similarity, local)
        with self.eval_mode():
            text_batches = [
                self.embed_texts(texts[begin : begin + PAIR_BATCH_SIZE])
                for begin in range(0, len(texts), PAIR_BATCH_SIZE)
            ]
            begin = 0
            for embeddings, extents in self.encode_in_batches(images):
                keys = self.attention_keys(embeddings.patch_embeddings)
                rows = slice(begin, begin := begin + len(extents))
                cosines = [
                    cosine_similarity(embeddings.global_embedding, some.global_embedding) for some in text_batches
                ]
                global_similarity[rows] = torch.cat(cosines, dim=1).cpu()
                local[rows] = torch.cat([self._local_similarity(some, keys).T for some in text_batches], dim=1).cpu()
        return Similarities(global_similarity, local)

    def classify(
        self, images: Images, findings: str | Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        """Return a score for each image and finding, (images, findings), from the findings' prompts.

        With a no-attention token: one minus the abstention, averaged over the positive prompts. Without: the softmax
        over the mean cosines of the positive and the negative prompts. With ``boxes``, one for each image, it is that
        of the image cropped to the box or, if the configuration's ``regions`` is ``pooled``, the softmax for the
        patches in the box.
        """
        images, findings = as_images(images), as_list(findings)
        if boxes is not None and self.config.regions == "pooled":
            regions = self.encode_regions(images, boxes)
            return self.prompt_probabilities(regions, findings, self.config.global_temperature)
        if boxes is not None:
            check_boxes(boxes, images)
            images = [crop(image, box) for image, box in zip(images, boxes, strict=True)]
        if not images or not findings:
            return np.zeros((len(images), len(findings)), dtype=np.float32)
        has_token = self.no_attention_token is not None
        positive = [positive_prompts(name) for name in findings]
        negative = [] if has_token else [negative_prompts(name) for name in findings]
        prompts = [prompt for group in (*positive, *negative) for prompt in group]
        if has_token:
            answers = self.ground_by_attention([image for image in images for _ in prompts], prompts * len(images))
            scores = np.array([1.0 - answer.abstention for answer in answers], dtype=np.float32)
        else:
            scores = self.similarity(images, prompts).global_similarity
        ends = np.cumsum([len(group) for group in (*positive, *negative)])[:-1]
        groups = np.split(scores.reshape(len(images), len(prompts)), ends, axis=1)
        means = np.stack([group.mean(axis=1) for group in groups], axis=1)
        if has_token:
            return means
        margins = means[:, len(findings) :] - means[:, : len(findings)]  # negative minus positive prompts
        probabilities: NDArray[np.float32] = 1.0 / (1.0 + np.exp(self.config.global_temperature * margins))
        return probabilities

    def _local_similarity(self, texts: TextEmbeddings, keys: Tensor) -> Tensor:
        if self.config.heatmap_from == "sentence":
            sentences = self.normalize_for_attention(texts.global_embedding)
            return sentence_similarity(sentences, self.patch_keys(keys), self.temperature)
        queries, word_temperature = self.normalize_for_attention(texts.word_embeddings), self.config.word_temperature
        settings = self.config.attention.softmax_over_words, self.temperature, word_temperature
        return local_similarity(queries, texts.attention_mask, keys, *settings) / word_temperature
