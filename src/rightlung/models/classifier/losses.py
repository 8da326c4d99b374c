"""The losses of the classifier, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy over the known labels, (n, k) each with NaN for unknown; 0 if none is known."""
    known = ~torch.isnan(labels)
    losses = binary_cross_entropy_with_logits(logits.float(), labels.nan_to_num(), reduction="none")
    return (losses * known).sum() / known.sum().clamp_min(1)


def mask_loss(cell_logits: Tensor, masks: Tensor, known: Tensor) -> Tensor:
    """Return the cross-entropy of cell logits (n, k, rows, cols) with the share of each cell that a finding covers.

    ``known`` (n, k) says which masks count. Covered and free cells have equal weight within each finding of the batch:
    a nodule covers one cell in two hundred.
    """
    counted = known[:, :, None, None].float()
    losses = binary_cross_entropy_with_logits(cell_logits.float(), masks, reduction="none")
    covered, free = masks * counted, (1 - masks) * counted
    inside = (losses * covered).sum(dim=(0, 2, 3)) / covered.sum(dim=(0, 2, 3)).clamp_min(1.0)
    outside = (losses * free).sum(dim=(0, 2, 3)) / free.sum(dim=(0, 2, 3)).clamp_min(1.0)
    return (inside + outside).mean() / 2
