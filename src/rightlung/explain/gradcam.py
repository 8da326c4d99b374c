"""Where a class's evidence lies: class activation maps and Grad-CAM, as pure functions of tensors.

CAM (Zhou et al., *Learning Deep Features for Discriminative Localization*, CVPR 2016) weighs the last feature maps by a
linear classifier's weights. Grad-CAM (Selvaraju et al., ICCV 2017, Eq. 1 and 2) takes the gradient of the class score
instead of weights, averaged over positions, and keeps what speaks for the class (ReLU); so it needs no particular head.
For a head that pools the linear score of each position (the mean, or log-sum-exp as in Wang et al., CVPR 2017, section
4.1) the averaged gradient is the weight over the number of positions, and the two are the same map up to that factor
and the ReLU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rightlung.core import Extent, Heatmap, InputError


def grad_cam(activations: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Grad-CAM of activations and of a score's gradients with respect to them, (n, c, h, w) each, to (n, h, w) >= 0.

    >>> activations = torch.tensor([[[[1.0, 2.0]], [[3.0, 1.0]]]])
    >>> gradients = torch.tensor([[[[1.0, 1.0]], [[-0.5, -0.5]]]])
    >>> grad_cam(activations, gradients).tolist()
    [[[0.0, 1.5]]]
    """
    if activations.ndim != 4 or activations.shape != gradients.shape:
        raise InputError(
            "activations and gradients must both be (n, channels, rows, cols); "
            f"got {tuple(activations.shape)} and {tuple(gradients.shape)}"
        )
    weights = gradients.mean(dim=(2, 3))
    return torch.einsum("nc,nchw->nhw", weights, activations).clamp_min(0.0)


def class_activation(features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Class activation maps, signed: features (n, c, h, w) and weights (k, c) of k classes to (n, k, h, w).

    A bias is left out: it is the same at every position and says nothing about where.
    """
    if features.ndim != 4 or weights.ndim != 2 or features.shape[1] != weights.shape[1]:
        raise InputError(
            "features must be (n, channels, rows, cols) and weights (classes, channels) with the same channels; "
            f"got {tuple(features.shape)} and {tuple(weights.shape)}"
        )
    return torch.einsum("kc,nchw->nkhw", weights, features)


def as_heatmaps(
    maps: torch.Tensor, extents: Sequence[Extent] | None = None, abstentions: Sequence[float] | None = None
) -> list[Heatmap]:
    """Non-negative maps (n, h, w) as heatmaps, each with its grid's place in the original image and its abstention.

    ``extents`` undo what was done to the image before the model saw it (`Extent.letterbox`, `Extent.crop`); without
    them the grid is the whole image.
    """
    if maps.ndim != 3:
        raise InputError(f"maps must be (n, rows, cols); got the shape {tuple(maps.shape)}")
    places = [Extent()] * len(maps) if extents is None else list(extents)
    shares = [0.0] * len(maps) if abstentions is None else list(abstentions)
    for name, given in (("extents", places), ("abstentions", shares)):
        if len(given) != len(maps):
            raise InputError(f"{len(given)} {name} do not go with {len(maps)} maps")
    arrays = maps.detach().to("cpu", torch.float32).numpy()
    return [Heatmap(*parts) for parts in zip(arrays, places, shares, strict=True)]
