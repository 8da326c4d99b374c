"""Tiny FITAs that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rightlung.models.base import TrainingBatch
from rightlung.models.classifier import Classifier
from rightlung.models.fita import Fita
from rightlung.models.fita.config import SYMPTOMS
from tests.models.clip.tiny import RESNET

REPORTS = [
    "Large left pleural effusion. The heart is enlarged.",
    "No pleural effusion. There is a right pneumothorax.",
    "Small right pleural effusion. No pneumothorax.",
    "The heart is enlarged. No pleural effusion. Left pneumothorax.",
    "The lungs are clear. No pneumothorax. The heart size is normal.",
    "Small left pleural effusion. Right pneumothorax. No edema.",
]
BERT: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2,
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "text": {"options": BERT, "triplets_per_batch": 24, "embedding_size": 8},
    "dimension": 16, "layers": 3, "heads": 2, "hidden_size": 32, "dropout": 0.0, "visual_dropout": 0.0, "min_count": 1,
    "writing": {"max_words": 24},
}  # fmt: skip
TEXT_STAGE: dict[str, Any] = {"losses": ["text_classification", "text_triplet"]}


def classifier(seed: int = 0) -> Classifier:
    image = {"kind": "resnet", "size": 64, "pyramid_levels": [-2], "options": RESNET}
    return Classifier.create({"findings": list(SYMPTOMS), "image": image}, [], seed).eval()


def create(seed: int = 0, **changed: Any) -> Fita:
    """Return an untrained model of images of 64 pixels on 4 x 4 patches, whose parts all have an effect."""
    model = Fita.from_encoders(classifier(seed), CONFIG | changed, REPORTS * 2, seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and name.startswith(("decoder", "encoder", "graph", "image_refiner")):
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.4)
    return model


def picture(seed: int, shape: tuple[int, int] = (50, 70)) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def pictures(count: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([picture(seed, (64, 64)) for seed in range(count)]))[:, None]


def batch(*texts: str) -> TrainingBatch:
    """Pictures with reports; each has a bright column of its own."""
    images = pictures(len(texts)) * 0.2
    for number, image in enumerate(images):
        image[0, :, 10 * (number % 6) : 10 * (number % 6) + 10] = 1.0
    return TrainingBatch(images, [], targets={"report": {"texts": list(texts)}})
