"""Random numbers as hashes of (seed, index).

A sequential generator would make an image depend on what was drawn before. With hashes a study is the same alone, in a
batch, in any order, and on any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float64]

_MASK = (1 << 64) - 1


def seeds_of(values: Iterable[int], stream: int) -> NDArray[np.uint64]:
    """Return 64-bit seeds from integers of any size; each ``stream`` gives another sequence for the same seed."""
    return _mix(np.array([(value ^ (stream * 0x9E3779B97F4A7C15)) & _MASK for value in values], dtype=np.uint64))


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], *shape: int) -> Floats:
    """Return uniform random numbers in 0 to 1, ``(n, *shape)``."""
    count = int(np.prod(shape))
    steps = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))[None]
    drawn = _mix(seeds[:, None] + steps) >> np.uint64(11)
    result: Floats = drawn.astype(np.float64) / float(1 << 53)
    return result.reshape(len(seeds), *shape)


def low_bits(seeds: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the 31 bits of each seed that noise on a device starts from."""
    return (seeds & np.uint64(0x7FFFFFFF)).astype(np.int32)


def _steps(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device) * 747796405


def _scramble(bits: Tensor) -> Tensor:
    """Scramble 32 bits in place. Multiplication overflows in the same way on every device."""
    bits ^= (bits >> 16) & 0xFFFF
    bits *= 2146121005
    bits ^= (bits >> 15) & 0x1FFFF
    bits *= -2073254261
    return bits.bitwise_xor_((bits >> 16) & 0xFFFF)


def _nearly_normal(bits: Tensor) -> Tensor:
    """Convert bits to nearly normal numbers: sums of four bytes, cheap and limited to 3.4 standard deviations."""
    total = bits & 0xFF
    for shift in (8, 16, 24):
        total += (bits >> shift) & 0xFF
    return total.float().sub_(510.0).mul_(1.0 / 147.8)


def normals(seeds: Tensor, count: int) -> Tensor:
    """Return nearly normal random numbers ``(n, count)`` from seeds ``(n,)`` of `low_bits`."""
    return _nearly_normal(_scramble(_steps(count, seeds.device)[None] + seeds[:, None]))


@dataclass(frozen=True, slots=True)
class SmoothNoise:
    """A request for smooth fractal noise."""

    seeds: Tensor  # (k,)
    cells: int  # across the image
    octaves: int  # each half as coarse and half as strong as the previous one
    size: int  # of the image in pixels

    def lattices(self) -> list[int]:
        """Return the number of cells across for each octave."""
        return [self.cells, *(min(self.cells << octave, self.size) for octave in range(1, self.octaves))]


def draw_noise(wanted: Sequence[SmoothNoise]) -> list[Tensor]:
    """Return smooth noise of about unit standard deviation for each request, ``(k, size, size)``."""
    # The corners of all lattices are drawn at once: they are few, and there are many lattices.
    device = wanted[0].seeds.device
    parts = [(cloud, octave, cells) for cloud in wanted for octave, cells in enumerate(cloud.lattices())]
    steps = _steps(max((cells + 1) ** 2 for _, _, cells in parts), device)
    shares = [len(cloud.seeds) * (cells + 1) ** 2 for cloud, _, cells in parts]
    bits = torch.empty(sum(shares), dtype=torch.int32, device=device)
    for (cloud, octave, cells), piece in zip(parts, torch.split(bits, shares), strict=True):
        seeds = cloud.seeds if not octave else (cloud.seeds + octave * 7919) & 0x7FFFFFFF
        torch.add(steps[None, : (cells + 1) ** 2], seeds[:, None], out=piece.view(-1, (cells + 1) ** 2))
    corners = iter(torch.split(_nearly_normal(_scramble(bits)), shares))
    return [_draw_cloud(cloud, corners) for cloud in wanted]


def _draw_cloud(cloud: SmoothNoise, corners: Iterator[Tensor]) -> Tensor:
    total = torch.zeros((), device=cloud.seeds.device)
    for octave, cells in enumerate(cloud.lattices()):
        lattice = next(corners).view(-1, 1, cells + 1, cells + 1)
        finer = functional.interpolate(lattice, (cloud.size, cloud.size), mode="bilinear", align_corners=True)[:, 0]
        total = finer.mul_(1.5 * 0.5**octave).add_(total)
    deviation = math.sqrt(sum(0.25**octave for octave in range(cloud.octaves)))
    return total.div_(deviation)
