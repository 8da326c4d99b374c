"""The classifier's losses by name: binary cross-entropies (BCE) of labels and of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, binary_cross_entropy_with_logits

from rightlung.models.base import TrainingBatch

if TYPE_CHECKING:
    from rightlung.models.classifier.model import Classifier


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierLossInputs:
    """What the losses of a training step share: logits of cells (n, k, rows, cols) and labels (n, k)."""

    model: Classifier
    batch: TrainingBatch
    cell_logits: Tensor
    labels: Tensor  # 1, 0 or NaN for unknown


class LabelBCE(nn.Module):
    """The binary cross-entropy of the image's logits and the known labels."""

    def forward(self, inputs: ClassifierLossInputs) -> Tensor:
        """Return the mean over the known labels; 0 if none is known."""
        return label_bce(inputs.model.pool(inputs.cell_logits), inputs.labels)


class MaskBCE(nn.Module):
    """The binary cross-entropy of the cells' logits and the masks of findings, from the batch's phrases."""

    def forward(self, inputs: ClassifierLossInputs) -> Tensor:
        """Return the mean over the findings."""
        return mask_bce(inputs.cell_logits, *finding_masks(inputs))


LOSSES: dict[str, type[nn.Module]] = {"label_bce": LabelBCE, "mask_bce": MaskBCE}


def finding_masks(inputs: ClassifierLossInputs) -> tuple[Tensor, Tensor]:
    """Return the mask of each finding (n, k, rows, cols) and which are known (n, k).

    A finding covers the union of the masks of the phrases that name it; one whose label is 0 covers nothing. A phrase
    that is not in the image does not count, as it may be wrong only in its side.
    """
    phrases, grid = inputs.batch.target("phrases"), inputs.model.image_encoder.grid
    masks = torch.zeros(*inputs.labels.shape, *grid, device=inputs.labels.device)
    known = inputs.labels == 0
    if not phrases["texts"]:
        return masks, known
    phrase_masks = adaptive_avg_pool2d(phrases["masks"].float(), grid).clamp(0, 1)
    visible = (phrases["has_mask"].bool() & (phrases["present"] == 1)).tolist()
    for phrase, (text, image) in enumerate(zip(phrases["texts"], phrases["image_indices"], strict=True)):
        for column in inputs.model.columns.of_phrase(text) if visible[phrase] else ():
            masks[image, column] = torch.maximum(masks[image, column], phrase_masks[phrase])
            known[image, column] = True
    return masks, known


def label_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean BCE over the known labels, (n, k) each with NaN for unknown; 0 if none is known."""
    known = ~torch.isnan(labels)
    losses = binary_cross_entropy_with_logits(logits.float(), labels.nan_to_num(), reduction="none")
    return (losses * known).sum() / known.sum().clamp_min(1)


def mask_bce(cell_logits: Tensor, masks: Tensor, known: Tensor) -> Tensor:
    """Return the BCE of cell logits (n, k, rows, cols) with the share of each cell that a finding covers.

    ``known`` (n, k) says which masks count. Covered and free cells have equal weight within each finding of the batch:
    a nodule covers one cell in two hundred.
    """
    counted = known[:, :, None, None].float()
    losses = binary_cross_entropy_with_logits(cell_logits.float(), masks, reduction="none")
    covered, free = masks * counted, (1 - masks) * counted
    inside = (losses * covered).sum(dim=(0, 2, 3)) / covered.sum(dim=(0, 2, 3)).clamp_min(1.0)
    outside = (losses * free).sum(dim=(0, 2, 3)) / free.sum(dim=(0, 2, 3)).clamp_min(1.0)
    return (inside + outside).mean() / 2
