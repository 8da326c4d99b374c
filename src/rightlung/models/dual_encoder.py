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

from rightlung.core import Extent, Image
from rightlung.core.checks import check_text
from rightlung.models.encoders import ImageEncoder, TextEncoder
from rightlung.models.encoders.configured import ConfiguredTextModel
from rightlung.models.encoders.image import ImageEmbeddings
from rightlung.models.encoders.text import TextEmbeddings
from rightlung.models.inputs import Images, as_images, as_list
from rightlung.models.preprocessing import letterbox_all

IMAGE_BATCH_SIZE, PAIR_BATCH_SIZE = 16, 256
"""Batch sizes of inference: images to encode, and pairs of image and text (or texts) to compare."""


class DualEncoder(ConfiguredTextModel):
    """An image encoder and a text encoder. The configuration has ``image``, ``text`` and ``dimension``."""

    def __init__(self, config: Any, tokenizer: str) -> None:
        super().__init__()
        self.tokenizer = config.text.read_tokenizer(tokenizer)
        self.image_encoder = ImageEncoder(config.image, config.dimension)
        self.text_encoder = TextEncoder(config.text, config.dimension, len(self.tokenizer))
        self.config = replace(config, image=self.image_encoder.config, text=self.text_encoder.config)

    def preprocess(self, images: Sequence[Image]) -> tuple[Tensor, list[Extent]]:
        """Return squares for the image encoder, (n, size, size), and the extent of each square in its image."""
        return letterbox_all(images, self.config.image.size)

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return the embeddings of texts; each distinct text is encoded once."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        embeddings: TextEmbeddings = self.text_encoder(self.tokenizer.encode(list(rows)).to(self.device))
        if len(rows) == len(texts):
            return embeddings
        return embeddings[torch.tensor([rows[text] for text in texts], device=self.device)]

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
        pairs_of_image: dict[int, list[int]] = {}
        for pair, image in enumerate(images):
            pairs_of_image.setdefault(id(image), []).append(pair)
        groups = iter(pairs_of_image.values())
        distinct = [images[group[0]] for group in pairs_of_image.values()]
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
