"""GLoRIA's local similarity as a plain loop over captions, images and words, contexts and all: what ours must equal."""

from __future__ import annotations

import torch
from torch import Tensor


def looped_similarity(
    words: Tensor,
    attention_mask: Tensor,
    patches: Tensor,
    softmax_over_words: bool,
    temperature: Tensor | float,
    word_temperature: float,
) -> Tensor:
    """Similarity (texts, images), one pair at a time, with context vectors formed."""
    rows = []
    for text in range(len(words)):
        query = words[text][attention_mask[text]]  # (w, d)
        row = []
        for image in range(len(patches)):
            image_patches = patches[image]  # (p, d)
            scores = query @ image_patches.T
            if softmax_over_words:
                scores = torch.softmax(scores, dim=0)
            attention = torch.softmax(scores * temperature, dim=1)
            context = attention @ image_patches
            total = torch.zeros((), dtype=words.dtype)
            for word in range(len(query)):
                cosine = (query[word] @ context[word]) / (query[word].norm() * context[word].norm())
                total = total + torch.exp(word_temperature * cosine)
            row.append(torch.log(total))
        rows.append(torch.stack(row))
    return torch.stack(rows)
