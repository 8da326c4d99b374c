"""Grey values of synthetic images matched to those of real films, which need no labels.

- the histogram: each grey level becomes the film's level of the same rank;
- the low-frequency amplitudes of the Fourier transform; phases are kept (FDA: Yang & Soatto, CVPR 2020, Eq. 3).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rightlung.core import InputError
from rightlung.core.keyed import key_number
from rightlung.studies.sources import open_source
from rightlung.training.augmentation import to_device
from rightlung.training.recipe import FilmMatching

LEVELS = 256


@lru_cache(maxsize=8)
def read_films(source: str, count: int, size: int, device: torch.device) -> Tensor:
    """Return at most ``count`` films of a source, always the same ones, (films, size, size) uint8 on the device.

    A film is stretched to the square, because the black bars of a letterbox would count as its grey values. Films that
    cannot be read are passed over; an error says so where there is none.
    """
    studies = open_source(source)
    shuffled = torch.randperm(len(studies), generator=torch.Generator().manual_seed(key_number("films") >> 1))
    films: list[Tensor] = []
    problem = "it has no studies"
    for number in shuffled.tolist():
        if len(films) == count:
            break
        try:
            image = torch.tensor(studies[number].image)[None, None]
        except InputError as error:
            problem = str(error)
            continue
        square = interpolate(image, (size, size), mode="bilinear", align_corners=False, antialias=True)
        films.append((square[0, 0] * (LEVELS - 1)).round().to(torch.uint8))
    if not films:
        raise InputError(f"{source}: no film can be read: {problem}")
    return to_device(torch.stack(films), device)


def matched_to_films(
    images: Tensor, settings: FilmMatching, films: Tensor, generator: torch.Generator, rows: Tensor, total: int
) -> Tensor:
    """Match images (n, 1, h, w) in 0 to 1, which are the ``rows`` (n,) of a global batch of ``total``, to ``films``.

    ``generator`` is one on the CPU, in the same state in every process. An image with both changes has one film.
    """
    drawn = torch.rand(total, 3, generator=generator)[rows]
    numbers = (drawn[:, 0] * len(films)).long()
    changes: dict[int, tuple[float, Callable[[Tensor, Tensor], Tensor]]] = {
        1: (settings.histogram, match_histograms),
        2: (settings.low_frequency, lambda own, film: match_low_frequencies(own, film, settings.band)),
    }
    for column, (share, change) in changes.items():
        chosen = (drawn[:, column] < share).nonzero()[:, 0]
        if len(chosen):
            at, of = to_device(chosen, images.device), to_device(numbers[chosen], images.device)
            images = images.index_copy(0, at, change(images[at], films[of, None].float() / (LEVELS - 1)))
    return images


def match_histograms(images: Tensor, films: Tensor) -> Tensor:
    """Return images with the histograms of films, both (n, 1, h, w) in 0 to 1 with 256 grey levels, on one grid.

    A level becomes the film's grey value at the same share of darker or equal pixels, interpolated between the levels
    that the film has.
    """
    levels = (images.clamp(0.0, 1.0) * (LEVELS - 1)).round().long().flatten(1)
    ranks, of_film = _cumulative(levels), _cumulative((films * (LEVELS - 1)).round().long().flatten(1))
    high = torch.searchsorted(of_film, ranks)  # the first level with at least as many pixels
    below = of_film.gather(1, (high - 1).clamp_min(0)) * (high > 0)
    low = torch.where(below > 0, torch.searchsorted(of_film, below), high)  # the level before that the film has
    share = (ranks - below) / (of_film.gather(1, high) - below).clamp_min(1)
    curve = torch.lerp(low.float(), high.float(), share) / (LEVELS - 1)
    return curve.gather(1, levels).view_as(images)


def _cumulative(levels: Tensor) -> Tensor:
    """Return how many pixels (n, p) are at or below each level, (n, 256)."""
    offsets = torch.arange(len(levels), device=levels.device)[:, None] * LEVELS
    counts = torch.bincount((levels + offsets).flatten(), minlength=len(levels) * LEVELS).view(-1, LEVELS)
    return counts.cumsum(1)


def match_low_frequencies(images: Tensor, films: Tensor, band: float) -> Tensor:
    """Return images with the amplitudes of films at frequencies up to ``band`` times the smaller side, in 0 to 1."""
    spectrum, other = torch.fft.rfft2(images.float()), torch.fft.rfft2(films.float())
    height, width = images.shape[2:]
    limit = int(min(height, width) * band)
    down = torch.fft.fftfreq(height, 1 / height, device=images.device).abs() <= limit
    across = torch.arange(spectrum.shape[3], device=images.device) <= limit
    replaced = torch.polar(other.abs(), spectrum.angle())
    spectrum = torch.where(down[:, None] & across, replaced, spectrum)
    changed: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
    return changed.clamp(0.0, 1.0)
