"""Maps from the self-attention of transformers, and from attention weighed by its gradient.

Attention rollout (Abnar and Zuidema, ACL 2020) multiplies the attention of all layers; it reads the image alone. Its
counterpart with gradients (Chefer et al., ICCV 2021, Eq. 5 and 6) follows a score, such as the similarity with a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rightlung.core import InputError, Size
from rightlung.core.checks import check_size


def attention_rollout(attentions: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return how much each token draws from each input token, (n, tokens, tokens), of layers (n, heads, tokens,
    tokens).

    Each layer is the mean over heads, averaged with the identity for its residual connection; rows add up to one.

    >>> attention_rollout([torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])]).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """
    rolled = _identity(attentions)
    for layer in attentions:
        mixed = (layer.mean(dim=1) + _identity([layer])) / 2
        rolled = mixed / mixed.sum(dim=-1, keepdim=True) @ rolled
    return rolled


def attention_relevance(attentions: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the relevance of each input token to each token, (n, tokens, tokens), by gradient × attention.

    ``gradients`` are those of a score with respect to the ``attentions`` (n, heads, tokens, tokens). A layer adds the
    positive part of gradient × attention, averaged over heads, times the relevance so far.
    """
    if len(attentions) != len(gradients):
        raise InputError(f"expected a gradient for each of {len(attentions)} layers; got {len(gradients)}")
    relevance = _identity(attentions)
    for layer, gradient in zip(attentions, gradients, strict=True):
        relevance = relevance + gradient_attention(layer, gradient).mean(dim=1) @ relevance
    return relevance


def gradient_attention(attention: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Return the positive part of attention times the gradient of a score with respect to it.

    >>> gradient_attention(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([2.0, -1.0, 1.0])).tolist()
    [1.0, 0.0, 0.20000000298023224]
    """
    if attention.shape != gradients.shape:
        shapes = f"{tuple(attention.shape)} and {tuple(gradients.shape)}"
        raise InputError(f"attention and gradients must have the same shape; got {shapes}")
    return (gradients * attention).clamp_min(0.0)


def token_maps(weights: torch.Tensor, grid: Size, class_token: bool = True) -> torch.Tensor:
    """Return maps (n, rows, cols) from weights of tokens (n, tokens, tokens); the tokens of the grid come last.

    The map is the row of the class token, the first one, or, without a score of its own, the mean row of the grid's.
    """
    rows, columns = check_size(grid, "grid")
    before = weights.shape[-1] - rows * columns
    if weights.ndim != 3 or before < int(class_token):
        needed = f"{rows} x {columns} tokens{' and a class token' if class_token else ''}"
        raise InputError(f"weights of tokens must be (n, tokens, tokens) with {needed}; got {tuple(weights.shape)}")
    chosen = weights[:, 0] if class_token else weights[:, before:].mean(dim=1)
    return chosen[:, before:].reshape(-1, rows, columns)


def _identity(attentions: Sequence[torch.Tensor]) -> torch.Tensor:
    shapes = {tuple(layer.shape) for layer in attentions}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 4 or shape[2] != shape[3]:
        raise InputError("attention of all layers must be (n, heads, tokens, tokens) and of one shape")
    return torch.eye(shape[2], dtype=attentions[0].dtype, device=attentions[0].device).expand(shape[0], -1, -1)
