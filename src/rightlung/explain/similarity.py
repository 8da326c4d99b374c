"""Cosine similarities of a text with every region, as non-negative maps.

Heatmaps must not be negative, so cosines are shifted by a named rule:

- ``unit`` (default): ``(1 + cosine) / 2``. Comparable between images, 0.5 is "unrelated". Nearly flat, so boxes need
  their own threshold.
- ``minimum``: subtract the map's minimum. Shows the contrast within an image, not between images.
- ``positive``: clip at 0.

The first two keep the order of the regions, and so AUROC, average precision and the peak.
"""

from __future__ import annotations

from typing import Literal

import torch

from rightlung.core import InputError, Size
from rightlung.core.checks import check_size
from rightlung.core.errors import unknown_name

Shift = Literal["unit", "minimum", "positive"]
SHIFTS: tuple[Shift, ...] = ("unit", "minimum", "positive")


def cosine_maps(regions: torch.Tensor, texts: torch.Tensor, grid: Size, shift: Shift = "unit") -> torch.Tensor:
    """Return cosines of regions ``(n, regions, d)``, in reading order, with texts ``(n, d)`` as maps ``(n, rows,
    cols)``.

    Vectors need not be normalised; the cosine with a zero vector is 0.

    >>> regions = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]])
    >>> cosine_maps(regions, torch.tensor([[1.0, 0.0]]), (1, 3)).tolist()
    [[[1.0, 0.5, 0.0]]]
    """
    rows, columns = check_size(grid, "grid")
    fits = regions.ndim == 3 and texts.ndim == 2 and regions.shape[::2] == texts.shape
    if not fits or regions.shape[1] != rows * columns:
        shapes = f"{tuple(regions.shape)} and {tuple(texts.shape)}"
        raise InputError(f"regions must be (n, {rows * columns}, d) and texts (n, d); got {shapes}")
    unit_regions, unit_texts = (torch.nn.functional.normalize(part, dim=-1) for part in (regions, texts))
    cosines = torch.einsum("nrd,nd->nr", unit_regions, unit_texts)
    return shifted(cosines.reshape(-1, rows, columns), shift)


def shifted(cosines: torch.Tensor, shift: Shift = "unit") -> torch.Tensor:
    """Return cosine maps ``(n, rows, cols)`` made non-negative by one of `SHIFTS`."""
    if cosines.ndim != 3:
        raise InputError(f"cosine maps must be (n, rows, cols); got {tuple(cosines.shape)}")
    if shift == "unit":
        return ((1.0 + cosines) / 2.0).clamp(0.0, 1.0)  # rounding may exceed -1 to 1
    if shift == "minimum":
        return cosines - cosines.amin(dim=(1, 2), keepdim=True)
    if shift == "positive":
        return cosines.clamp_min(0.0)
    raise unknown_name("shift", str(shift), SHIFTS)
