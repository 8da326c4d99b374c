"""Class activation maps and Grad-CAM.

CAM (Zhou et al., CVPR 2016) weighs the last feature maps by the weights of a linear classifier. Grad-CAM (Selvaraju et
al., ICCV 2017, Eq. 1 and 2) uses the gradient of the class score, averaged over positions, and a ReLU, so it works with
any head. For heads that pool the linear score of each position (mean, or log-sum-exp as in Wang et al., CVPR 2017,
section 4.1), both give the same map up to a factor and the ReLU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rightlung.core import Extent, Heatmap, InputError


def grad_cam(activations: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Return Grad-CAM (n, h, w) >= 0 from activations and a score's gradients with respect to them, (n, c, h, w) each.

    >>> activations = torch.tensor([[[[1.0, 2.0]], [[3.0, 1.0]]]])
    >>> gradients = torch.tensor([[[[1.0, 1.0]], [[-0.5, -0.5]]]])
    >>> grad_cam(activations, gradients).tolist()
    [[[0.0, 1.5]]]
    """
    if activations.ndim != 4 or activations.shape != gradients.shape:
        shapes = f"{tuple(activations.shape)} and {tuple(gradients.shape)}"
        raise InputError(f"activations and gradients must both be (n, channels, rows, cols); got {shapes}")
    weights = gradients.mean(dim=(2, 3))
    return torch.einsum("nc,nchw->nhw", weights, activations).clamp_min(0.0)


def class_activation(features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return signed class activation maps (n, k, h, w) from features (n, c, h, w) and weights (k, c) of k classes.

    The bias is left out: it is the same at every position.
    """
    if features.ndim != 4 or weights.ndim != 2 or features.shape[1] != weights.shape[1]:
        shapes = f"{tuple(features.shape)} and {tuple(weights.shape)}"
        raise InputError(f"features must be (n, channels, rows, cols) and weights (classes, channels); got {shapes}")
    return torch.einsum("kc,nchw->nkhw", weights, features)


def as_heatmaps(
    maps: torch.Tensor, extents: Sequence[Extent] | None = None, abstentions: Sequence[float] | None = None
) -> list[Heatmap]:
    """Return non-negative maps (n, h, w) as heatmaps with their extents and abstentions.

    ``extents`` undo the preprocessing (`Extent.letterbox`, `Extent.crop`); by default the grid is the whole image.
    """
    if maps.ndim != 3:
        raise InputError(f"maps must be (n, rows, cols); got {tuple(maps.shape)}")
    places = [Extent()] * len(maps) if extents is None else list(extents)
    shares = [0.0] * len(maps) if abstentions is None else list(abstentions)
    for name, given in (("extents", places), ("abstentions", shares)):
        if len(given) != len(maps):
            raise InputError(f"expected {len(maps)} {name}, one per map; got {len(given)}")
    arrays = maps.detach().to("cpu", torch.float32).numpy()
    return [Heatmap(*parts) for parts in zip(arrays, places, shares, strict=True)]
