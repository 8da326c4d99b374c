"""What targets keep of many studies, column by column: tensors with any number of rows for each study, or values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from rightlung.training.augmentation import on_device


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of ``n`` studies in one tensor ``values`` (m, ...). Studies may share it and need not use all of it."""

    values: Tensor
    first: Sequence[int]  # (n,) the first row of each study
    counts: Sequence[int]  # (n,) how many rows it has

    @classmethod
    def of(cls, values: Tensor, counts: Sequence[int]) -> Rows:
        """Return the rows of studies that follow each other."""
        return cls(values, list(accumulate(counts, initial=0))[:-1], list(counts))

    def only(self, studies: Sequence[int]) -> Rows:
        """Return the rows of some of the studies, without copying them."""
        return Rows(self.values, [self.first[one] for one in studies], [self.counts[one] for one in studies])

    def at(self, rows: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        """Return rows by their number in ``values``."""
        return self.values[on_device(torch.tensor(rows, dtype=torch.long), self.values.device)]

    def all(self) -> Tensor:
        """Return the rows of all studies in their order, (sum of counts, ...)."""
        return self.at(
            [first + row for first, count in zip(self.first, self.counts, strict=True) for row in range(count)]
        )


Column = Rows | list[Any]
"""Of each study a tensor (rows, ...), or a value that JSON knows."""


def only(column: Column, studies: Sequence[int]) -> Column:
    """Return some of the studies of a column."""
    return column.only(studies) if isinstance(column, Rows) else [column[one] for one in studies]


def stacked(built: Sequence[Any], device: torch.device) -> Column:
    """Return a column of what was built of each study."""
    if not isinstance(built[0], Tensor):
        return list(built)
    return Rows.of(on_device(torch.cat(list(built)), device), [len(one) for one in built])


def joined(parts: Sequence[Column]) -> Column:
    """Return a column of all the studies of several."""
    if all(isinstance(part, Rows) for part in parts):
        counts = [count for part in parts for count in part.counts]  # type: ignore[union-attr]
        return Rows.of(torch.cat([part.values for part in parts]), counts)  # type: ignore[union-attr]
    return [value for part in parts for value in part]  # type: ignore[union-attr]
