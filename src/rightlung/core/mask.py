"""Binary masks, and COCO's run-length encoding.

The encoding lists the lengths of alternating runs of zeros and ones, column by column, zeros first: as integers, or as
COCO's compressed text (groups of five bits, from the third number on as the difference to the one two before).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rightlung.core.box import Box
from rightlung.core.checks import Size, as_array, as_booleans, check_size
from rightlung.core.errors import InputError, MaskSizeError, shortened
from rightlung.core.resampling import positions

MOST_BITS = 60
"""Longest number in run-length text, in bits: a malicious text must not exhaust the memory."""


class Mask:
    """A set of pixels: an immutable boolean array ``(height, width)``.

    >>> Mask([[0, 1], [0, 1]]).area
    0.5
    """

    __slots__ = ("_load", "_loaded")

    def __init__(self, pixels: ArrayLike) -> None:
        self._load: Callable[[], Mask] | None = None
        array = as_array(pixels, "a mask")
        if array.ndim != 2 or array.size == 0:
            raise InputError(f"a mask must have shape (height, width), both positive; got shape {array.shape}")
        self._loaded: NDArray[np.bool_] | None = as_booleans(array, "a mask")
        self._loaded.setflags(write=False)

    @classmethod
    def deferred(cls, load: Callable[[], Mask]) -> Mask:
        """Return a mask whose pixels ``load`` provides on first use."""
        mask = cls.__new__(cls)
        mask._load, mask._loaded = load, None
        return mask

    def __reduce__(self) -> tuple[Callable[..., Mask], tuple[object]]:
        return (Mask.deferred, (self._load,)) if self._load is not None else (Mask, (self.pixels,))

    @property
    def pixels(self) -> NDArray[np.bool_]:
        """The boolean array ``(height, width)``, read-only."""
        if self._loaded is None:
            assert self._load is not None
            self._loaded = self._load().pixels
        return self._loaded

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.pixels, dtype=dtype, copy=copy)

    @property
    def size(self) -> Size:
        """``(height, width)``."""
        return self.pixels.shape[0], self.pixels.shape[1]

    @property
    def area(self) -> float:
        """Share of the pixels that are set."""
        return float(self.pixels.mean())

    def __bool__(self) -> bool:
        return bool(self.pixels.any())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and np.array_equal(self.pixels, other.pixels)

    def __hash__(self) -> int:
        return hash((self.size, np.packbits(self.pixels).tobytes()))

    def __repr__(self) -> str:
        return f"Mask(size={self.size}, area={self.area:.4f})"

    @classmethod
    def from_boxes(cls, boxes: Iterable[Box], size: Size) -> Mask:
        """Paint boxes onto an image of ``size``; `Box.pixel_slices` says how edges are rounded."""
        pixels = np.zeros(check_size(size), dtype=np.bool_)
        for box in boxes:
            pixels[box.pixel_slices(size)] = True
        return cls(pixels)

    def box(self) -> Box | None:
        """Return the bounding box, None for an empty mask."""
        rows, columns = np.flatnonzero(self.pixels.any(axis=1)), np.flatnonzero(self.pixels.any(axis=0))
        if not len(rows):
            return None
        return Box.from_pixels((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1), self.size)

    def mirrored(self) -> Mask:
        """Return the mask of the horizontally flipped image. Mirror the words that go with it, too."""
        return Mask(self.pixels[:, ::-1])

    def union(self, other: Mask) -> Mask:
        """Return the union of two masks of the same size."""
        return Mask(self.pixels | self._same_size(other))

    def iou(self, other: Mask) -> float:
        """Return the intersection over union; NaN for two empty masks."""
        pixels = self._same_size(other)
        union = int((self.pixels | pixels).sum())
        return int((self.pixels & pixels).sum()) / union if union else float("nan")

    def resized(self, size: Size) -> Mask:
        """Resize by the nearest pixel centre. Small masks may vanish: check before scoring."""
        height, width = check_size(size)
        rows = positions(height, self.size[0], 0, 1).astype(np.int64)
        columns = positions(width, self.size[1], 0, 1).astype(np.int64)
        return Mask(self.pixels[np.ix_(rows, columns)])

    def _same_size(self, other: Mask) -> NDArray[np.bool_]:
        if self.size != other.size:
            raise MaskSizeError(f"masks differ in size: {self.size} and {other.size}")
        return other.pixels

    def to_runs(self) -> list[int]:
        """Return COCO's uncompressed counts: column-major run lengths, zeros first."""
        flat = self.pixels.T.ravel()
        changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
        runs = np.diff(np.concatenate(([0], changes, [flat.size]))).tolist()
        return [0, *runs] if flat[0] else list(runs)

    @classmethod
    def from_runs(cls, runs: Sequence[int], size: Size) -> Mask:
        """Build from COCO's uncompressed counts."""
        height, width = check_size(size)
        if not isinstance(runs, list | tuple | np.ndarray):
            raise InputError(f"run lengths must be a list of integers; got {shortened(runs)}")
        for position, run in enumerate(runs):
            if isinstance(run, bool) or not isinstance(run, int | np.integer) or not 0 <= run <= height * width:
                raise InputError(f"run {position} must be an integer from 0 to {height * width}; got {shortened(run)}")
        total = sum(int(run) for run in runs)  # as Python integers, which do not wrap around
        if total != height * width:
            raise InputError(f"run lengths add up to {total}, but a mask of {height} x {width} needs {height * width}")
        values = np.arange(len(runs)) % 2 == 1
        return cls(np.repeat(values, np.asarray(runs, dtype=np.int64)).reshape(width, height).T)

    def to_rle(self) -> dict[str, Any]:
        """Return COCO's compressed form, ``{"size": [height, width], "counts": text}``."""
        return {"size": list(self.size), "counts": _compress(self.to_runs())}

    @classmethod
    def from_rle(cls, rle: dict[str, Any]) -> Mask:
        """Build from either of COCO's forms: ``counts`` as text (or bytes) or as a list of numbers."""
        if not isinstance(rle, dict) or "size" not in rle or "counts" not in rle:
            raise InputError(f"a run-length encoding must have 'size' and 'counts'; got {shortened(rle)}")
        check_size(rle["size"])
        counts = rle["counts"]
        if isinstance(counts, bytes):
            counts = counts.decode("ascii", errors="replace")
        return cls.from_runs(_decompress(counts) if isinstance(counts, str) else counts, rle["size"])


def _compress(runs: Sequence[int]) -> str:
    characters = []
    for index, run in enumerate(runs):
        value = run - runs[index - 2] if index > 2 else run
        more = True
        while more:
            group = value & 0x1F
            value >>= 5
            more = value != (-1 if group & 0x10 else 0)
            characters.append(chr((group | (0x20 if more else 0)) + 48))
    return "".join(characters)


def _decompress(text: str) -> list[int]:
    runs: list[int] = []
    position = 0
    while position < len(text):
        value, shift, more = 0, 0, True
        while more:
            if position >= len(text):
                raise InputError(f"run-length text ends in the middle of a number: {shortened(text)}")
            group = ord(text[position]) - 48
            if not 0 <= group < 64:
                raise InputError(f"run-length text has the invalid character {text[position]!r} at position {position}")
            if shift > MOST_BITS:
                raise InputError(f"run-length text has a number of more than {MOST_BITS} bits at position {position}")
            value |= (group & 0x1F) << shift
            more = bool(group & 0x20)
            position, shift = position + 1, shift + 5
            if not more and group & 0x10:
                value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
    return runs
