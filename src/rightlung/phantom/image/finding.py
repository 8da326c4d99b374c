"""What a drawing of findings starts from and what it gives back.

Findings of one kind are drawn together, whatever studies they belong to: a ``Group`` holds the fields of each finding's
study and its place in centimetres; a ``Drawn`` says what it does to the beam and where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.anatomy import Thorax, at
from rightlung.phantom.image.chance import Floats, seeds_of
from rightlung.phantom.image.fields import Fields
from rightlung.phantom.image.numbers import Columns, Numbers
from rightlung.phantom.scene import Lesion

LESION_STREAM = 41
COLUMNS = (
    "severity", "right_x", "right_y", "left_x", "left_y", "on_right", "on_left", "own_x", "own_y", "outward", "apex",
    "right_dome", "left_dome", "mean_dome", "below_carina", "heart_middle", "supine",
)  # fmt: skip
"""What every kind of finding has: its middle as it would lie in either lung, its own, and the anatomy around it."""

SHARE = 0.3  # a focal finding's mask is where it adds at least this share of its own maximum


Own = Callable[[Sequence[Lesion], Floats], Columns]
"""What a kind of finding is made from: columns of its own, from the findings and chance ``(k, 6)``."""


@dataclass(frozen=True, slots=True)
class Group:
    """``k`` findings of one kind. Maps are ``(k, h, w)``."""

    common: Numbers  # what every kind of finding has, see `columns`
    own: Numbers  # what this kind has
    fields: Fields  # of each finding's study
    dx: Tensor  # centimetres from the finding's middle (in the pixel's own lung), growing towards the chest wall
    dy: Tensor
    inside: Tensor  # signed distance inside the lungs that the finding's side names
    clouds: Sequence[Tensor]  # noise of each finding's own, as many as its kind wants

    @property
    def severity(self) -> Tensor:
        """How bad each is, ready to be combined with maps."""
        return self.common["severity"]

    @property
    def coverage(self) -> Tensor:
        """1 inside the lungs and 0 far outside; beyond the border, which the lung cuts, lest a rim of air be left."""
        return (self.inside / 0.3 + 2.0).clamp(0, 1)


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


def lesion_seeds(lesions: Sequence[Lesion]) -> NDArray[np.uint64]:
    """Return one seed for each finding's outline and texture."""
    return seeds_of([lesion.seed for lesion in lesions], LESION_STREAM)


def reach(lesions: Sequence[Lesion], usual: float) -> list[float]:
    """Return half the largest extent of each, or the usual one for what has none of its own."""
    return [(lesion.size or usual) / 2 for lesion in lesions]


def reaching(usual: float) -> Own:
    """Return the column of a finding that has no more than an extent."""
    return lambda lesions, _: {"reach": reach(lesions, usual)}


def in_forms(*forms: str) -> Own:
    """Return a column for each form: 1 where a finding has it, else 0."""
    return lambda lesions, _: {form: [float(lesion.form == form) for lesion in lesions] for form in forms}


def in_region(word: str) -> Own:
    """Return a column that is 1 where this word is in the name of a finding's region or form, else 0."""
    return lambda lesions, _: {word: [float(word in (*lesion.region.split(), lesion.form)) for lesion in lesions]}


def columns(
    thorax: Thorax, studies: NDArray[np.int64], lesions: Sequence[Lesion], breaks: Mapping[int, Floats]
) -> dict[str, Floats]:
    """Return what every kind of finding has. ``breaks`` says by row where ribs broke: there their findings lie."""
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
        *(thorax.apex[studies], thorax.right_dome[studies], thorax.left_dome[studies]),
        (thorax.right_dome + thorax.left_dome)[studies] / 2,
        thorax.carina[studies, 1] + 1.5,
        thorax.heart_middle[studies],
        np.array([float(thorax.scenes[study].exposure.view == "AP") for study in studies.tolist()]),
    )
    return dict(zip(COLUMNS, values, strict=True))


def around(common: Numbers, fields: Fields) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``dx``, ``dy`` and ``inside`` of findings, from the fields of each one's study."""
    dx = torch.where(fields.is_left, fields.x - common["left_x"], common["right_x"] - fields.x)
    dy = fields.y - torch.where(fields.is_left, common["left_y"], common["right_y"])
    far = torch.full_like(dx, -9.0)
    right = torch.where(common["on_right"] > 0, fields.lungs[:, 0], far)
    left = torch.where(common["on_left"] > 0, fields.lungs[:, 1], far)
    return dx, dy, torch.maximum(right, left)


def over_share(amount: Tensor, share: float = SHARE) -> Tensor:
    """Return ``amount`` less a share of its own greatest value: positive on the mask."""
    greatest = amount.flatten(1).amax(1)[:, None, None]
    return amount / greatest.clamp_min(1e-6) - share
