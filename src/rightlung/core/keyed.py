"""Keyed randomness: random numbers that depend on a key only, equal in every process and on every machine.

Draws keyed by seed, study and purpose do not depend on other draws. `RandomStream` uses ``random.Random.random``, which
Python keeps stable between versions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

Item = TypeVar("Item")


def text_digest(*texts: object, size: int = 8) -> bytes:
    """Return a digest of any texts and their lengths."""
    joined = "".join(f"{len(text)}:{text}" for text in map(str, texts))
    return blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=size).digest()


def text_generator(*texts: object) -> np.random.Generator:
    """Return a NumPy generator keyed by any texts.

    >>> int(text_generator(0, "swap-sides", "study 1").integers(100))
    79
    """
    import numpy as np

    return np.random.default_rng(int.from_bytes(text_digest(*texts, size=16), "big"))


def key_digest(*key: object, size: int = 8) -> bytes:
    """Return a digest of a few plain parts; only the last may hold a slash."""
    return blake2b("/".join(map(str, key)).encode("utf-8", "surrogatepass"), digest_size=size).digest()


def key_number(*key: object) -> int:
    """Return a pseudo-random 64-bit integer for a key."""
    return int.from_bytes(key_digest(*key), "big")


def key_uniform(*key: object) -> float:
    """Return one uniform number in [0, 1) for a key; cheaper than a `RandomStream`."""
    return (key_number(*key) >> 11) * 2.0**-53


class RandomStream:
    """Random numbers for one key.

    >>> RandomStream(7, 0, "body").uniform(0, 1) == RandomStream(7, 0, "body").uniform(0, 1)
    True
    """

    __slots__ = ("random",)

    def __init__(self, *key: object) -> None:
        self.random = random.Random(key_number(*key)).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def uniform(self, low: float, high: float) -> float:
        """Return a uniform number between ``low`` and ``high``."""
        return low + (high - low) * self.random()

    def integer(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def seed(self) -> int:
        """Return a seed below 2**31 for another generator."""
        return int(self.random() * 2**31)

    def normal(self, mean: float, std: float) -> float:
        """Return a normally distributed number."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return mean + std * radius * math.cos(2.0 * math.pi * self.random())

    def triangular(self, low: float, mode: float, high: float) -> float:
        """Return a number from the triangular distribution."""
        if high <= low:
            return low
        turn = (mode - low) / (high - low)
        draw = self.random()
        if draw < turn:
            return low + math.sqrt(draw * (high - low) * (mode - low))
        return high - math.sqrt((1.0 - draw) * (high - low) * (high - mode))

    def choice(self, items: Sequence[Item]) -> Item:
        """Return one of the items with equal probability."""
        return items[int(self.random() * len(items))]

    def weighted(self, weights: Mapping[Item, float] | Iterable[tuple[Item, float]]) -> Item:
        """Return one of the items by weight; the weights need not sum to 1."""
        pairs: list[tuple[Item, float]] = list(weights.items() if isinstance(weights, Mapping) else weights)
        left = self.random() * sum(weight for _, weight in pairs)
        for item, weight in pairs:
            left -= weight
            if left < 0.0:
                return item
        return next(item for item, weight in reversed(pairs) if weight > 0.0)

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        """Return the items in random order."""
        kept = list(items)
        for last in range(len(kept) - 1, 0, -1):
            other = int(self.random() * (last + 1))
            kept[last], kept[other] = kept[other], kept[last]
        return kept
