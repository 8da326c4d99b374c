"""The contrastive loss of image-text pairs: each image's text against all texts, each text's image against all images.

Each process has its own images and texts and sees the others' through ``gather``. It returns the loss of its own rows,
so the mean over processes is the loss of the global batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from rightlung.core.keyed import key_number
from rightlung.models.base import Gather, TrainingBatch


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Which texts of the global batch belong to which images, seen from one process.

    - ``image_indices`` (m,): the image of each of the process's own texts, an index of the global batch.
    - ``all_image_indices`` (M,): the same for all texts.
    - ``first_text``, ``first_image``: the global batch's indices of the process's first text and image.
    - ``duplicates`` (m, M) bool: other texts with the same words, which are neither positives nor negatives; None if
      they are negatives.
    """

    image_indices: Tensor
    all_image_indices: Tensor
    first_text: int
    first_image: int
    duplicates: Tensor | None


def find_pairs(batch: TrainingBatch, gather: Gather | None, ignore_duplicates: bool) -> Pairs:
    """Return which texts of the global batch belong to which images."""
    device = batch.images.device
    image_indices = torch.tensor(batch.image_of_text, device=device)
    # Python's hash differs between processes.
    hashes = torch.tensor([key_number(text) >> 1 for text in batch.texts], device=device)
    first_text = first_image = 0
    all_image_indices, all_hashes = image_indices, hashes
    if gather is not None:
        rank = torch.distributed.get_rank()
        first_text, first_image = rank * len(image_indices), rank * len(batch)
        image_indices = image_indices + first_image
        all_image_indices, all_hashes = gather(image_indices), gather(hashes)
    duplicates = None
    if ignore_duplicates:
        duplicates = hashes[:, None] == all_hashes[None]
        rows = torch.arange(len(image_indices), device=device)
        duplicates[rows, first_text + rows] = False
    return Pairs(image_indices, all_image_indices, first_text, first_image, duplicates)


def contrastive_loss(
    image_logits: Tensor, text_logits: Tensor, pairs: Pairs, hard_negative_logits: Tensor | None = None
) -> Tensor:
    """Return the sum of the image-to-text and text-to-image cross-entropies, each a mean over this process's texts.

    This process has n of all N images and m of all M texts. ``image_logits`` (n, M) compare its images with all texts,
    ``text_logits`` (m, N) its texts with all images. Other texts of the same image are ignored.
    ``hard_negative_logits`` (m,) compare each text's image with the text's hard negative, which is one more negative;
    -inf where there is none.
    """
    lowest = torch.finfo(image_logits.dtype).min
    rows = torch.arange(len(pairs.image_indices), device=image_logits.device)
    ignored = pairs.all_image_indices[None] == pairs.image_indices[:, None]
    if pairs.duplicates is not None:
        ignored = ignored | pairs.duplicates
        # An image that has the same text is ignored, too.
        image_of_column = pairs.all_image_indices.expand(len(pairs.image_indices), -1)
        has_duplicate = torch.zeros_like(text_logits).scatter_reduce(
            1, image_of_column, pairs.duplicates.to(text_logits.dtype), "amax"
        )
        has_duplicate[rows, pairs.image_indices] = 0
        text_logits = text_logits.masked_fill(has_duplicate > 0, lowest)
    ignored[rows, pairs.first_text + rows] = False
    image_logits = image_logits[pairs.image_indices - pairs.first_image].masked_fill(ignored, lowest)
    if hard_negative_logits is not None:
        image_logits = torch.cat([image_logits, hard_negative_logits[:, None].to(image_logits.dtype)], dim=1)
    return cross_entropy(image_logits, pairs.first_text + rows) + cross_entropy(text_logits, pairs.image_indices)


def cosine_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines (..., m) of embeddings (..., d) and (m, d), in single precision."""
    with torch.autocast(first.device.type, enabled=False):
        return normalize(first.float(), dim=-1) @ normalize(second.float(), dim=-1).T
