"""Named columns of numbers, one row per study or finding, which geometry (NumPy) hands to drawing (PyTorch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.phantom.image.randomness import Floats

Columns = Mapping[str, Floats | Sequence[float]]


def table(columns: Columns, rows: int) -> NDArray[np.float32]:
    """Return columns side by side, ``(rows, columns)``."""
    made = np.empty((rows, len(columns)), dtype=np.float32)
    for place, values in enumerate(columns.values()):
        made[:, place] = values
    return made


def carry(values: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device without waiting for the device's pending work."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class ColumnTensors:
    """Columns by name on a device, each ``(rows, 1, 1)`` for broadcasting with maps ``(rows, h, w)``."""

    def __init__(self, names: Sequence[str], values: Tensor) -> None:
        self.names = tuple(names)
        self.values = values  # (rows, columns)
        self._columns = dict(zip(self.names, values[:, :, None, None].unbind(1), strict=True))

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, index: Tensor) -> ColumnTensors:
        """Return some rows, possibly repeated."""
        return ColumnTensors(self.names, self.values[index])
