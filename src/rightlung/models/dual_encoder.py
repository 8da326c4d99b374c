"""What GLoRIA and CLIP share: an image encoder and a text encoder whose embeddings lie in one space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rightlung.core import Box, Extent, Grounding, Image, InputError, ScoredBox
from rightlung.core.checks import check_text
from rightlung.explain import BoxRule, boxes_of
from rightlung.lexicon import negative_prompts, positive_prompts
from rightlung.models.base import TrainingBatch
from rightlung.models.encoders import ImageEncoder, TextEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.inputs import Images, Phrases, as_images, as_list, pairs_by_image
from rightlung.models.maps import ChoosesMap
from rightlung.models.preprocessing import letterbox_all
from rightlung.models.roi import box_weights, check_boxes, crop

IMAGE_BATCH_SIZE, PAIR_BATCH_SIZE = 16, 256
"""Batch sizes of inference: images to encode, and pairs of image and text (or texts) to compare."""


class DualEncoder(ChoosesMap, ConfiguredTextModel):
    """An image encoder and a text encoder. The configuration has ``image``, ``text``, ``dimension``, ``regions``."""

    def __init__(self, config: Any, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = config.text.read_tokenizer(tokenizer)
        self.image_encoder = ImageEncoder(config.image, config.dimension)
        self.text_encoder = TextEncoder(config.text, config.dimension, len(self.tokenizer))
        self.config = replace(config, image=self.image_encoder.config, text=self.text_encoder.config)

    def preprocess(self, images: Sequence[Image]) -> tuple[Tensor, list[Extent]]:
        """Return squares for the image encoder, (n, size, size), and the extent of each square in its image."""
        return letterbox_all(images, self.config.image.size)

    def embed_images(self, batch: TrainingBatch) -> ImageEmbeddings:
        """Return the embeddings of the images of a training batch."""
        embeddings: ImageEmbeddings = self.image_encoder(batch.images)
        return embeddings

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return the embeddings of texts; each distinct text is encoded once."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        embeddings: TextEmbeddings = self.text_encoder(self.tokenizer.encode(list(rows)).to(self.device))
        if len(rows) == len(texts):
            return embeddings
        return embeddings[torch.tensor([rows[text] for text in texts], device=self.device)]

    def text_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the global embeddings (n, d) of texts."""
        return self.embed_texts(texts).global_embedding

    def image_vectors(self, embeddings: ImageEmbeddings) -> Tensor:
        """Return the global embeddings (n, d) of images."""
        return embeddings.global_embedding

    def encode_image(self, images: Images) -> NDArray[np.float32]:
        """Return the global embedding of each image, (images, dimension), of unit length."""
        embeddings = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for encoded, _ in self.encode_in_batches(as_images(images)):
                embeddings.append(encoded.global_embedding.float().cpu())
        return normalize(torch.cat(embeddings), dim=-1).numpy()

    def encode_text(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Return the global embedding of each text, (texts, dimension), of unit length."""
        texts = [check_text(text, "a text") for text in as_list(texts)]
        embeddings = [torch.zeros(0, self.config.dimension)]
        with self.eval_mode():
            for begin in range(0, len(texts), PAIR_BATCH_SIZE):
                encoded = self.embed_texts(texts[begin : begin + PAIR_BATCH_SIZE])
                embeddings.append(encoded.global_embedding.float().cpu())
        return normalize(torch.cat(embeddings), dim=-1).numpy()

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        """Return one vector of unit length for each group of prompts, (groups, dimension): their mean embedding."""
        if not all(prompts):
            raise InputError("every group of prompts needs at least one prompt")
        embeddings = self.encode_text([prompt for group in prompts for prompt in group])
        ends = np.cumsum([len(group) for group in prompts])[:-1]
        means = [group.mean(axis=0) for group in np.split(embeddings, ends)] if prompts else []
        vectors = np.array(means, dtype=np.float32).reshape(len(means), self.config.dimension)
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    def encode_regions(self, images: Images, boxes: Sequence[Box]) -> NDArray[np.float32]:
        """Return the embedding of one box in each image, (images, dimension), of unit length (ChEX, supp. E.4).

        It is the mean of the patches in the box or, if the configuration's ``regions`` is ``cropped``, the global
        embedding of the image cropped to the box.
        """
        arrays = as_images(images)
        check_boxes(boxes, arrays)
        if self.config.regions == "cropped":
            return self.encode_image([crop(image, box) for image, box in zip(arrays, boxes, strict=True)])
        embeddings = [torch.zeros(0, self.config.dimension)]
        done = 0
        with self.eval_mode():
            for encoded, extents in self.encode_in_batches(arrays):
                weights = box_weights(boxes[done : done + len(extents)], extents, self.image_encoder.grid)
                patches = encoded.patch_embeddings.float()
                embeddings.append(torch.einsum("nrc,ndrc->nd", weights.to(patches.device), patches).cpu())
                done += len(extents)
        return normalize(torch.cat(embeddings), dim=-1).numpy()

    def prompt_probabilities(
        self, embeddings: NDArray[np.float32], findings: Sequence[str], scale: float, multiclass: bool = False
    ) -> NDArray[np.float32]:
        """Return the probability of findings, (n, findings), from embeddings (n, dimension) of unit length.

        It is the softmax over the scaled cosines with the mean embedding of the positive prompts and with that of the
        negative ones or, with ``multiclass``, with the positive prompts of all findings.
        """
        positive = self.encode_prompts([positive_prompts(name) for name in findings])
        if multiclass:
            return torch.from_numpy(scale * (embeddings @ positive.T)).softmax(-1).numpy()
        negative = self.encode_prompts([negative_prompts(name) for name in findings])
        return torch.from_numpy(scale * (embeddings @ (positive - negative).T)).sigmoid().numpy()

    def ground(self, images: Images, phrases: Phrases) -> list[Grounding]:
        """Return the heatmap of each phrase in its image."""
        raise NotImplementedError

    def detect(
        self, images: Images, findings: str | Sequence[str], rule: BoxRule | None = None
    ) -> list[list[ScoredBox]]:
        """Return boxes around the high values of the map of each finding's prompt (ChEX, supp. E.4).

        A box's score is the mean of the map in the box.
        """
        arrays, names = as_images(images), as_list(findings)
        prompts = [positive_prompts(name)[0] for name in names]
        pairs = [image for image in arrays for _ in names], prompts * len(arrays)
        found = iter(self.ground_boxes(*pairs, rule or BoxRule(score="box")))
        return [[ScoredBox(one.box, one.score, name) for name in names for one in next(found)] for _ in arrays]

    def ground_boxes(self, images: Sequence[Image], texts: Sequence[str], rule: BoxRule) -> list[Sequence[ScoredBox]]:
        """Return the boxes of each text in its image."""
        heatmaps = [grounding.heatmap for grounding in self.ground(images, texts)]
        return [() if heatmap is None else boxes_of(heatmap, rule) for heatmap in heatmaps]

    def encode_in_batches(self, images: Sequence[Image]) -> Iterator[tuple[ImageEmbeddings, list[Extent]]]:
        """Yield the embeddings of some images at a time, and the extents of their squares."""
        for begin in range(0, len(images), IMAGE_BATCH_SIZE):
            squares, extents = self.preprocess(images[begin : begin + IMAGE_BATCH_SIZE])
            yield self.image_encoder(squares[:, None].to(self.device)), extents

    def encode_pairs(
        self, images: Sequence[Image]
    ) -> Iterator[tuple[ImageEmbeddings, list[Extent], list[tuple[list[int], list[int]]]]]:
        """Yield the embeddings and extents of some distinct images at a time, and batches of the pairs they occur in.

        ``images`` has one for each pair; the same array is encoded once. A batch is the indices of its pairs and, for
        each, the row of its image in the embeddings.
        """
        pairs_of_image = pairs_by_image(images)
        groups = iter(pairs_of_image)
        distinct = [images[group[0]] for group in pairs_of_image]
        for embeddings, extents in self.encode_in_batches(distinct):
            rows_of_pairs = {pair: row for row in range(len(extents)) for pair in next(groups)}
            pairs = list(rows_of_pairs)
            starts = range(0, len(pairs), PAIR_BATCH_SIZE)
            chunks = [pairs[start : start + PAIR_BATCH_SIZE] for start in starts]
            yield embeddings, extents, [(chunk, [rows_of_pairs[pair] for pair in chunk]) for chunk in chunks]


def paired_scores(queries: Tensor, keys: Tensor, image_indices: Sequence[int]) -> Tensor:
    """Return the scores (t, w, p) of queries (t, w, d) with the keys (n, p, d) of each text's image, a row of ``keys``.

    Texts are grouped by image, so that keys, which are large, are not copied.
    """
    _, words, dimension = queries.shape
    texts_of_image: Counter[int] = Counter()
    slots = []  # of each text among the texts of its image
    for image in image_indices:
        slots.append(texts_of_image[image])
        texts_of_image[image] += 1
    most_texts = max(texts_of_image.values(), default=1)
    image_and_slot = torch.tensor(image_indices, device=queries.device), torch.tensor(slots, device=queries.device)
    grouped = queries.new_zeros(len(keys), most_texts, words, dimension).index_put(image_and_slot, queries)
    products = torch.bmm(grouped.flatten(1, 2), keys.transpose(1, 2).to(queries.dtype))
    return products.reshape(len(keys), most_texts, words, -1)[image_and_slot].float()
