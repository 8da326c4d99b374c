"""Word-to-patch attention (GLoRIA, Eq. 1), and the local similarity of texts and images based on it.

Shapes: ``t`` texts of ``w`` words, ``i`` images of ``p`` patches, embeddings of ``d`` numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

SCORES_PER_BLOCK = {"cuda": 1 << 27, "cpu": 1 << 20}
"""Largest number of word-patch scores in memory at once (2^27 float32 = 512 MiB on CUDA)."""
ALIGNMENT = {"cuda": 16}
"""Patches are padded to a multiple of this; tensor cores need aligned rows (19 x 19 = 361 is not)."""


def attend(scores: Tensor, attention_mask: Tensor, softmax_over_words: bool, temperature: Tensor | float) -> Tensor:
    """Return the attention over patches, (t, w, ..., p), of scores (t, w, ..., p).

    The softmax runs over the patches. With ``softmax_over_words``, another one runs over the words of each text first,
    padding excluded (``attention_mask``, (t, w)). The attention of padding words is meaningless.
    """
    if softmax_over_words:
        padding = ~attention_mask.reshape(*attention_mask.shape, *(1,) * (scores.ndim - 2))
        scores = scores.masked_fill(padding, -math.inf).softmax(dim=1)
    return (scores * temperature).softmax(dim=-1)


def local_similarity(
    word_embeddings: Tensor,
    attention_mask: Tensor,
    patch_embeddings: Tensor,
    softmax_over_words: bool,
    temperature: Tensor | float,
    word_temperature: float = 5.0,
    compile: bool = False,
) -> Tensor:
    """Return the local similarity of every text with every image, (t, i).

    ``word_embeddings`` (t, w, d), ``attention_mask`` (t, w) bool, ``patch_embeddings`` (i, p, d). Each word attends to
    the patches; their weighted mean is its context. The similarity is the log-sum-exp over the words of
    ``word_temperature`` times the cosine of word and context.

    The context is never formed: its dot product with the word is the weighted sum of the scores, and its norm follows
    from the Gram matrix of the patches (p² numbers per image instead of w·d per pair). Pairs are computed in blocks of
    limited size. If there are several, each is recomputed in the backward pass (gradient checkpointing), so memory
    grows linearly with the batch size. Blocks hold texts of similar length to save work on padding. ``compile`` fuses
    the element-wise operations.
    """
    device = word_embeddings.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        word_embeddings, patch_embeddings = word_embeddings.to(dtype), patch_embeddings.to(dtype)
    temperature = torch.as_tensor(temperature, dtype=torch.float32, device=word_embeddings.device)
    patches = patch_embeddings.shape[1]
    patch_embeddings = pad(patch_embeddings, (0, 0, 0, -patches % ALIGNMENT.get(device, 1)))
    images, padded_patches, _ = patch_embeddings.shape
    texts, words = attention_mask.shape
    limit = SCORES_PER_BLOCK.get(device, SCORES_PER_BLOCK["cpu"]) // padded_patches  # words x images
    block_similarity = _compiled_block_similarity() if compile else _block_similarity
    settings = patches, softmax_over_words, word_temperature
    with torch.autocast(device, enabled=False):
        word_norms = word_embeddings.float().norm(dim=-1).clamp_min(1e-8)
        gram = patch_embeddings @ patch_embeddings.transpose(1, 2)
        if texts * words * images <= limit:
            return block_similarity(
                word_embeddings, word_norms, attention_mask, patch_embeddings, gram, temperature, *settings
            )
        positions = torch.arange(1, words + 1, device=attention_mask.device)
        lengths, order = (positions * attention_mask).amax(dim=1).sort(stable=True)  # the position of the last word
        sorted_texts = [part[order] for part in (word_embeddings, word_norms, attention_mask)]
        images_per_block, blocks = _blocks(lengths.tolist(), images, limit)
        image_blocks = list(
            zip(torch.split(patch_embeddings, images_per_block), torch.split(gram, images_per_block), strict=True)
        )
        rows = []
        for block in blocks:
            block_texts = [part[block] for part in sorted_texts]
            columns = [
                checkpoint(
                    block_similarity, *block_texts, *block_images, temperature, *settings,
                    use_reentrant=False, preserve_rng_state=False,
                )
                for block_images in image_blocks
            ]  # fmt: skip
            rows.append(torch.cat(columns, dim=1))
        return torch.cat(rows)[order.argsort()]


def _blocks(lengths: Sequence[int], images: int, limit: int) -> tuple[int, list[tuple[slice, slice]]]:
    """Return the images per block, and each block's slices of texts and of words, for texts of these sorted lengths.

    The words of a block times its images are at most ``limit``, unless one text and image exceed it.
    """
    most_images = math.isqrt(max(1, limit // max(1, lengths[-1])))  # about as many texts as images
    images_per_block = math.ceil(images / math.ceil(images / max(1, most_images)))
    blocks, end = [], len(lengths)
    while end:
        longest = max(1, lengths[end - 1])
        begin = max(0, end - max(1, limit // (longest * images_per_block)))
        blocks.append((slice(begin, end), slice(longest)))
        end = begin
    return images_per_block, blocks[::-1]


def _block_similarity(
    word_embeddings: Tensor,
    word_norms: Tensor,
    attention_mask: Tensor,
    patch_embeddings: Tensor,
    gram: Tensor,
    temperature: Tensor,
    patches: int,
    softmax_over_words: bool,
    word_temperature: float,
) -> Tensor:
    """Return the similarity (t, i) of a block; only the first ``patches`` of an image are not padding."""
    texts, words, _ = word_embeddings.shape
    images, padded_patches, _ = patch_embeddings.shape
    scores = (word_embeddings.flatten(0, 1) @ patch_embeddings.flatten(0, 1).T).float()
    scores = scores.reshape(texts, words, images, padded_patches)
    logits = scores
    if softmax_over_words:
        logits = scores.masked_fill(~attention_mask[:, :, None, None], -math.inf).softmax(dim=1)
    logits = logits * temperature
    if padded_patches > patches:
        logits = logits.masked_fill(torch.arange(padded_patches, device=logits.device) >= patches, -math.inf)
    attention = logits.softmax(dim=-1).reshape(texts * words, images, padded_patches)
    dot_product = (attention * scores.reshape_as(attention)).sum(-1)  # of word and context
    context_products = torch.bmm(attention.to(gram.dtype).transpose(0, 1), gram).transpose(0, 1)  # with the patches
    context_norm = (attention * context_products.float()).sum(-1).clamp_min(1e-16).sqrt()
    # Where patches cancel out, rounding may leave too small a norm: the cosine is then 1 or -1.
    cosine = (dot_product / (context_norm * word_norms.reshape(-1, 1))).clamp(-1.0, 1.0)
    logits = (word_temperature * cosine).reshape(texts, words, images)
    return logits.masked_fill(~attention_mask[..., None], -math.inf).logsumexp(dim=1)


@functools.cache
def _compiled_block_similarity() -> Callable[..., Tensor]:
    # Disable padding of strides: in torch 2.11 the gradient of blocks with odd sizes fails with it.
    return torch.compile(_block_similarity, options={"comprehensive_padding": False})
