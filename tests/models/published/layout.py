"""Checkpoints with made-up weights: the names and shapes of a BERT, and weights that follow from a name."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return weights that follow from name and shape alone."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if len(shape) > 1:
        scaled: Tensor = drawn * (1 / math.prod(shape[1:])) ** 0.5 * (0.1 if "local_embedder" in name else 1)
        return scaled
    return 1 + 0.1 * drawn.abs() if name.endswith(("running_var", "weight")) else 0.1 * drawn


def bert_shapes(words: int, positions: int, hidden: int, inner: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a BERT's tensors, those of the unused pooling layer included."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (words, hidden),
        "embeddings.position_embeddings.weight": (positions, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
        "pooler.dense.weight": (hidden, hidden),
        "pooler.dense.bias": (hidden,),
    }
    for layer in range(layers):
        start = f"encoder.layer.{layer}."
        matrices = {
            **{f"attention.self.{name}": (hidden, hidden) for name in ("query", "key", "value")},
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
        }
        for name, shape in matrices.items():
            shapes[f"{start}{name}.weight"], shapes[f"{start}{name}.bias"] = shape, shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{start}{name}.weight"] = shapes[f"{start}{name}.bias"] = (hidden,)
    return shapes


class Attack:
    """Unpickling it runs code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code ran')",)
