"""The paper-scale configuration has the parameter counts of the paper (supp. D.1, last paragraph)."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn

from rightlung.core.settings import read_settings
from rightlung.models.chex import Chex, ChexConfig

PAPER = {
    "image": {
        "kind": "vit", "size": 224, "pyramid_levels": [0],
        "options": {"num_channels": 3, "patch_size": 32, "hidden_size": 768, "num_hidden_layers": 12},
    },
    "text": {
        "kind": "clip_text_model", "max_length": 77, "end_token": True, "pooling": "eos", "summed_layers": 1,
        "options": {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048},
    },
    "generator": {"kind": "gpt2", "max_length": 1024, "options": {"n_embd": 1024, "n_layer": 24, "n_head": 16}},
    "trained": ["image_encoder", "detector", "post_decoder", "generator"],
    "frozen_image_layers": 8,
}  # fmt: skip


def vocabulary(size: int) -> str:
    """Return a tokenizer of so many tokens, with those of CLIP and GPT-2 that have a meaning."""
    words = ["<|startoftext|>", "<|endoftext|>", *(f"word{number}" for number in range(size - 2))]
    return str(Tokenizer(models.WordLevel(dict(zip(words, range(size), strict=True)))).to_str())


def millions(*modules: nn.Module, frozen: bool = False) -> float:
    weights = {id(weight): weight for module in modules for weight in module.parameters()}.values()
    return sum(weight.numel() for weight in weights if not frozen or not weight.requires_grad) / 1e6


def test_the_parameter_counts_of_the_paper() -> None:
    """The paper rounds to millions. Ours has 88.2 + 63.4 + 28.1 + 872.1 = 1,051.9 M, of which 122.5 M are frozen.

    The sentence generator is post decoder, prefix MLP and GPT-2 medium, with tied embeddings. CLIP's vision tower has
    one more layer norm, and no biases in its projection; ours projects patches and CLS token by matrices of their own.
    """
    with torch.device("meta"):  # nothing is allocated
        model = Chex(read_settings(ChexConfig, PAPER), vocabulary(49_408), vocabulary(50_257))
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    prefix = [tuple(weight.shape) for weight in model.generator.prefix.parameters() if weight.ndim == 2]
    assert prefix == [(2048, 512), (245_760, 2048)]
    counts = {
        "image encoder": (millions(model.image_encoder), 88),
        "text encoder": (millions(model.text_encoder), 63),
        "prompt detector": (millions(model.detector), 28),
        "sentence generator": (millions(model.post_decoder, model.generator), 872),
        "all": (millions(model), 1051),
        "frozen": (millions(model, frozen=True), 123),
    }
    for name, (found, published) in counts.items():
        assert found == pytest.approx(published, rel=0.01), (name, found)
    assert model.image_encoder.grid == (7, 7)
    trained = {name.split(".")[0] for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"image_encoder", "detector", "post_decoder", "generator"}
