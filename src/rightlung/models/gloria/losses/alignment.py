"""Alignment of synthetic and real images: deep CORAL (Sun & Saenko, ECCV workshops 2016, Eq. 1–3)."""

from __future__ import annotations

import torch
from torch import Tensor

from rightlung.models.gloria.losses.base import GloriaLossInputs, Loss


class Coral(Loss):
    """The distance of the covariances of real and synthetic images' global embeddings, in one process."""

    def forward(self, inputs: GloriaLossInputs) -> Tensor:
        """Return the loss; 0 where the batch has fewer than two images of either domain."""
        real = inputs.batch.target("domain")["real"]
        return coral(inputs.images.global_embedding, real == 0, real == 1)


def coral(features: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Return the squared distance of the covariances of two sets of features (n, d), over 4 d²; 0 if one has no two.

    ``source`` and ``target`` (n,) bool say which rows belong to each. Nothing waits for the device.
    """
    with torch.autocast(features.device.type, enabled=False):
        difference = _covariance(features.float(), source) - _covariance(features.float(), target)
    enough = (source.sum() > 1) & (target.sum() > 1)
    return difference.square().sum() * enough / (4 * features.shape[1] ** 2)


def _covariance(features: Tensor, chosen: Tensor) -> Tensor:
    weights = chosen.float()[:, None]
    mean = (weights * features).sum(0) / weights.sum().clamp_min(1)
    centred = (features - mean) * weights
    return centred.T @ centred / (weights.sum() - 1).clamp_min(1)
