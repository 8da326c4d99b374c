"""Tiny UNITERs, batches and boxes that the tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rightlung.core import Box
from rightlung.models.base import TrainingBatch
from rightlung.models.uniter import Uniter

TEXTS = [
    "left pleural effusion.", "no pneumothorax is seen.", "right lower lobe opacity", "the heart is enlarged.",
    "clear lungs", "a nodule in the left upper zone", "scoliosis of the spine", "small right effusion",
]  # fmt: skip
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
REGIONS = {
    "right lung": Box(0.1, 0.1, 0.45, 0.8),
    "left lung": Box(0.55, 0.1, 0.9, 0.8),
    "heart": Box(0.4, 0.5, 0.7, 0.8),
}


def create(seed: int = 0, **changed: Any) -> Uniter:
    config: dict[str, Any] = {
        "image_size": 48, "region_size": 6, "feature_size": 40, "options": BERT, "vocab_size": 150,
        "max_length": 24, "map_size": 20,
    }  # fmt: skip
    return Uniter.create(config | changed, TEXTS * 3, seed).eval()


def picture(seed: int, shape: tuple[int, int] = (50, 70)) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def some_boxes(count: int, most: int, seed: int = 5) -> torch.Tensor:
    """Boxes (count, most, 4) of all sizes, down to slivers."""
    chance = np.random.default_rng(seed)
    corners = chance.random((count, most, 2, 2)).astype(np.float32)
    corners.sort(axis=2)
    corners[0, 0] = [[0.5, 0.25], [0.501, 0.2505]]
    return torch.from_numpy(corners.reshape(count, most, 4))


def batch(count: int = 8, most: int = 5, **changed: Any) -> TrainingBatch:
    """Pictures with a bright spot each in a place of its own; the last but one has fewer boxes."""
    rows, columns = torch.linspace(0, 1, 48)[:, None], torch.linspace(0, 1, 48)
    spots = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)).tolist()
    images = torch.stack([torch.exp(-10 * ((rows - y) ** 2 + (columns - x) ** 2))[None] for y, x in spots])
    boxed = torch.ones(count, most, dtype=torch.bool)
    boxed[count - 2, most - 2 :] = False
    regions = {"boxes": some_boxes(count, most) * boxed[..., None], "present": boxed} | changed
    return TrainingBatch(images, TEXTS[:count], [str(number) for number in range(count)], targets={"regions": regions})


def with_regions(given: TrainingBatch, **changed: Any) -> TrainingBatch:
    """Return the batch with some of its regions' tensors replaced."""
    return replace(given, targets={"regions": {**given.targets["regions"], **changed}})
