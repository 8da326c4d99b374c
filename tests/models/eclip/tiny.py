"""Tiny eCLIPs on both hosts, and a batch with annotated images at its end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rightlung.models.base import TrainingBatch
from rightlung.models.eclip import Eclip, EclipGloria
from tests.models.clip.tiny import BERT, RESNET, TEXTS, VIT
from tests.models.clip.tiny import batch as plain_batch

EXPERT = {"patch": 16, "width": 16, "heads": 2}
CONFIG: dict[str, Any] = {
    "image": {"size": 64, "options": VIT},
    "text": {"vocab_size": 120, "max_length": 24, "options": BERT},
    "dimension": 12,
}
GLORIA: dict[str, Any] = CONFIG | {"image": {"size": 64, "options": RESNET, "pyramid_levels": [2]}}


def create(seed: int = 0, **changed: Any) -> Eclip:
    expert = EXPERT | changed.pop("expert", {})
    return Eclip.create(CONFIG | {"expert": expert} | changed, TEXTS * 3, seed).eval()


def create_gloria(seed: int = 0, **changed: Any) -> EclipGloria:
    expert = EXPERT | changed.pop("expert", {})
    return EclipGloria.create(GLORIA | {"expert": expert} | changed, TEXTS * 3, seed).eval()


def batch(count: int = 6, annotated: int = 2, maps: Tensor | None = None, **changed: Any) -> TrainingBatch:
    """Pictures with a spot each; the last ones have a map."""
    if maps is None:
        maps = torch.zeros(annotated, 16, 16)
        maps[:, 4:8, 8:12] = 1.0
    target = {
        "image_indices": list(range(count - annotated, count)),
        "maps": maps,
        "matches_text": torch.ones(annotated, dtype=torch.bool),
    }
    return plain_batch(count, targets={"expert": target}, seed=3, **changed)
