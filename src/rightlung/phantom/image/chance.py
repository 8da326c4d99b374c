"""Chance that depends on nothing but a seed and a position.

A generator that is drawn from in turn would make a picture depend on what was drawn before it. Here every number is a
hash of (seed, index), so that a study is the same alone, in a batch, in any order, and on any device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float64]

_MASK = (1 << 64) - 1


def seeds_of(values: Iterable[int], stream: int) -> NDArray[np.uint64]:
    """Fold whole numbers of any size into 64-bit seeds, one sequence for each ``stream`` of the same seed."""
    return _mix(np.array([(value ^ (stream * 0x9E3779B97F4A7C15)) & _MASK for value in values], dtype=np.uint64))


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (the finaliser of splitmix64)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], *shape: int) -> Floats:
    """Return numbers in 0 to 1, ``(n, *shape)``."""
    count = int(np.prod(shape))
    steps = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))[None]
    drawn = _mix(seeds[:, None] + steps) >> np.uint64(11)
    result: Floats = drawn.astype(np.float64) / float(1 << 53)
    return result.reshape(len(seeds), *shape)


def _hash(seeds: NDArray[np.uint64], count: int, device: torch.device) -> Tensor:
    """Return 32 scrambled bits for each of ``count`` positions, ``(n, count)`` int32.

    Multiplication wraps around, in the same way on every device.
    """
    low = torch.from_numpy((seeds & np.uint64(0x7FFFFFFF)).astype(np.int32)).to(device)
    bits = torch.arange(count, dtype=torch.int32, device=device)[None] * 747796405 + low[:, None]
    bits ^= (bits >> 16) & 0xFFFF
    bits *= 2146121005
    bits ^= (bits >> 15) & 0x1FFFF
    bits *= -2073254261
    return bits.bitwise_xor_((bits >> 16) & 0xFFFF)


def normals(seeds: NDArray[np.uint64], count: int, device: torch.device) -> Tensor:
    """Return nearly normal numbers, ``(n, count)``: sums of four bytes, which is cheap and ends at 3.4 deviations."""
    bits = _hash(seeds, count, device)
    total = bits & 0xFF
    for shift in (8, 16, 24):
        total += (bits >> shift) & 0xFF
    return total.float().sub_(510.0).mul_(1.0 / 147.8)


def texture(seeds: NDArray[np.uint64], cells: int, size: int, device: torch.device) -> Tensor:
    """Return smooth noise of about unit deviation, ``(n, size, size)``, with ``cells`` bumps across the picture."""
    lattice = normals(seeds, (cells + 1) ** 2, device).view(-1, 1, cells + 1, cells + 1)
    return functional.interpolate(lattice, (size, size), mode="bilinear", align_corners=True)[:, 0] * 1.5


def cloud(seeds: NDArray[np.uint64], cells: int, size: int, device: torch.device, octaves: int = 3) -> Tensor:
    """Return noise of several scales, each half as coarse and half as strong as the one before it."""
    total = texture(seeds, cells, size, device)
    for octave in range(1, octaves):
        finer = min(cells << octave, size)
        total = total + texture(seeds + np.uint64(octave * 7919), finer, size, device) * 0.5**octave
    deviation = math.sqrt(sum(0.25**octave for octave in range(octaves)))
    return total / deviation
