"""What a drawing of findings starts from and what it gives back.

Findings of one kind are drawn together, whatever studies they belong to: a ``Group`` holds the fields of each finding's
study and its place in centimetres; a ``Drawn`` says what it does to the beam and where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.chance import Floats, cloud, seeds_of
from rightlung.phantom.image.fields import Fields, column
from rightlung.phantom.scene import Lesion

LESION_STREAM = 41
SHARE = 0.3  # a focal finding's mask is where it adds at least this share of its own maximum


@dataclass(frozen=True, slots=True)
class Group:
    """``k`` findings of one kind. Maps are ``(k, h, w)``."""

    lesions: Sequence[Lesion]
    studies: NDArray[np.int64]  # (k,) which study of the batch each belongs to
    thorax: Thorax
    fields: Fields  # of each finding's study
    dx: Tensor  # centimetres from the finding's middle (in the pixel's own lung), growing towards the chest wall
    dy: Tensor
    inside: Tensor  # signed distance inside the lungs that the finding's side names

    @property
    def severity(self) -> Tensor:
        """How bad each is, ready to be combined with maps."""
        return column([lesion.severity for lesion in self.lesions], self.dx)

    @property
    def seeds(self) -> NDArray[np.uint64]:
        """One seed for each finding's outline and texture."""
        return seeds_of([lesion.seed for lesion in self.lesions], LESION_STREAM)

    def extent(self, usual: float) -> Tensor:
        """Return half the largest extent, or the usual one for what has none of its own."""
        return column([(lesion.size or usual) / 2 for lesion in self.lesions], self.dx)

    def cloud(self, cells: int, octaves: int = 3) -> Tensor:
        """Return noise of each finding's own."""
        return cloud(self.seeds, cells, self.dx.shape[-1], self.dx.device, octaves)

    def is_form(self, *forms: str) -> Tensor:
        """Return 1 where a finding has one of these forms, else 0."""
        return column([float(lesion.form in forms) for lesion in self.lesions], self.dx)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What findings do. All maps ``(k, h, w)``; what is None has no such effect."""

    extent: Tensor  # positive on the mask, changing about evenly across its border
    fill: Tensor | None = None  # share of the lung's air that gives way to water; negative for more air
    water: Tensor | None = None  # centimetres of water added, anywhere
    fade: Tensor | None = None  # share by which vessels vanish; above 1 they turn into air bronchograms
    gap: Tensor | None = None  # distance from a visceral pleura, whose fine line is drawn where it is 0
    where: Literal["lung", "between", "anywhere"] = "lung"  # whether the mask ends at the border of the lungs


def places(thorax: Thorax, studies: NDArray[np.int64], lesions: Sequence[Lesion]) -> Floats:
    """Return each finding's middle in centimetres as it would lie in the right and in the left lung, ``(k, 2, 2)``."""
    across = np.array([lesion.place[0] for lesion in lesions])
    down = np.array([lesion.place[1] for lesion in lesions])
    found = np.empty((len(lesions), 2, 2))
    apex = thorax.apex[studies]
    floor = thorax.diaphragm[studies]
    for side, inner, outer, dome in (
        (0, thorax.inner_right[studies], thorax.outer_right[studies], thorax.right_dome[studies]),
        (1, thorax.inner_left[studies], thorax.outer_left[studies], thorax.left_dome[studies]),
    ):
        y = apex + down * (dome - apex)
        x = np.zeros_like(y)
        for _ in range(3):
            x = at(inner, y) + across * (at(outer, y) - at(inner, y))
            y = apex + down * (at(floor, x) - apex)
        found[:, side] = np.stack([x, y], axis=1)
    return found


def gather(thorax: Thorax, fields: Fields, studies: NDArray[np.int64], lesions: Sequence[Lesion]) -> Group:
    """Collect what drawing these findings needs."""
    chosen = fields.take(torch.from_numpy(studies).to(fields.x.device))
    middle = places(thorax, studies, lesions)
    right_x, right_y = column(middle[:, 0, 0], chosen.x), column(middle[:, 0, 1], chosen.x)
    left_x, left_y = column(middle[:, 1, 0], chosen.x), column(middle[:, 1, 1], chosen.x)
    dx = torch.where(chosen.is_left, chosen.x - left_x, right_x - chosen.x)
    dy = chosen.y - torch.where(chosen.is_left, left_y, right_y)
    far = torch.full_like(dx, -9.0)
    right = column([float(lesion.side != "left") for lesion in lesions], dx) > 0
    left = column([float(lesion.side != "right") for lesion in lesions], dx) > 0
    inside = torch.maximum(torch.where(right, chosen.lungs[:, 0], far), torch.where(left, chosen.lungs[:, 1], far))
    return Group(lesions, studies, thorax, chosen, dx, dy, inside)


def over_share(amount: Tensor, share: float = SHARE) -> Tensor:
    """Return ``amount`` less a share of its own greatest value: positive on the mask."""
    greatest = amount.flatten(1).amax(1)[:, None, None]
    return amount / greatest.clamp_min(1e-6) - share
