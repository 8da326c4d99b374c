"""Regions of interest: the weights of a grid's cells in a mean over a box, and crops of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rightlung.core import Box, Extent, Image, InputError, Size
from rightlung.models.boxes import in_square


def check_boxes(boxes: Sequence[Box], images: Sequence[Image]) -> None:
    """Refuse another number of boxes than one for each image."""
    if len(boxes) != len(images):
        raise InputError(f"expected one box for each image; got {len(images)} images and {len(boxes)} boxes")


def box_weights(boxes: Sequence[Box], extents: Sequence[Extent], grid: Size) -> Tensor:
    """Return the weights (n, rows, cols) of a mean over a box: the share that each cell has of the box's area.

    ``extents`` says where the grid lies in each image.

    >>> box_weights([Box(0.25, 0, 1, 0.5)], [Extent()], (2, 2))
    tensor([[[0.3333, 0.6667],
             [0.0000, 0.0000]]])
    """
    corners = [in_square(box, extent) for box, extent in zip(boxes, extents, strict=True)]
    x0, y0, x1, y1 = torch.tensor(corners).reshape(-1, 4, 1).unbind(1)
    down, across = _overlaps(y0, y1, grid[0]), _overlaps(x0, x1, grid[1])
    covered = down[:, :, None] * across[:, None, :]
    return covered / covered.sum((1, 2), keepdim=True)


def _overlaps(low: Tensor, high: Tensor, count: int) -> Tensor:
    """Return how much of each of ``count`` equal parts of 0 to 1 lies between low and high, (n, 1) each."""
    parts = torch.arange(count)
    return (torch.minimum(high, (parts + 1) / count) - torch.maximum(low, parts / count)).clamp_min(0)


def gaussian_weights(boxes: Tensor, grid: tuple[int, int], std: float) -> Tensor:
    """Return the Gaussian of each box (..., 4) on a grid, (..., rows, cols), 1 at its maximum on the grid.

    Its mean is the centre of the box, and its standard deviation ``std`` times width and height, as in Müller et al.
    (2023). A box narrower than a cell counts as wide as the cell, so that the weights stay above 0.
    """
    rows, columns = grid
    xs = (torch.arange(columns, device=boxes.device) + 0.5) / columns
    ys = (torch.arange(rows, device=boxes.device) + 0.5) / rows
    x, y, width, height = boxes.float().unbind(-1)
    across = ((xs - x[..., None]) / (std * width.clamp_min(1 / columns))[..., None]) ** 2
    down = ((ys - y[..., None]) / (std * height.clamp_min(1 / rows))[..., None]) ** 2
    exponents = -0.5 * (down[..., :, None] + across[..., None, :])
    return (exponents - exponents.amax((-2, -1), keepdim=True)).exp()


def crop(image: Image, box: Box) -> Image:
    """Return the pixels in a box, at least one."""
    return image[box.pixel_slices((image.shape[0], image.shape[1]))]
