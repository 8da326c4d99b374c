"""Masks as run lengths, in the two formats that data sets use.

- COCO's, in CheXlocalize: ``{"size": [height, width], "counts": text}``, decoded by `Mask.from_rle`.
- SIIM-ACR's *relative* format: pairs of numbers, how many pixels to skip after the last run and how many to set, column
  by column (the competition's ``mask_functions.py`` decodes into rows and transposes).

Both are stored as text and decoded when the mask's pixels are first used.
"""

from __future__ import annotations

from functools import reduce

from rightlung.core import InputError, Mask
from rightlung.core.checks import Size, check_size

NO_MASK = "-1"
"""SIIM-ACR's value for an image without a pneumothorax."""


def relative_runs(text: str, size: Size) -> list[int]:
    """Return COCO's uncompressed counts for relative run lengths of a mask of ``size`` (height, width).

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
            raise InputError(f"relative run length {position + 1} must be an integer; got {word[:40]!r}")
        runs.append(int(word))
    rest = height * width - sum(runs)
    if rest < 0:
        raise InputError(
            f"relative run lengths add up to {sum(runs):,}, "
            f"but a mask of {height} x {width} has {height * width:,} pixels"
        )
    return [*runs, rest]


def is_empty_rle(counts: str) -> bool:
    """Whether COCO's run lengths set no pixel, judging by their number without decoding: one run is all zeros."""
    # A character whose sixth bit is clear is the last of its number.
    return sum(not (character - 48) & 0x20 for character in counts.encode()) < 2


def decode_relative(what: str, texts: tuple[str, ...], size: Size) -> Mask:
    """Return the union of one or more masks in relative run lengths; ``what`` names it in messages."""
    try:
        return reduce(Mask.union, [Mask.from_runs(relative_runs(text, size), size) for text in texts])
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def decode_coco(what: str, counts: str, size: Size) -> Mask:
    """Return a mask in COCO's run lengths; ``what`` names it in messages."""
    try:
        return Mask.from_rle({"size": list(size), "counts": counts})
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
