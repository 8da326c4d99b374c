"""Masks as run lengths, the two ways that data sets write them.

- COCO's, in CheXlocalize: ``{"size": [height, width], "counts": text}``, decoded by `Mask.from_rle`.
- SIIM-ACR's *relative* one: pairs of numbers, how many pixels to go on from the end of the last run and how many to
  set; the pixels go down the first column, then the second (the competition's ``mask_functions.py`` decodes into rows
  and transposes).

Both travel as text and are decoded when the mask's pixels are asked for; `Mask.deferred` takes the values below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rightlung.core import InputError, Mask
from rightlung.core.checks import Size, check_size

NO_MASK = "-1"
"""What SIIM-ACR writes in place of a mask where there is no pneumothorax."""


def relative_runs(text: str, size: Size) -> list[int]:
    """Return COCO's uncompressed counts for relative run-length text of a mask of ``size`` (height, width).

    >>> relative_runs("2 3 1 1", (2, 4))
    [2, 3, 1, 1, 1]
    """
    height, width = check_size(size)
    words = text.split()
    if not words or len(words) % 2:
        raise InputError(f"relative run lengths come in pairs of numbers; got {len(words)} numbers")
    if len(words) > height * width:
        raise InputError(f"relative run lengths have {len(words)} numbers, more than the mask has pixels")
    runs = []
    for position, word in enumerate(words):
        if not word.isascii() or not word.isdecimal() or len(word) > 18:
            raise InputError(f"relative run length {position + 1} must be a whole number; got {word[:40]!r}")
        runs.append(int(word))
    rest = height * width - sum(runs)
    if rest < 0:
        raise InputError(
            f"relative run lengths add up to {sum(runs):,}, "
            f"but a mask of {height} x {width} has {height * width:,} pixels"
        )
    return [*runs, rest]


def is_empty_rle(rle: Mapping[str, Any]) -> bool:
    """Whether COCO's run lengths set no pixel, told from their number, without decoding: one run is all zeros."""
    counts = rle.get("counts")
    if isinstance(counts, str | bytes):
        data = counts.encode() if isinstance(counts, str) else counts
        # A character whose sixth bit is clear is the last one of its number.
        return sum(not (character - 48) & 0x20 for character in data) < 2
    return isinstance(counts, list) and len(counts) < 2


@dataclass(frozen=True, slots=True)
class RelativeRle:
    """Loads the union of one or more masks in relative run lengths."""

    what: str
    texts: tuple[str, ...]
    size: Size

    def __call__(self) -> Mask:
        """Decode and unite them."""
        united: Mask | None = None
        for text in self.texts:
            try:
                mask = Mask.from_runs(relative_runs(text, self.size), self.size)
            except InputError as error:
                raise InputError(f"{self.what}: {error}") from None
            united = mask if united is None else united.union(mask)
        if united is None:
            raise InputError(f"{self.what}: there are no run lengths")
        return united


@dataclass(frozen=True, slots=True)
class CocoRle:
    """Loads a mask in COCO's run lengths."""

    what: str
    counts: str
    size: Size

    def __call__(self) -> Mask:
        """Decode it."""
        try:
            return Mask.from_rle({"size": list(self.size), "counts": self.counts})
        except InputError as error:
            raise InputError(f"{self.what}: {error}") from None
