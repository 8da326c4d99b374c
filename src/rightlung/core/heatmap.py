"""Heatmaps: values on the model's grid, and where that grid lies in the image.

A model sees a crop, a letterboxed square or a rescaled copy. Its map stays on its grid, and the grid's **extent** in
fractions of the original image undoes cropping and padding without resampling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.box import Box
from rightlung.core.checks import Size, as_array, check_number, check_size
from rightlung.core.errors import InputError
from rightlung.core.resampling import Mode, resampling_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Extent:
    """A rectangle in fractions of the image. Unlike a `Box` it may reach beyond the image (padding does)."""

    x0: float = 0.0
    y0: float = 0.0
    x1: float = 1.0
    y1: float = 1.0

    def __post_init__(self) -> None:
        for name in ("x0", "y0", "x1", "y1"):
            object.__setattr__(self, name, check_number(getattr(self, name), f"extent {name}"))
        if not (self.x0 < self.x1 and self.y0 < self.y1):
            raise InputError(f"extent {self.as_tuple()} has no area: x0 < x1 and y0 < y1 must hold")

    def as_tuple(self) -> tuple[float, float, float, float]:
        """Return ``(x0, y0, x1, y1)``."""
        return self.x0, self.y0, self.x1, self.y1

    def within(self, frame: Extent) -> Extent:
        """Convert this extent from fractions of ``frame`` to fractions of the image that ``frame`` lies in.

        For a model that letterboxes and then crops: ``Extent.crop(...).within(Extent.letterbox(size))``.
        """
        width, height = frame.x1 - frame.x0, frame.y1 - frame.y0
        x0, x1 = frame.x0 + self.x0 * width, frame.x0 + self.x1 * width
        return Extent(x0, frame.y0 + self.y0 * height, x1, frame.y0 + self.y1 * height)

    def seen_from(self, frame: Extent) -> Extent:
        """Invert `within`: convert this extent of the image to fractions of ``frame``."""
        width, height = frame.x1 - frame.x0, frame.y1 - frame.y0
        x0, x1 = (self.x0 - frame.x0) / width, (self.x1 - frame.x0) / width
        return Extent(x0, (self.y0 - frame.y0) / height, x1, (self.y1 - frame.y0) / height)

    def mirrored(self) -> Extent:
        """Return the extent in the horizontally flipped image."""
        return Extent(1.0 - self.x1, self.y0, 1.0 - self.x0, self.y1)

    @classmethod
    def crop(cls, box: Box) -> Extent:
        """Return the extent of a crop."""
        return cls(*box.as_tuple())

    @classmethod
    def letterbox(cls, size: Size) -> Extent:
        """Return the extent of the square that an image of ``size`` is padded to, equally on both sides.

        If a model pads by whole pixels and one is left over, write the extent out instead.

        >>> Extent.letterbox((200, 100))
        Extent(x0=-0.5, y0=0.0, x1=1.5, y1=1.0)
        """
        height, width = check_size(size)
        side = max(height, width)
        across, down = side / width, side / height
        return cls((1 - across) / 2, (1 - down) / 2, (1 + across) / 2, (1 + down) / 2)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Heatmap:
    """A non-negative map ``values`` (rows, cols) float32 on its native grid, read-only.

    ``abstention``, from 0 to 1, is how much the model declines to point anywhere ("No Attn" in "That's the Wrong
    Lung!", section 4.1).
    """

    values: NDArray[np.float32]
    extent: Extent
    abstention: float

    def __init__(self, values: ArrayLike, extent: Extent | None = None, abstention: float = 0.0) -> None:
        given = as_array(values, "a heatmap")
        if given.ndim != 2 or given.size == 0:
            raise InputError(f"a heatmap must have shape (rows, cols), both positive; got shape {given.shape}")
        if given.dtype.kind not in "uif":
            raise InputError(f"a heatmap must hold real numbers; got {given.dtype}")
        with np.errstate(over="ignore"):
            kept = given.astype(np.float32)
        bad = ~np.isfinite(kept) | (given < 0)
        if bad.any():
            row, column = (int(index) for index in np.argwhere(bad)[0])
            where = f"row {row}, column {column}"
            raise InputError(f"a heatmap must be finite and non-negative; got {given[row, column]} at {where}")
        kept += np.float32(0)  # a negative zero becomes a plain one
        kept.setflags(write=False)
        if extent is not None and not isinstance(extent, Extent):
            raise InputError(f"a heatmap's extent must be an Extent; got {extent!r}")
        share = check_number(abstention, "abstention")
        if not 0 <= share <= 1:
            raise InputError(f"abstention must lie between 0 and 1; got {share}")
        object.__setattr__(self, "values", kept)
        object.__setattr__(self, "extent", extent or Extent())
        object.__setattr__(self, "abstention", share)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Heatmap) or (self.extent, self.abstention) != (other.extent, other.abstention):
            return False
        return np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.extent, self.abstention, self.values.shape, self.values.tobytes()))

    def __reduce__(self) -> tuple[type[Heatmap], tuple[NDArray[np.float32], Extent, float]]:
        return Heatmap, (self.values, self.extent, self.abstention)  # so that a copy is read-only, too

    @property
    def grid(self) -> Size:
        """``(rows, cols)``."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def mass(self) -> float:
        """Sum over the whole grid, padding included."""
        return float(self.values.sum(dtype=np.float64))

    @property
    def mass_in_image(self) -> float:
        """Sum over the part of the grid inside the image; cells cut by its edge count by their share."""
        down, across = self._matrices((1, 1), "area")
        return (down @ self.values.astype(np.float64) @ across.T).item()

    def to_size(self, size: Size, mode: Mode = "bilinear", keep_mass: bool = True) -> NDArray[np.float32]:
        """Return the map as float32 pixels of ``size`` (height, width), zero outside the extent.

        With ``keep_mass`` the pixels sum to `mass_in_image` ("That's the Wrong Lung!", footnote 9); otherwise each
        pixel has the interpolated value (with ``area``, the mean over the pixel). ``area`` moves no mass. ``bilinear``
        and ``nearest`` look values up at pixel centres; if these miss all the mass, ``area`` is used.
        """
        size = check_size(size)
        values = self.values.astype(np.float64)
        down, across = self._matrices(size, mode)
        pixels = down @ values @ across.T
        if mode == "area":
            if not keep_mass:
                (rows, columns), extent = self.grid, self.extent
                cell = (extent.x1 - extent.x0) * (extent.y1 - extent.y0) / (rows * columns)
                pixels *= cell * size[0] * size[1]
        elif keep_mass:
            mass, found = self.mass_in_image, float(pixels.sum())
            if found > 0:
                pixels *= mass / found
            elif mass > 0:
                return self.to_size(size, "area")
        with np.errstate(over="ignore"):
            return np.minimum(pixels, np.finfo(np.float32).max).astype(np.float32)

    @classmethod
    def from_pixels(cls, pixels: ArrayLike, grid: Size, abstention: float = 0.0) -> Heatmap:
        """Pool a map on pixels ``(height, width)`` into a grid: each cell gets the mass inside it."""
        full = Heatmap(np.asarray(pixels))
        down, across = full._matrices(check_size(grid, "grid"), "area")
        return cls((down @ full.values.astype(np.float64) @ across.T).astype(np.float32), abstention=abstention)

    def placed(self, frame: Extent) -> Heatmap:
        """Undo a crop or letterbox: convert a map made on ``frame`` of the image to the image."""
        return replace(self, extent=self.extent.within(frame))

    def mirrored(self) -> Heatmap:
        """Return the map of the horizontally flipped image. Mirror the words that go with it, too."""
        return replace(self, values=self.values[:, ::-1], extent=self.extent.mirrored())

    def plot(self, image: NDArray[np.float32] | None = None, ax: Axes | None = None) -> Axes:
        """Draw the map over ``image``, or on black, on matplotlib axes (new ones by default), and return the axes."""
        from rightlung.core.plotting import plot

        return plot(image, self, ax=ax)

    def _matrices(self, size: Size, mode: Mode) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows, columns = self.grid
        return (
            resampling_matrix(size[0], rows, self.extent.y0, self.extent.y1, mode),
            resampling_matrix(size[1], columns, self.extent.x0, self.extent.x1, mode),
        )
