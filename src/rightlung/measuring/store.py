"""Target masks in one file, one bit per pixel."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError

MASKS = "masks.bin"


@dataclass(frozen=True, slots=True)
class Place:
    """Offset of a mask in the store, and its size ``(height, width)``."""

    offset: int
    size: tuple[int, int]


class MaskStore(AbstractContextManager["MaskStore"]):
    """Masks in ``masks.bin`` of a folder or in a temporary file: written inside the context, read after `finish`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile() if folder is None else (folder / MASKS).open("w+b")  # noqa: SIM115
        self._bits: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @classmethod
    def open(cls, folder: Path) -> MaskStore:
        """Open the masks of a folder for reading."""
        store = cls.__new__(cls)
        try:
            store._bits = np.memmap(folder / MASKS, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise InputError(f"{folder / MASKS}: the masks cannot be read ({error})") from None
        return store

    def add(self, pixels: NDArray[np.bool_]) -> Place:
        """Write a mask ``(height, width)`` and return its place."""
        place = Place(self._file.tell(), (pixels.shape[0], pixels.shape[1]))
        self._file.write(np.packbits(pixels).tobytes())
        return place

    def finish(self) -> None:
        """Switch from writing to reading. A temporary file is removed with the store."""
        self._file.write(b"\0")  # an empty file cannot be mapped
        self._file.flush()
        self._bits = np.memmap(self._file, np.uint8, "r")

    def read(self, places: Sequence[Place]) -> NDArray[np.bool_]:
        """Return masks of one size, ``(n, height, width)``."""
        height, width = places[0].size
        bits = np.unpackbits(self._packed(places), axis=1, count=height * width)
        return bits.reshape(-1, height, width).view(np.bool_)

    def read_on(self, places: Sequence[Place], device: Any) -> Any:
        """Return masks of one size as a tensor, unpacked on ``device``."""
        import torch

        height, width = places[0].size
        bits = torch.from_numpy(self._packed(places)).to(device)
        shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
        flat = ((bits[:, :, None] >> shifts) & 1).bool().flatten(1)[:, : height * width]
        return flat.reshape(-1, height, width)

    def _packed(self, places: Sequence[Place]) -> NDArray[np.uint8]:
        count = -(-math.prod(places[0].size) // 8)
        return np.stack([self._bits[place.offset : place.offset + count] for place in places])


def target_digest(pixels: NDArray[np.bool_]) -> bytes:
    """Return the SHA-256 digest of a target's pixels."""
    return hashlib.sha256(repr(pixels.shape).encode() + np.packbits(pixels).tobytes()).digest()
