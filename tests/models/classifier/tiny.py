"""A tiny classifier that the tests share."""

from __future__ import annotations

from typing import Any

import torch

from rightlung.models.classifier import Classifier

OPTIONS = {"embedding_size": 4, "hidden_sizes": [4, 4, 8, 8], "depths": [1, 1, 1, 1], "layer_type": "basic"}


def tiny_classifier(*findings: str, seed: int = 0, **changed: Any) -> Classifier:
    """Return a classifier of images of 64 pixels, on 4 x 4 cells, with large weights in its last layer."""
    image = {"kind": "resnet", "size": 64, "pyramid_levels": [-2, -1], "options": OPTIONS}
    model = Classifier.create({"findings": findings, "image": image} | changed, [], seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in model.image_encoder.patch_projections:
            for parameter in layer.parameters():
                torch.nn.init.normal_(parameter)
    return model.eval()
