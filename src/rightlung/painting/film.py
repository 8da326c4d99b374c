"""A film as a medium: from grey values to its logarithmic scale, where attenuation adds up, and back.

The display of a radiograph saturates towards white, so the scale is ``-log(1 - grey)``, as in `phantom.image.physics`.
How much it rises per neper of attenuation is read from the film itself: air of a lung's thickness lies between the
greys of its lungs and of its heart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from rightlung.core import Image
from rightlung.phantom.image.physics import soft_blur
from rightlung.phantom.image.randomness import normals

_CEILING = 0.985  # grey values approach white, which would be infinite
_SPEEDS = (0.12, 1.1)  # limits of the film's speed; the phantom's is 0.58
_SPEED = 0.5  # of films without contrast between lungs and heart
_BLACK = 0.02
_VESSEL = 0.25  # half of the widest vessel that is told from a rib, in centimetres
_SHARP, _BLURS = 2.6, 0.45  # pixels of the steepest edges on a sharp film; the largest share of `soft_blur`
_MOST_BLURS = 6
_WHITER, _SHOULDER = 0.1, 0.3  # how much whiter than the heart tissue becomes, and how much of the rest is added
_GRAIN = 0.7  # of the noise is that of photons
_RIM = 0.6  # centimetres that the outline of a lung may be wrong
_SOFT, _HAZE = 0.09, 0.22  # centimetres: no border of tissue, or of filled lung, is sharper


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One film and what it tells about itself. Maps are ``(side, side)``, padded with black."""

    log: Tensor  # the film on its logarithmic scale
    exposed: Tensor  # bool; False on the black borders of the collimator
    bright: float  # the heart's grey on that scale
    contrast: float  # between lungs and heart
    speed: float  # rise of the scale per neper of attenuation
    noise: float  # standard deviation of its noise on that scale
    blur: float  # how often what is painted is blurred, to be no sharper than the film
    soft: float  # how often tissue is blurred besides
    haze: float  # how often filled lung is blurred besides
    rim: int  # pixels that a lung's outline may be wrong
    levels: int  # grey levels


def to_log(grey: Tensor) -> Tensor:
    """Return grey values on the logarithmic scale.

    >>> to_grey(to_log(torch.tensor([0.0, 0.5, 1.0])))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return -torch.log1p(-_CEILING * grey)


def to_grey(log: Tensor) -> Tensor:
    """Return the grey values, limited to 0 and 1."""
    return (-torch.expm1(-log) / _CEILING).clamp(0.0, 1.0)


def levels_of(image: Image) -> int:
    """Return the number of grey levels between black and white in a file, 255 or 65,535."""
    scaled = image[:: max(1, image.shape[0] // 64), :: max(1, image.shape[1] // 64)] * np.float32(255)
    return 255 if bool(np.abs(scaled - scaled.round()).max() < 0.01) else 65_535


def develop(grey: Tensor, lungs: Tensor, heart: Tensor, air: Tensor, pixel: float, levels: int) -> Film:
    """Return the film of grey values ``(side, side)``; ``air`` is the attenuation that a full lung would add.

    ``lungs`` and ``heart`` are distances inside them in centimetres, ``pixel`` centimetres a pixel.
    """
    log = to_log(grey)
    inside = lungs > 0.5
    dark, bright = (_median(log[where]) for where in (inside, heart > 0.3))
    contrast = bright - dark
    speed = contrast / max(_median(air[inside]), 0.1) if contrast > 0.1 else _SPEED
    speed = min(max(speed, _SPEEDS[0]), _SPEEDS[1])
    soft, haze = (min((width / pixel) ** 2 / _BLURS, _MOST_BLURS) for width in (_SOFT, _HAZE))
    blur = _blur(log, lungs.abs() < 1.2, contrast)
    return Film(log, _exposed(grey), bright, contrast, speed, _noise(log, inside), blur, soft, haze,
                max(1, round(_RIM / pixel)), levels)  # fmt: skip


def vessels_of(film: Film, pixel: float) -> Tensor:
    """Return the fine bright structures of a film on its logarithmic scale, above its noise.

    Letters, arrows and metal are no vessels: they stay, whatever is painted beneath them.
    """
    fine = (film.log - _opened(film.log, max(1, round(_VESSEL / pixel)))).clamp_min(0.0)
    fine = torch.where(fine > 0.6 * max(film.contrast, 0.3), torch.zeros_like(fine), fine)
    return (fine - 1.5 * film.noise).clamp_min_(0.0)


def _median(values: Tensor) -> float:
    return float(values.median()) if len(values) else 0.0


def _opened(maps: Tensor, reach: int) -> Tensor:
    """Return a map without bright structures of up to ``2 * reach`` pixels: its morphological opening."""
    opened = pad(maps[None, None], (2 * reach,) * 4, mode="replicate")
    for sign in (-1.0, -1.0):  # an erosion, then a dilation; each first down, then across
        opened = max_pool2d(max_pool2d(sign * opened, (2 * reach + 1, 1), 1), (1, 2 * reach + 1), 1)
    return opened[0, 0]


def _noise(log: Tensor, inside: Tensor) -> float:
    """Return the standard deviation of the noise: the median of what neighbours do not explain."""
    ridge = log[:-2] - 2 * log[1:-1] + log[2:]
    fine = ridge[:, :-2] - 2 * ridge[:, 1:-1] + ridge[:, 2:]
    return _median(fine[inside[1:-1, 1:-1]].abs()) / (0.6745 * 6.0)


def _blur(log: Tensor, border: Tensor, contrast: float) -> float:
    """Return how often to blur: by the pixels that the steepest borders of the lungs take from dark to bright."""
    slope = torch.hypot(log[1:-1, 2:] - log[1:-1, :-2], log[2:, 1:-1] - log[:-2, 1:-1]).mul_(0.5)[border[1:-1, 1:-1]]
    if not len(slope) or contrast <= 0.1:
        return 0.0
    steepest = float(slope.kthvalue(max(1, int(0.98 * len(slope)))).values)
    width = contrast / max(steepest, 1e-3)
    # A pass of `soft_blur` has a variance of 0.45 square pixels; a border's width is about 2.5 standard deviations.
    # Half of the width is taken for blur, because the borders of lungs are soft themselves.
    return min(max((width / 2.5) ** 2 - (_SHARP / 2.5) ** 2, 0.0) / _BLURS / 4, float(_MOST_BLURS))


def _exposed(grey: Tensor) -> Tensor:
    """Return what is not black up to the border of the film."""
    from scipy.ndimage import label

    pieces, _ = label(grey.numpy() <= _BLACK)
    edge = np.unique(np.concatenate([pieces[0], pieces[-1], pieces[:, 0], pieces[:, -1]]))
    return torch.from_numpy(~np.isin(pieces, edge[edge > 0]))


def blurred(maps: Tensor, times: float) -> Tensor:
    """Blur maps ``(n, side, side)`` a few times, the last time partly."""
    while times > 0.0:
        maps = soft_blur(maps, torch.full((1, 1, 1), _BLURS * min(times, 1.0)))
        times -= 1.0
    return maps


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """What is to be seen on a film. Maps are ``(side, side)``, attenuation in nepers."""

    air: Tensor  # attenuation that the lung lacks because it holds air
    filled: Tensor  # share of that air replaced; negative for more air
    water: Tensor  # attenuation by other tissue
    bone: Tensor  # attenuation by bone and metal
    markings: Tensor  # factor of the vessels
    noise: int  # seed


def apply(film: Film, effect: Effect, log: Tensor, vessels: Tensor) -> Tensor:
    """Return grey values of a film, or of a deformed one (``log``, ``vessels``), with an effect.

    What was lung becomes hardly whiter than the heart. Fewer photons arrive behind more tissue, so the noise grows.
    """
    filled, water, markings = blurred(
        torch.stack([effect.filled, effect.water, effect.markings]), film.blur + film.soft
    )
    (bone,) = blurred(effect.bone[None], film.blur)
    filled = blurred(filled.clamp_min(0.0)[None], film.haze)[0] + filled.clamp_max(0.0)
    # Along its border a lung is not where its outline is by a few millimetres; there the film knows better.
    room, darker = ((film.bright - blurred(log[None], times)[0]).clamp_min(0.0) for times in (1.0, 4.0))
    width = 2 * film.rim + 1
    dense = max_pool2d(filled[None, None], (width, 1), 1, (film.rim, 0))
    dense = max_pool2d(dense, (1, width), 1, (0, film.rim))[0, 0]
    opaque = ((dense - 0.45) / 0.3).clamp(0.0, 1.0)  # so much is the air that the film shows replaced, too
    air = torch.minimum(film.speed * effect.air, 1.25 * room)  # beside the lung there is no air to replace
    air = torch.where(filled > 0, torch.maximum(air, darker * opaque), torch.minimum(air, darker))
    painted = log + filled * air + film.speed * water
    highest = film.bright + _WHITER
    limited = torch.maximum(highest + _SHOULDER * (painted - highest), log)
    painted = torch.where((painted > highest) & (painted > log), limited, painted)
    grain = normals(torch.tensor([effect.noise], dtype=torch.int32), painted.numel()).view(1, *painted.shape)
    more = torch.expm1((painted - log).clamp(0.0, 4.0)).sqrt_()
    painted = painted + film.speed * bone + (markings - 1.0) * vessels
    painted += blurred(grain, 1.0 + film.blur)[0] * (_GRAIN * film.noise * more)
    return torch.where(film.exposed, to_grey(painted), to_grey(log))
