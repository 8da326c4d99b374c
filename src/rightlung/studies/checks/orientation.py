"""Which way round a radiograph is: mirrored, upside down, on its side, or with black and white exchanged.

Two small readings of the image on 64 x 64 pixels, fitted on frontal radiographs of NIH ChestX-ray14 (Wang et al., CVPR
2017; NIH Clinical Center) and phantom studies by ``benchmarks/orientation.py``:

- a template: how well the image, turned, flipped and inverted in all 16 ways, correlates with what an upright frontal
  radiograph looks like;
- a convolutional network of 6,500 weights for the hard question, on which side the heart is. It is odd by construction,
  ``f(image) - f(mirrored image)``: what it says of an image is minus what it says of the mirror image.

Numpy alone, 3 ms an image. A heart on the wrong side is a mirrored image, a dextrocardia, or a mediastinum pushed or
pulled over: the reading cannot tell which.
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
"""Pixels a side that the network and the template look at."""

SMALLEST = 48
"""Images with a side below this are not read: there is nothing to see."""

SURE_LIKENESS = 4.5
"""An image below this likeness in its best position is no frontal radiograph that we know; nothing is said."""

SURE_RESEMBLANCE, LEAST_RESEMBLANCE = 0.35, 0.24
"""The same for the correlation with the mean radiograph, which few other pictures reach; the lower one for an
inverted image, of which the template is surer."""

SURE_TURN, SURE_POSITION, SURE_INVERSION = 6.5, 7.5, 5.5
"""By how much another position must be more like a radiograph than the one the image has, and the likeness it must have
then: real images that lie on their side are at 7.7 and 8.4 and above, sound ones at 4.7 at most."""

SURE_MIRROR = 5.5
"""By how much the network must prefer the mirror image, as log odds."""

LIKELY_MIRROR = 1.0
"""The same for an image that is only counted."""

_BLUR = 8.0
Pixels = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Look:
    """What an image looks like.

    ``position`` and ``inverted`` are the best of all; ``turn`` is by how much it is better than upright and not
    inverted, 0 where that is the best. ``likeness`` is how much the best is like a frontal radiograph; ``mirror`` the
    log odds that the image is mirrored, which mean something only for an upright one.
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
        """Whether it is surely not upright, or inverted."""
        if self.position == "upright":
            likely = self.likeness >= SURE_INVERSION and self.resemblance >= LEAST_RESEMBLANCE
            return self.turn >= SURE_TURN and likely
        return self.turn >= SURE_TURN and self.likeness >= SURE_POSITION and self.resemblance >= SURE_RESEMBLANCE

    @property
    def has_side(self) -> bool:
        """Whether ``mirror`` can be relied on."""
        return self.is_radiograph and self.turn == 0.0


def look(image: Image) -> Look | None:
    """Say which way round an image is, or None where it is too small to say."""
    if min(image.shape) < SMALLEST:
        return None
    small = shrunk(image, SIDE)
    if float(small.std()) < 1e-4:
        return None
    weights = _weights()
    pattern = coarse_pattern(small)
    likenesses = _likenesses(pattern, weights["template"])
    best = max(likenesses, key=lambda key: likenesses[key])
    upright = likenesses["upright", False]
    return Look(
        position=best[0],
        inverted=best[1],
        turn=likenesses[best] - upright,
        likeness=likenesses[best],
        mirror=-_heart_side(standardised(small), weights),
        resemblance=_likenesses(pattern, weights["mean"])[best] / COARSE,
    )


def shrunk(image: NDArray[Any], side: int) -> Pixels:
    """Return the mean of each cell of a ``side x side`` grid laid over the image, whatever its size.

    Exact up to four times ``side``; of larger images whole blocks are averaged first, and what is left over at the
    edge, less than a hundredth, is passed over.
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
    """Return pixels of mean 0 and deviation 1."""
    centred = pixels - pixels.mean()
    scaled: Pixels = centred / max(float(centred.std()), 1e-3)
    return scaled


def coarse_pattern(small: Pixels) -> Pixels:
    """Return 32 x 32 pixels without slow changes of brightness, which exposure and position decide."""
    from scipy.ndimage import gaussian_filter

    coarse = small.reshape(COARSE, SIDE // COARSE, COARSE, SIDE // COARSE).mean(axis=(1, 3))
    return standardised(coarse - gaussian_filter(coarse, _BLUR))


def turned(pixels: Pixels) -> dict[str, list[Pixels]]:
    """Return the eight ways to lay an image down, by what is wrong with it if that way looks right."""
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


def _heart_side(pixels: Pixels, weights: Mapping[str, Pixels]) -> float:
    return _half(pixels, weights) - _half(pixels[:, ::-1], weights)


def _half(pixels: Pixels, weights: Mapping[str, Pixels]) -> float:
    maps = pixels[np.newaxis]
    for name in ("a", "b", "c"):
        maps = np.maximum(_convolve(maps, weights[f"{name}.weight"], weights[f"{name}.bias"]), 0.0)
    channels, rows, columns = maps.shape
    pooled = maps.reshape(channels, rows // 2, 2, columns // 2, 2).mean(axis=(2, 4))
    return float(pooled.ravel() @ weights["d.weight"].ravel())


def _convolve(maps: Pixels, kernel: Pixels, bias: Pixels) -> Pixels:
    """Convolve with stride 2 and zeros around: (channels, rows, columns) to (new channels, rows / 2, columns / 2)."""
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
