"""The phantom's chest in the shape of a film: its tables in centimetres, fitted to the film's outlines.

Findings deform the chest (an enlarged heart, a shifted mediastinum, a raised dome) as they deform the phantom: the
difference of the phantom's tables with and without its findings is added to the film's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import InputError
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.painting.outlines import ROWS, Outlines
from rightlung.phantom.image import anatomy
from rightlung.phantom.image.anatomy import APEX, AXIS, FIELD, Thorax, at, rounded
from rightlung.phantom.image.randomness import Floats
from rightlung.phantom.scene import Body, Exposure, Scene, View

INNER_WIDTH = 26.0
"""Centimetres between the lateral borders of the lungs of an average adult (`anatomy.build`)."""
WIDTHS = {"F": 0.97, "M": 1.02}
"""Width of the chest by sex, relative to an average adult."""
_SHAPES = (0.55, 1.7)
"""The height of a chest by its width, relative to an average adult: wider limits than any patient's."""
_DOMES = (-2.5, 4.5)
"""By how many centimetres the left hemidiaphragm may lie below the right one: gas below it can look like lung."""
_FIXED = ("clavicle", "trachea", "carina", "spine", "hilar", "abdomen", "apical")
"""Words in the names of regions that no finding moves far."""
_SMOOTHING = 0.9  # centimetres
_BAND = 0.4  # centimetres between the top of a hemidiaphragm's outline and its surface


@dataclass(frozen=True, slots=True, eq=False)
class Chest:
    """The chest of one film; tables as in `anatomy.Thorax`, of one study."""

    outlines: Outlines
    shape: tuple[int, int]  # of the film in pixels
    side: int  # of the square that is painted, in pixels: the film lies in its upper left corner
    scale: float  # fractions of the square per centimetre
    origin: tuple[float, float]  # fractions of the square
    width: float
    height: float
    outer: Floats  # (2, len(AXIS))
    inner: Floats
    diaphragm: Floats
    apex: float
    dome: tuple[float, float]
    heart_middle: float
    heart: float  # cardiothoracic ratio

    def body(self, body: Body, sex: str | None, age: float | None) -> Body:
        """Return the body that a sampled one becomes."""
        known: Literal["F", "M"] = "F" if sex == "F" else "M" if sex == "M" else body.sex
        return replace(
            body, sex=known, age=body.age if age is None else round(age), fat=0.45,
            breasts=0.0, aorta=0.3, width=self.width, height=self.height, heart=min(max(self.heart, 0.36), 0.52),
        )  # fmt: skip

    def exposure(self, view: str | None, seed: int) -> Exposure:
        """Return an exposure without any marks, because the film has its own."""
        shown: View = "AP" if view is not None and view.upper().startswith("AP") else "PA"
        return Exposure(
            view=shown, portable=shown == "AP", inspiration=0.7, rotation=0.0, tilt=0.0, zoom=self.scale * FIELD,
            shift=(self.origin[0] - 0.5, self.origin[1] - 0.5), dose=1.0, contrast=1.0, brightness=0.0,
            collimated=(0.0, 0.0, 0.0, 0.0), grid_lines=False, marker="none", text_box=False, seed=seed,
        )  # fmt: skip

    def in_film(self, points: Tensor) -> Tensor:
        """Convert points from fractions of the square to fractions of the film; NaN for those outside."""
        height, width = self.shape
        moved = points * (self.side / torch.tensor([width, height], dtype=torch.float32))
        inside = ((moved >= 0) & (moved <= 1)).all(1, keepdim=True)
        return torch.where(inside, moved, torch.full_like(moved, torch.nan))

    def regions(self, boxes: Floats) -> NDArray[np.float32]:
        """Return the boxes (29, 4) of the regions in the film, where no finding moves them far the model's own."""
        height, width = self.shape
        scaled = boxes * (self.side / np.array([width, height, width, height]))
        for row, name in enumerate(IMAGENOME_REGIONS):
            seen = self.outlines.regions[row]
            if any(word in name for word in _FIXED) and np.isfinite(seen).all():
                scaled[row] = seen
        scaled[:, :2] = scaled[:, :2].clip(0.0, 0.999)
        scaled[:, 2:] = np.maximum(scaled[:, 2:].clip(0.0, 1.0), scaled[:, :2] + 1e-3)
        return scaled.astype(np.float32)


def fit_chest(outlines: Outlines, shape: tuple[int, int], sex: str | None, what: str) -> Chest:
    """Return the chest of a film of ``shape`` pixels; an error says what is wrong with its outlines."""
    height, width = shape
    side = max(shape) + max(shape) % 2
    lateral, medial, floor, ends = (
        values.astype(np.float64) * size
        for values, size in ((outlines.lateral, width), (outlines.medial, width), (outlines.floor, height),
                             (outlines.domes[:, 0], width))
    )  # fmt: skip
    rows, columns = ((np.arange(ROWS) + 0.5) / ROWS * size for size in (height, width))
    both = np.isfinite(lateral).all(0)
    across = (lateral[1] - lateral[0])[both]
    if not both.any() or across.max() <= 0.2 * width:
        raise InputError(f"{what}: its anatomy is not found: the lungs do not lie side by side")
    relative = WIDTHS.get(sex or "", 1.0)
    pixel = INNER_WIDTH * relative / float(across.max())  # centimetres
    tops = [float(rows[np.isfinite(lateral[k])][0]) for k in range(2)]
    # The band that outlines a hemidiaphragm begins above its surface.
    domes = [float(y) * height + _BAND / pixel for y in outlines.domes[:, 1]]
    long = (np.mean(domes) - min(tops)) * pixel
    relative_height = float((long + 0.3) / 19.2)
    low, high = _SHAPES
    if not low <= relative_height / relative <= high:
        raise InputError(f"{what}: its anatomy is not found: the lungs are {long:.0f} cm high if they are "
                         f"{INNER_WIDTH * relative:.0f} cm wide")  # fmt: skip
    lower = (domes[1] - domes[0]) * pixel
    if not _DOMES[0] <= lower <= _DOMES[1]:
        raise InputError(f"{what}: its anatomy is not found: the left hemidiaphragm seems to lie {abs(lower):.0f} cm "
                         f"{'below' if lower > 0 else 'above'} the right one")  # fmt: skip
    upper = both & (rows < 0.5 * (min(tops) + np.mean(domes)))
    middle = float(np.median((medial[0] + medial[1])[upper if upper.any() else both])) / 2
    top = min(tops) - (APEX * relative_height + 0.3) / pixel  # the pixel row of the origin
    fitted = _Fit(pixel, middle, top, rows, columns)
    heart_top = float((outlines.heart[1] * height - top) * pixel)
    inner = np.stack([fitted.border(medial[k], tops[k], lateral[k], domes[k]) for k in range(2)])
    dome = (float((domes[0] - top) * pixel), float((domes[1] - top) * pixel))
    levels = np.linspace(heart_top + 2.0, max(dome), 24)
    widths = at(inner[1:2], levels[None]) - at(inner[0:1], levels[None])
    return Chest(
        outlines, shape, side, 1.0 / (pixel * side), (middle / side, top / side), relative, relative_height,
        outer=np.stack([fitted.border(lateral[k], tops[k], medial[k]) for k in range(2)]),
        inner=inner,
        diaphragm=fitted.diaphragm(floor, ends, domes),
        apex=float((min(tops) - top) * pixel),
        dome=dome,
        heart_middle=heart_top + 4.3 * relative_height,
        heart=float(widths.max()) / (INNER_WIDTH * relative),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """The conversion of one film's pixels to tables in centimetres."""

    pixel: float
    middle: float
    top: float
    rows: Floats
    columns: Floats

    def border(self, x: Floats, top: float, other: Floats, lowest: float = np.inf) -> Floats:
        """Return the table of a border of a lung over y, down to ``lowest``; above its apex the lung has no width."""
        there = np.isfinite(x) & (self.rows <= lowest)
        y, values = (self.rows[there] - self.top) * self.pixel, (x[there] - self.middle) * self.pixel
        tip = (0.5 * (x[there][0] + other[there][0]) - self.middle) * self.pixel
        y = np.concatenate([[(top - self.top) * self.pixel - 0.4], y])
        return _table(y, np.concatenate([[tip], values]))

    def diaphragm(self, floor: Floats, medial: Floats, domes: Sequence[float]) -> Floats:
        """Return the table of the diaphragm over x; between the ``medial`` ends of its halves it is straight.

        Where a lung ends above its dome, it ends at the heart.
        """
        lateral = (self.columns < medial[0]), (self.columns > medial[1])
        there = [lateral[k] & (floor[k] >= domes[k] - _BAND / self.pixel) for k in range(2)]
        x = np.concatenate([self.columns[part] for part in there])
        y = np.concatenate([floor[k][part] for k, part in enumerate(there)])
        return _table((x - self.middle) * self.pixel, (y - self.top) * self.pixel)


def _table(places: Floats, values: Floats) -> Floats:
    """Return a smooth table over `AXIS`, constant beyond the first and the last place."""
    table: Floats = rounded(np.interp(AXIS, places, values)[None], _SMOOTHING)[0]
    return table


def build_thorax(chests: Sequence[Chest], scenes: Sequence[Scene]) -> tuple[Thorax, Thorax]:
    """Return the chests with and without the deformations by the findings of the scenes."""
    with_findings = anatomy.build(scenes)
    bare = anatomy.build([replace(scene, lesions=()) for scene in scenes])
    own = _film_thorax(bare, chests)
    return _shifted(own, bare, with_findings), own


def _film_thorax(bare: Thorax, chests: Sequence[Chest]) -> Thorax:
    """Return the chests as they are on the films."""
    outer, inner = (np.stack([getattr(chest, name) for chest in chests]) for name in ("outer", "inner"))
    height = bare.height
    borders = (inner[:, 0], inner[:, 1])
    hila = [
        np.stack([at(border, y) + beyond, y], axis=1)
        for border, beyond, y in zip(borders, (-0.9, 0.7), (-2.0 * height, -3.0 * height), strict=True)
    ]
    zero = np.zeros_like(bare.middle)
    return replace(
        bare, outer=(outer[:, 0], outer[:, 1]), inner=borders, middle=zero, spine=zero.copy(),
        diaphragm=np.stack([chest.diaphragm for chest in chests]),
        apex=np.array([chest.apex for chest in chests]),
        dome=(np.array([chest.dome[0] for chest in chests]), np.array([chest.dome[1] for chest in chests])),
        heart_middle=np.array([chest.heart_middle for chest in chests]),
        carina=np.stack([np.zeros_like(height) + 0.2, -5.4 * height], axis=1),
        sternum=np.zeros_like(height), hilum=(hila[0], hila[1]),
    )  # fmt: skip


def _shifted(own: Thorax, bare: Thorax, changed: Thorax) -> Thorax:
    """Return the films' chests, deformed as the phantom's."""

    def both(name: str) -> tuple[Floats, Floats]:
        mine, before, after = (getattr(one, name) for one in (own, bare, changed))
        return mine[0] + (after[0] - before[0]), mine[1] + (after[1] - before[1])

    def one(name: str) -> Floats:
        moved: Floats = getattr(own, name) + (getattr(changed, name) - getattr(bare, name))
        return moved

    return replace(
        changed, apex=own.apex, spine=own.spine, sternum=own.sternum, outer=both("outer"), inner=both("inner"),
        dome=both("dome"), hilum=both("hilum"), middle=one("middle"), diaphragm=one("diaphragm"),
        heart_middle=one("heart_middle"), heart_left=one("heart_left"), carina=one("carina"),
    )  # fmt: skip
