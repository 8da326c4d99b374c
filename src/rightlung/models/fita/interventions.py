"""What FITA writes from, changed one source at a time: saliency, symptoms, or the words before."""

from __future__ import annotations

from dataclasses import replace

import torch

from rightlung.models.fita.symptoms import SymptomPrior


def changed_prior(prior: SymptomPrior, name: str, grid: tuple[int, int]) -> SymptomPrior:
    """Return what the classifier saw, changed by an intervention; as it is for those of other sources."""
    if name == "saliency-uniform":
        return replace(prior, saliency=torch.full_like(prior.saliency, 1 / prior.saliency.shape[-1]))
    if name == "saliency-mirrored":
        return replace(prior, saliency=prior.saliency.view(*prior.saliency.shape[:2], *grid).flip(-1).flatten(2))
    if name == "symptoms-permuted":
        return SymptomPrior(*(part.roll(1, 1) for part in (prior.probabilities, prior.saliency, prior.pointing)))
    return prior
