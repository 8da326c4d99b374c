"""Embeddings for a model that compares images with texts but embeds neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image, InputError
from rightlung.models.base import Matcher


class SimilarityEmbedder:
    """Vectors whose cosines order images and the texts of a pool as the similarities of a `Matcher` do.

    The vector of a text has a single 1. That of an image holds its similarities with all texts, brought into (−1, 1) by
    an increasing function, and two values that give the vectors of all images the same length.
    """

    def __init__(self, model: Any, texts: Sequence[str]) -> None:
        if not isinstance(model, Matcher):
            name = type(model).__name__
            raise InputError(f"{name} has neither encode_image and encode_text nor similarity, one of which is needed")
        self.model: Any = model
        self.columns = {text: column for column, text in enumerate(dict.fromkeys(texts))}

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector for each text of the pool; for others there is none."""
        if unknown := next((text for text in texts if text not in self.columns), None):
            raise InputError(f"the text is not among those that the images are compared with: {unknown[:60]!r}")
        found = np.zeros((len(texts), len(self.columns) + 2), dtype=np.float32)
        found[np.arange(len(texts)), [self.columns[text] for text in texts]] = 1.0
        return found

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return a vector for each image."""
        similarity = np.asarray(self.model.similarity(images, list(self.columns)).global_similarity, np.float64)
        bounded = (similarity / (1 + np.abs(similarity))).astype(np.float32)
        missing = similarity.shape[1] - (bounded.astype(np.float64) ** 2).sum(axis=1, keepdims=True)
        # Two values, because one of single precision would break the ties of equal similarities.
        most = np.nextafter(np.sqrt(missing).astype(np.float32), np.float32(0))
        least = np.sqrt(missing - most.astype(np.float64) ** 2)
        return np.concatenate([bounded, most, least], axis=1, dtype=np.float32)
