"""Inputs and outputs of drawing findings, those of one kind together, whichever studies they belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.columns import Columns, ColumnTensors
from rightlung.phantom.image.maps import AnatomyMaps
from rightlung.phantom.image.randomness import Floats
from rightlung.phantom.scene import Lesion

LESION_STREAM = 41
COLUMNS = (
    "severity", "right_x", "right_y", "left_x", "left_y", "on_right", "on_left", "own_x", "own_y", "outward", "apex",
    "right_dome", "left_dome", "mean_dome", "below_carina", "heart_middle", "supine",
)  # fmt: skip
"""Columns of every kind of finding: its centre as in either lung, its own centre, and the anatomy around it."""

SHARE = 0.3  # a focal finding's mask is where its contribution is at least this share of the maximum


Own = Callable[[Sequence[Lesion], Floats], Columns]
"""Computes the additional columns of a kind of finding from its lesions and random numbers ``(k, 6)``."""


@dataclass(frozen=True, slots=True)
class Group:
    """``k`` findings of one kind. Maps are ``(k, h, w)``."""

    common: ColumnTensors  # columns of every kind of finding, see `columns`
    own: ColumnTensors  # columns of this kind
    anatomy: AnatomyMaps  # of each finding's study
    dx: Tensor  # centimetres from the finding's centre (in the pixel's own lung), positive towards the chest wall
    dy: Tensor
    inside: Tensor  # signed distance inside the lungs of the finding's side
    clouds: Sequence[Tensor]  # noise of each finding, as many as its kind requests

    @property
    def severity(self) -> Tensor:
        """Severity of each finding, broadcast to maps."""
        return self.common["severity"]

    @property
    def coverage(self) -> Tensor:
        """1 inside the lungs and 0 far outside, extended beyond the border so that no rim of air is left."""
        return (self.inside / 0.3 + 2.0).clamp(0, 1)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Effects of findings. All maps are ``(k, h, w)``; None means no such effect."""

    extent: Tensor  # positive on the mask, with an even slope across its border
    fill: Tensor | None = None  # share of the lung's air replaced by water; negative for more air
    water: Tensor | None = None  # added water in centimetres
    fade: Tensor | None = None  # share by which vessels vanish; above 1 they become air bronchograms
    gap: Tensor | None = None  # distance from a visceral pleura, drawn as a fine line where it is 0
    where: Literal["lung", "between", "anywhere"] = "lung"  # whether the mask ends at the border of the lungs


def places(thorax: Thorax, studies: NDArray[np.int64], lesions: Sequence[Lesion]) -> Floats:
    """Return each finding's centre in centimetres as in the right and in the left lung, ``(k, 2, 2)``."""
    across = np.array([lesion.place[0] for lesion in lesions])
    down = np.array([lesion.place[1] for lesion in lesions])
    found = np.empty((len(lesions), 2, 2))
    apex, floor = thorax.apex[studies], thorax.diaphragm[studies]
    for side in (0, 1):
        inner, outer, dome = (pair[side][studies] for pair in (thorax.inner, thorax.outer, thorax.dome))
        y = apex + down * (dome - apex)
        x = np.zeros_like(y)
        for _ in range(3):
            x = at(inner, y) + across * (at(outer, y) - at(inner, y))
            y = apex + down * (at(floor, x) - apex)
        found[:, side] = np.stack([x, y], axis=1)
    return found


def reach(lesions: Sequence[Lesion], usual: float) -> list[float]:
    """Return half the size of each lesion, or of the usual size if it has none."""
    return [(lesion.size or usual) / 2 for lesion in lesions]


def reaching(usual: float) -> Own:
    """Return the column of a finding that has only a size."""
    return lambda lesions, _: {"reach": reach(lesions, usual)}


def in_forms(*forms: str) -> Own:
    """Return an indicator column (0 or 1) for each form."""
    return lambda lesions, _: {form: [float(lesion.form == form) for lesion in lesions] for form in forms}


def in_region(word: str) -> Own:
    """Return an indicator column (0 or 1) for a word in a lesion's region or form."""
    return lambda lesions, _: {word: [float(word in (*lesion.region.split(), lesion.form)) for lesion in lesions]}


def columns(
    thorax: Thorax, studies: NDArray[np.int64], lesions: Sequence[Lesion], breaks: Mapping[int, Floats]
) -> dict[str, Floats]:
    """Return the columns of every kind of finding; ``breaks`` maps rows of rib fractures to their positions."""
    middle = places(thorax, studies, lesions)
    is_left = np.array([lesion.side == "left" for lesion in lesions])
    own = np.where(is_left[:, None], middle[:, 1], middle[:, 0])
    for row, place in breaks.items():
        own[row] = place
    values = (
        np.array([lesion.severity for lesion in lesions]),
        *(middle[:, 0, 0], middle[:, 0, 1], middle[:, 1, 0], middle[:, 1, 1]),
        np.array([float(lesion.side != "left") for lesion in lesions]),
        np.array([float(lesion.side != "right") for lesion in lesions]),
        *(own[:, 0], own[:, 1], np.where(is_left, 1.0, -1.0)),
        *(thorax.apex[studies], thorax.dome[0][studies], thorax.dome[1][studies]),
        (thorax.dome[0] + thorax.dome[1])[studies] / 2,
        thorax.carina[studies, 1] + 1.5,
        thorax.heart_middle[studies],
        thorax.supine[studies],
    )
    return dict(zip(COLUMNS, values, strict=True))


def around(common: ColumnTensors, anatomy: AnatomyMaps) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``dx``, ``dy`` and ``inside`` of findings from the maps of their studies."""
    dx = torch.where(anatomy.is_left, anatomy.x - common["left_x"], common["right_x"] - anatomy.x)
    dy = anatomy.y - torch.where(anatomy.is_left, common["left_y"], common["right_y"])
    far = torch.full_like(dx, -9.0)
    right = torch.where(common["on_right"] > 0, anatomy.lungs[:, 0], far)
    left = torch.where(common["on_left"] > 0, anatomy.lungs[:, 1], far)
    return dx, dy, torch.maximum(right, left)


def over_share(amount: Tensor, share: float = SHARE) -> Tensor:
    """Return ``amount`` relative to its maximum, minus ``share``: positive on the mask."""
    greatest = amount.flatten(1).amax(1)[:, None, None]
    return amount / greatest.clamp_min(1e-6) - share
