"""Tiny ChEX models and pictures that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rightlung.models.chex import Chex, ChexConfig
from rightlung.models.chex.config import DecoderConfig

TEXTS = [
    "left pleural effusion.", "no pneumothorax is seen.", "right lower lobe opacity.", "the heart is enlarged.",
    "the lungs are clear.", "a nodule in the left upper zone.", "no pleural effusion.", "small right effusion.",
]  # fmt: skip
IMAGE = {
    "kind": "resnet", "size": 64, "pyramid_levels": [1],
    "options": {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"},
}  # fmt: skip
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
DECODER = {"layers": 2, "heads": 2, "hidden_size": 32}
CONFIG: dict[str, Any] = {
    "image": IMAGE,
    "text": {"vocab_size": 200, "max_length": 24, "summed_layers": 1, "options": BERT},
    "generator": {
        "tokenizer": "words", "min_frequency": 1, "max_length": 24,
        "options": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    },
    "dimension": 16, "detector": DECODER, "post_decoder": DECODER, "prefix": {"length": 3, "hidden_size": 8},
}  # fmt: skip


def create(seed: int = 0, **changed: Any) -> Chex:
    """Return an untrained model in evaluation mode whose parts all have an effect."""
    model = Chex.create(CONFIG | changed, TEXTS * 2, seed).eval()
    louder(model, seed)
    return model


def louder(module: nn.Module, seed: int = 0) -> None:
    """Draw the weights of a new module so that no gate is closed and no two answers are almost equal."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim > 1 and "image_encoder" not in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
            elif name.endswith(("gate", "scale")):
                weight.fill_(0.7)


def part_config(**changed: Any) -> ChexConfig:
    """Return the configuration of a detector or post decoder with 16 features."""
    decoder = DecoderConfig(layers=2, heads=2, hidden_size=32)
    given: dict[str, Any] = {"dimension": 16, "detector": decoder, "post_decoder": decoder}
    return ChexConfig(**given | changed)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def picture(seed: int, shape: tuple[int, int] = (50, 70)) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def unit_boxes(*shape: int) -> Tensor:
    """Return boxes (..., 4) by their corners."""
    low = 0.1 + 0.1 * drawn(*shape, 2, seed=8).sigmoid()
    return torch.cat([low, low + 0.2 + 0.5 * drawn(*shape, 2, seed=9).sigmoid()], dim=-1)
