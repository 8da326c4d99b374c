"""Validation of the EMA model during a run: losses, and localisation for models that ground phrases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rightlung.core import Image
from rightlung.models.base import Grounder, TrainingBatch
from rightlung.scoring.localisation import score
from rightlung.training.log import Row

GROUNDING_BATCH_SIZE = 16


@torch.no_grad()
def validate(
    model: nn.Module, batches: Sequence[TrainingBatch], loss_weights: Mapping[str, float], max_grounded_phrases: int
) -> Row:
    """Return the loss and its terms on fixed batches and, for a `Grounder`, AUROC and pointing accuracy.

    Contrastive terms depend on the batch size, which is that of training.
    """
    model.eval()
    totals: dict[str, float] = {}
    for batch in batches:
        for name, value in model(batch, None).items():
            totals[name] = totals.get(name, 0.0) + float(value) * len(batch)
    count = sum(map(len, batches))
    row = {f"validation {name}": value / count for name, value in totals.items()}
    row["validation loss"] = sum(
        weight * row[f"validation {name}"] for name, weight in loss_weights.items() if f"validation {name}" in row
    )
    # NaN weights give NaN maps, too; the loss reports them.
    if isinstance(model, Grounder) and max_grounded_phrases and math.isfinite(row["validation loss"]):
        row |= _pointing(model, batches, max_grounded_phrases)
    return row


def _pointing(model: Grounder, batches: Sequence[TrainingBatch], max_grounded_phrases: int) -> Row:
    """Score the maps of the first ``max_grounded_phrases`` phrases with masks, on the grid of these."""
    asked = list(islice(_phrases_with_masks(batches), max_grounded_phrases))
    if not asked:
        return {}
    images, texts, masks = zip(*asked, strict=True)
    maps = []
    for begin in range(0, len(texts), GROUNDING_BATCH_SIZE):
        for grounding in model.ground(
            images[begin : begin + GROUNDING_BATCH_SIZE], texts[begin : begin + GROUNDING_BATCH_SIZE]
        ):
            empty = np.zeros(masks[0].shape, dtype=np.float32)
            maps.append(empty if grounding.heatmap is None else grounding.heatmap.to_size(empty.shape))
    found = score(np.stack(maps), np.stack(masks), metrics=["auroc", "pointing"])
    return {f"validation {name}": float(np.nanmean(found[name])) for name in ("auroc", "pointing")}


def _phrases_with_masks(batches: Sequence[TrainingBatch]) -> Iterator[tuple[Image, str, NDArray[np.bool_]]]:
    for batch in batches:
        phrases = batch.target("phrases")
        for phrase in torch.nonzero(phrases["has_mask"]).flatten().tolist():
            mask = (phrases["masks"][phrase] > 0.5).cpu().numpy()
            if mask.any():
                image = batch.images[phrases["image_indices"][phrase], 0].float().cpu().numpy()
                yield image, phrases["texts"][phrase], mask
