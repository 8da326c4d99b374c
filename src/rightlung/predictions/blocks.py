"""Predictions in blocks of studies, which can be measured one by one."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rightlung.core.errors import InputError
from rightlung.predictions.batch import Batch
from rightlung.predictions.parts import Part
from rightlung.predictions.prediction import PHRASE_QUERY
from rightlung.predictions.reader import Predictions, read_batches, read_keys


@dataclass(frozen=True)
class Block:
    """Some studies: the indices of their phrases, and the rows of the predictions about them by part."""

    number: int
    wanted: dict[str, list[int]]
    rows: list[tuple[Part, NDArray[np.int64]]]

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.number:05d}"

    def batches(self) -> Iterator[Batch]:
        """Yield the rows."""
        for part, rows in self.rows:
            yield from read_batches(part, rows)


class Blocks:
    """All rows of predictions that ask about phrases, by study, in the order of their first rows."""

    def __init__(self, predictions: Predictions, size: int) -> None:
        """Divide predictions into blocks of ``size`` rows or a few more: a block holds all rows of its studies."""
        if not len(predictions):
            raise InputError(f"{predictions.path}: the predictions have no rows")
        _ = predictions.rows_by_condition  # refuses duplicate keys
        self._parts = predictions.parts
        self.studies: dict[str, int] = {}
        """The number of each study."""
        self.other = 0
        """The number of rows with other queries."""
        columns = [array("q") for _ in range(4)]
        for number, part in enumerate(self._parts):
            for row, key in read_keys(part):
                if match := PHRASE_QUERY.fullmatch(key.query):
                    study = self.studies.setdefault(key.study, len(self.studies))
                    for column, value in zip(columns, (study, int(match[1]), number, row), strict=True):
                        column.append(value)
                else:
                    self.other += 1
        if not self.studies:
            raise InputError(
                f"{predictions.path}, column 'query': no row asks about a phrase of the source; expected queries such "
                "as 'phrase:0', because only phrases have a known target"
            )
        self._names = [*self.studies]
        rows = np.array(columns, dtype=np.int64)
        self._rows = rows[:, np.argsort(rows[0], kind="stable")]
        begins = np.flatnonzero(np.diff(self._rows[0], prepend=-1))  # the first row of each study
        self._begins = [int(begins[0])]
        for begin in begins.tolist():
            if begin - self._begins[-1] >= size:
                self._begins.append(begin)

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, number: int) -> Block:
        end = self._begins[number + 1] if number + 1 < len(self) else self._rows.shape[1]
        studies, phrases, parts, rows = self._rows[:, self._begins[number] : end]
        wanted: dict[str, set[int]] = {}
        for study, phrase in zip(studies.tolist(), phrases.tolist(), strict=True):
            wanted.setdefault(self._names[study], set()).add(phrase)
        by_part = [(self._parts[part], np.sort(rows[parts == part])) for part in np.unique(parts).tolist()]
        return Block(number, {study: sorted(some) for study, some in wanted.items()}, by_part)

    def __iter__(self) -> Iterator[Block]:
        return (self[number] for number in range(len(self)))
