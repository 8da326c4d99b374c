"""Say why an image cannot be a chest radiograph: tiny, very long, blank, a gradient, noise, a drawing, or in colour.

A model answers whatever it is shown, so such images are refused before it is asked. The limits are far from real
radiographs: none of 7,778 frontal images of NIH ChestX-ray14 and Open-I comes near one (see each constant). An image
that passes need not be a chest radiograph. NumPy only, 2 ms per image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rightlung.core import Image, InputError

SMALLEST_SIDE = 32
"""Pixels of the shorter side; organs are not recognisable below."""
LARGEST_RATIO = 3.0
"""Longer side by shorter side; real images: up to 1.4."""
LEAST_RANGE = 0.05
"""Difference between the 1st and the 99th percentile; real images: 0.35 and more."""
TWELVE_OF_SIXTEEN = 4096 / 65535
"""The largest value of 12 bits that were stored in 16 without scaling."""
MOST_ROUGH = 0.35
"""Mean squared difference of neighbouring pixels by twice the variance; noise: 1, real images: up to 0.08."""
FEWEST_GREYS, MOST_OF_IT = 16, 0.9
"""How many of 256 grey levels cover this share of the pixels; drawings: about 5, real images: 53 and more."""
COLOURFUL, COLOUR_SHARE, MOST_CHROMA = 0.06, 0.1, 0.3
"""Distance of a pixel from the tint of its brightness, the share of such pixels in a colour image, and the mean
difference between the highest and lowest channel of an image in one strong colour. A tinted film and a coloured arrow
stay below all of them."""

IN_COLOUR = "it is in colour; if it is a radiograph, convert it to greyscale"
_SAMPLE = 256
"""Pixels of a side that are looked at."""

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


class ImplausibleImageError(InputError):
    """An image that cannot be a chest radiograph."""


def why_implausible(image: Image) -> str | None:
    """Return why a grey image cannot be a chest radiograph, or None."""
    height, width = image.shape
    if min(height, width) < SMALLEST_SIDE:
        return f"it has only {width:,} x {height:,} pixels"
    if max(height, width) > LARGEST_RATIO * min(height, width):
        return f"it is too long and narrow ({width:,} x {height:,} pixels)"
    sample = image[:: max(1, height // _SAMPLE), :: max(1, width // _SAMPLE)]
    low, high = np.quantile(sample, [0.01, 0.99])
    if high - low > 0.1 * LEAST_RANGE and image.max() <= TWELVE_OF_SIXTEEN:
        return f"its brightness is {image.max():.3f} at most, as of 12 bits stored in 16: scale it to the whole range"
    if high - low < LEAST_RANGE:
        return f"it is blank (98 % of its pixels have a brightness from {low:.2f} to {high:.2f})"
    for axis, across in enumerate(("from left to right", "from top to bottom")):
        if np.ptp(sample, axis=axis).max() < LEAST_RANGE:
            return f"it is a gradient (its brightness changes only {across})"
    middle = image[height // 4 : height - height // 4, width // 4 : width - width // 4][:_SAMPLE, :_SAMPLE]
    variance = float(middle.var())
    steps = min(float(np.square(np.diff(middle, axis=axis)).mean()) for axis in (0, 1))
    if variance > 0 and steps > MOST_ROUGH * 2 * variance:
        return "it is noise (neighbouring pixels are unrelated)"
    counts = np.sort(np.bincount((sample * 255).astype(np.intp).ravel(), minlength=256))[::-1].cumsum()
    greys = int(np.searchsorted(counts, MOST_OF_IT * sample.size)) + 1
    if greys < FEWEST_GREYS:
        return f"it looks like a drawing ({MOST_OF_IT:.0%} of its pixels have only {greys} of 256 grey levels)"
    return None


def check_plausible(image: Image, what: str) -> Image:
    """Return an image unless it cannot be a chest radiograph; ``what`` names it in the error."""
    if reason := why_implausible(image):
        raise ImplausibleImageError(f"{what} cannot be a chest radiograph: {reason}")
    return image


def is_coloured(picture: Picture) -> bool:
    """Whether a PIL image shows more than a tint and some coloured marks."""
    from PIL.Image import Resampling

    sample = picture.resize((_SAMPLE // 2, _SAMPLE // 2), Resampling.NEAREST).convert("RGB")
    colours = np.asarray(sample, dtype=np.float64).reshape(-1, 3) / 255
    if float(np.ptp(colours, axis=1).mean()) > MOST_CHROMA:
        return True
    grey = colours.mean(axis=1)
    # A tint is what the brightness explains; the rest of each channel is colour.
    basis = np.stack([np.ones_like(grey), grey, grey**2], axis=1)
    tint = basis @ np.linalg.lstsq(basis.T @ basis, basis.T @ colours, rcond=None)[0]
    return float((np.linalg.norm(colours - tint, axis=1) > COLOURFUL).mean()) > COLOUR_SHARE
