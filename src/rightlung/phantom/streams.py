"""Chance by name: a stream of random numbers that depends on nothing but its key.

Every part of a study draws from a stream of its own, keyed by seed, study and part. So a study is the same whichever
others are made before it, and a new kind of finding does not reshuffle all the others. Only ``random.Random.random`` is
used underneath: Python promises that it gives the same numbers for the same seed in every version.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

Item = TypeVar("Item")


def key_number(*key: object) -> int:
    """Return 64 bits that depend on every part of the key and look like chance."""
    return int.from_bytes(blake2b("/".join(map(str, key)).encode(), digest_size=8).digest(), "big")


def key_uniform(*key: object) -> float:
    """Return one uniform number in [0, 1) for a key, cheaper than a stream where one is all that is needed."""
    return (key_number(*key) >> 11) * 2.0**-53


class Stream:
    """Random numbers for one part of one study.

    >>> Stream(7, 0, "body").uniform(0, 1) == Stream(7, 0, "body").uniform(0, 1)
    True
    """

    __slots__ = ("random",)

    def __init__(self, *key: object) -> None:
        self.random = random.Random(key_number(*key)).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two, all alike."""
        return low + (high - low) * self.random()

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def seed(self) -> int:
        """Return a seed for somebody else's generator, below 2**31 so that it fits everywhere."""
        return int(self.random() * 2**31)

    def normal(self, mean: float, spread: float) -> float:
        """Return a normally distributed number."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return mean + spread * radius * math.cos(2.0 * math.pi * self.random())

    def triangular(self, low: float, mode: float, high: float) -> float:
        """Return a number between low and high, the most frequent being the mode."""
        if high <= low:
            return low
        turn = (mode - low) / (high - low)
        draw = self.random()
        if draw < turn:
            return low + math.sqrt(draw * (high - low) * (mode - low))
        return high - math.sqrt((1.0 - draw) * (high - low) * (high - mode))

    def choice(self, items: Sequence[Item]) -> Item:
        """Return one of the items, all alike."""
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
