"""Detect mirrored, upside-down, rotated and inverted radiographs.

Two small models on 64 x 64 pixels, fitted on frontal radiographs of NIH ChestX-ray14 (Wang et al., CVPR 2017; NIH
Clinical Center) and phantom studies by ``benchmarks/orientation.py``:

- a template: the correlation of the image, in all 16 combinations of rotation, flip and inversion, with an upright
  frontal radiograph;
- a convolutional network with 6,500 weights for the side of the heart. It is antisymmetric by construction, ``f(image)
  - f(mirrored image)``.

NumPy only, 3 ms per image. A heart on the wrong side may be a mirrored image, a dextrocardia, or a displaced
mediastinum: the network cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import Image

SIDE, COARSE = 64, 32
"""Width in pixels of the inputs of the network and the template."""

SMALLEST = 48
"""Images with a smaller side are not analysed."""

SURE_LIKENESS = 4.5
"""Below this likeness in the best position, an image is not a known frontal radiograph; nothing is reported."""

SURE_RESEMBLANCE, LEAST_RESEMBLANCE = 0.35, 0.24
"""The same for the correlation with the mean radiograph, which few other images reach; the lower one is for inverted
images, for which the template is more certain."""

SURE_TURN, SURE_POSITION, SURE_INVERSION = 6.5, 7.5, 5.5
"""By how much another position must be more like a radiograph than the given one, and the likeness it must then have:
real images on their side score 7.7 and 8.4 and above, correct ones at most 4.7."""

SURE_MIRROR = 5.5
"""The log odds from which the network reports a mirrored image."""

LIKELY_MIRROR = 1.0
"""The same for an image that is only counted."""

_BLUR = 8.0
Pixels = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Look:
    """The orientation of an image.

    ``position`` and ``inverted`` describe the best match; ``turn`` is by how much it is better than upright and not
    inverted, 0 if that is the best. ``likeness`` is the likeness of the best match to a frontal radiograph; ``mirror``
    the log odds that the image is mirrored, meaningful only if it is upright.
    """

    position: str
    inverted: bool
    turn: float
    likeness: float
    mirror: float
    resemblance: float
    """Correlation with the mean of many radiographs, in the best position."""

    @property
    def is_radiograph(self) -> bool:
        """Whether it looks like a frontal radiograph in some position."""
        return self.likeness >= SURE_LIKENESS and self.resemblance >= SURE_RESEMBLANCE

    @property
    def is_turned(self) -> bool:
        """Whether it is certainly not upright, or inverted."""
        upright = self.position == "upright"
        likeness = SURE_INVERSION if upright else SURE_POSITION
        resemblance = LEAST_RESEMBLANCE if upright else SURE_RESEMBLANCE
        return self.turn >= SURE_TURN and self.likeness >= likeness and self.resemblance >= resemblance

    @property
    def has_side(self) -> bool:
        """Whether ``mirror`` can be relied on."""
        return self.is_radiograph and self.turn == 0.0


def look(image: Image) -> Look | None:
    """Return the orientation of an image, or None if it is too small or empty."""
    if min(image.shape) < SMALLEST:
        return None
    small = shrunk(image, SIDE)
    if float(small.std()) < 1e-4:
        return None
    weights = _weights()
    pixels, pattern = standardised(small), coarse_pattern(small)
    likenesses = _likenesses(pattern, weights["template"])
    best = max(likenesses, key=lambda key: likenesses[key])
    turn = likenesses[best] - likenesses["upright", False]
    mirror = _half(pixels[:, ::-1], weights) - _half(pixels, weights)
    return Look(*best, turn, likenesses[best], mirror, _likenesses(pattern, weights["mean"])[best] / COARSE)


def shrunk(image: NDArray[Any], side: int) -> Pixels:
    """Return the average of each cell of a ``side x side`` grid over an image of any size.

    Exact up to four times ``side``; for larger images whole blocks are averaged first, ignoring a remainder of less
    than a hundredth at the edge.
    """
    down, across = (max(1, count // (2 * side)) if count > 4 * side else 1 for count in image.shape)
    rows, columns = image.shape[0] // down, image.shape[1] // across
    blocks = image[: rows * down, : columns * across].reshape(rows, down, columns, across)
    result = np.asarray(blocks.mean(axis=3).mean(axis=1), dtype=np.float64)
    for axis in (0, 1):
        count = result.shape[axis]
        total = np.concatenate([np.zeros_like(np.take(result, [0], axis)), np.cumsum(result, axis=axis)], axis=axis)
        edges = np.linspace(0.0, count, side + 1)
        low = np.minimum(edges.astype(np.int64), count - 1)
        share = (edges - low).reshape((-1, 1) if axis == 0 else (1, -1))
        at_edges = np.take(total, low, axis) * (1.0 - share) + np.take(total, low + 1, axis) * share
        result = np.diff(at_edges, axis=axis) * (side / count)
    return result


def standardised(pixels: Pixels) -> Pixels:
    """Return pixels with mean 0 and standard deviation 1."""
    centred = pixels - pixels.mean()
    scaled: Pixels = centred / max(float(centred.std()), 1e-3)
    return scaled


def coarse_pattern(small: Pixels) -> Pixels:
    """Return 32 x 32 pixels without slow changes of brightness, which depend on exposure and position."""
    from scipy.ndimage import gaussian_filter

    coarse = small.reshape(COARSE, SIDE // COARSE, COARSE, SIDE // COARSE).mean(axis=(1, 3))
    return standardised(coarse - gaussian_filter(coarse, _BLUR))


def turned(pixels: Pixels) -> dict[str, list[Pixels]]:
    """Return the eight orientations of an image, by what is wrong with it if that one looks right."""
    sideways = pixels.T
    return {
        "upright": [pixels, pixels[:, ::-1]],
        "upside down": [pixels[::-1], pixels[::-1, ::-1]],
        "on its side": [sideways, sideways[:, ::-1], sideways[::-1], sideways[::-1, ::-1]],
    }


def _likenesses(pattern: Pixels, template: Pixels) -> dict[tuple[str, bool], float]:
    likenesses = {}
    for position, ways in turned(pattern).items():
        values = [float((way * template).sum()) for way in ways]
        likenesses[position, False], likenesses[position, True] = max(values), -min(values)
    return likenesses


def _half(pixels: Pixels, weights: Mapping[str, Pixels]) -> float:
    maps = pixels[np.newaxis]
    for name in ("a", "b", "c"):
        maps = np.maximum(_convolve(maps, weights[f"{name}.weight"], weights[f"{name}.bias"]), 0.0)
    channels, rows, columns = maps.shape
    pooled = maps.reshape(channels, rows // 2, 2, columns // 2, 2).mean(axis=(2, 4))
    return float(pooled.ravel() @ weights["d.weight"].ravel())


def _convolve(maps: Pixels, kernel: Pixels, bias: Pixels) -> Pixels:
    """Convolve with stride 2 and zero padding: (channels, rows, columns) to (new channels, rows / 2, columns / 2)."""
    size = kernel.shape[-1]
    edge = size // 2
    padded = np.pad(maps, ((0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))[:, ::2, ::2]
    result: Pixels = np.tensordot(kernel, windows, axes=([1, 2, 3], [0, 3, 4])) + bias[:, np.newaxis, np.newaxis]
    return result


@cache
def _weights() -> dict[str, Pixels]:
    from safetensors.numpy import load

    stored = load(files("rightlung.studies.checks").joinpath("orientation.safetensors").read_bytes())
    return {name: values.astype(np.float64) for name, values in stored.items()}
