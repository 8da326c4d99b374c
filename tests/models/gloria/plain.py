"""GLoRIA's local similarity as a plain loop over captions, images and words, contexts and all: what ours must equal."""

from __future__ import annotations

import torch
from torch import Tensor


def looped_similarity(
    words: Tensor, real: Tensor, regions: Tensor, softmaxes: int, temperature: Tensor | float, word_temperature: float
) -> Tensor:
    """Similarity (texts, images), one pair at a time, with context vectors formed."""
    rows = []
    for text in range(len(words)):
        query = words[text][real[text]]  # (w, d)
        row = []
        for image in range(len(regions)):
            context = regions[image]  # (r, d)
            scores = query @ context.T
            if softmaxes == 2:
                scores = torch.softmax(scores, dim=0)
            attention = torch.softmax(scores * temperature, dim=1)
            attention_mask = attention @ context
            total = torch.zeros((), dtype=words.dtype)
            for word in range(len(query)):
                cosine = (query[word] @ attention_mask[word]) / (query[word].norm() * attention_mask[word].norm())
                total = total + torch.exp(word_temperature * cosine)
            row.append(torch.log(total))
        rows.append(torch.stack(row))
    return torch.stack(rows)
