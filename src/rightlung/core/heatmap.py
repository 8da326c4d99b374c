"""Maps of where a model looks: values on the model's own grid, and where in the image that grid lies.

A model sees a crop, a letterboxed square, a rescaled copy. Its map is kept on its native grid with the grid's
**extent** in fractions of the original image, so that cropping and padding are undone by arithmetic on four numbers
and nothing is resampled until somebody asks for pixels.
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
    """Where a rectangle lies, in fractions of the image. Unlike a `Box` it may reach beyond it (padding does)."""

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
        """Return this extent, given in fractions of ``frame``, in fractions of the image that ``frame`` lies in.

        A model that letterboxes and then takes a crop: ``Extent.crop(...).within(Extent.letterbox(size))``.
        """
        width, height = frame.x1 - frame.x0, frame.y1 - frame.y0
        return Extent(
            frame.x0 + self.x0 * width,
            frame.y0 + self.y0 * height,
            frame.x0 + self.x1 * width,
            frame.y0 + self.y1 * height,
        )

    def seen_from(self, frame: Extent) -> Extent:
        """Undo `within`: this extent of the image in fractions of ``frame``."""
        width, height = frame.x1 - frame.x0, frame.y1 - frame.y0
        return Extent(
            (self.x0 - frame.x0) / width,
            (self.y0 - frame.y0) / height,
            (self.x1 - frame.x0) / width,
            (self.y1 - frame.y0) / height,
        )

    def mirrored(self) -> Extent:
        """Return the extent in the image flipped left to right."""
        return Extent(1.0 - self.x1, self.y0, 1.0 - self.x0, self.y1)

    @classmethod
    def crop(cls, box: Box) -> Extent:
        """Return the extent of a crop."""
        return cls(*box.as_tuple())

    @classmethod
    def letterbox(cls, size: Size) -> Extent:
        """Return the extent of the square that an image of ``size`` is padded to, half of the padding on either side.

        A model that pads by whole pixels has the odd one on one side: write that extent out.

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

    ``abstention`` is the mass with which the model declines to point anywhere, from 0 to 1 (the "No Attn" idea of
    "That's the Wrong Lung!", section 4.1, made general). A cosine map is shifted to be non-negative where it is made.
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
            raise InputError(
                "a heatmap must be finite (in single precision) and non-negative; "
                f"got {given[row, column]} at row {row}, column {column}"
            )
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
        return (
            isinstance(other, Heatmap)
            and self.extent == other.extent
            and self.abstention == other.abstention
            and np.array_equal(self.values, other.values)
        )

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
        """Sum over the part of the grid that lies in the image; a cell cut by the edge counts by its share inside."""
        down, across = self._matrices((1, 1), "area")
        return (down @ self.values.astype(np.float64) @ across.T).item()

    def to_size(self, size: Size, mode: Mode = "bilinear", keep_mass: bool = True) -> NDArray[np.float32]:
        """Bring the map to an image of ``size`` (height, width): float32, zero outside the extent.

        With ``keep_mass`` the pixels are rescaled to add up to `mass_in_image` ("That's the Wrong Lung!" renormalises
        after upsampling, footnote 9); without, each pixel has the interpolated value itself (with ``area``, the mean
        of what it covers). ``area`` keeps the mass of every cell in its place; ``bilinear`` and ``nearest`` look values
        up at pixel centres, and where that misses all the mass there is (a peak between the centres of few pixels)
        ``area`` stands in.
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
    def from_pixels(
        cls, pixels: ArrayLike, grid: Size, extent: Extent | None = None, abstention: float = 0.0
    ) -> Heatmap:
        """Pool a map on pixels ``(height, width)`` into a grid: every cell gets the mass that falls into it."""
        extent = extent or Extent()
        rows, columns = check_size(grid, "grid")
        full = Heatmap(np.asarray(pixels), extent=Extent().seen_from(extent))
        down, across = full._matrices((rows, columns), "area")
        return cls((down @ full.values.astype(np.float64) @ across.T).astype(np.float32), extent, abstention)

    def placed(self, frame: Extent) -> Heatmap:
        """Undo a crop or a letterbox: this map was made on ``frame`` of the image; say where it lies in the image."""
        return replace(self, extent=self.extent.within(frame))

    def mirrored(self) -> Heatmap:
        """Return the map of the image flipped left to right. The words that go with it must be mirrored, too."""
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
