"""Tiny CLIPs and batches that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rightlung.models.base import TrainingBatch
from rightlung.models.clip import Clip

TEXTS = [
    "left pleural effusion.", "no pneumothorax is seen.", "right lower lobe opacity", "the heart is enlarged.",
    "clear lungs", "a nodule in the left upper zone", "scoliosis of the spine", "small right effusion",
]  # fmt: skip
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1], "layer_type": "basic"}
CONVNEXT = {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1]}
SWIN = {"embed_dim": 8, "depths": [1, 1, 1], "num_heads": [1, 2, 2], "window_size": 4}
VIT = {
    "patch_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "initializer_range": 0.2,  # so narrow a one hardly sees the image otherwise
}  # fmt: skip
BERT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2,
}  # fmt: skip
CLIP_TEXT = {
    "kind": "clip_text_model", "pooling": "eos", "end_token": True, "vocab_size": 120, "max_length": 24,
    "options": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
}  # fmt: skip


def create(seed: int = 0, **changed: Any) -> Clip:
    """Return a CLIP of images of 64 pixels, on 4 x 4 patches."""
    config: dict[str, Any] = {
        "image": {"size": 64, "options": VIT},
        "text": {"vocab_size": 120, "max_length": 24, "options": BERT},
        "dimension": 12,
    }
    return Clip.create(config | changed, TEXTS * 3, seed).eval()


def picture(seed: int, shape: tuple[int, int] = (50, 70)) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def batch(count: int = 8, **changed: Any) -> TrainingBatch:
    """Pictures with a bright spot each in a place of its own."""
    rows, columns = torch.linspace(0, 1, 64)[:, None], torch.linspace(0, 1, 64)
    spots = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)).tolist()
    images = torch.stack([torch.exp(-10 * ((rows - y) ** 2 + (columns - x) ** 2))[None] for y, x in spots])
    return TrainingBatch(images, changed.pop("texts", TEXTS[:count]), **changed)
