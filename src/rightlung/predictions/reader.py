"""Read and check predictions. Footers first, then the keys of all rows, then the rows batch by batch."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.problem import Problem, ProblemError
from rightlung.predictions.batch import Batch
from rightlung.predictions.checks import Flaw, find_flaws, find_key_flaws
from rightlung.predictions.parts import Part, inspect_part, part_paths, read_rows
from rightlung.predictions.prediction import Key, Prediction, digest
from rightlung.predictions.schema import KEY_COLUMNS


def open_predictions(path: str | Path) -> Predictions:
    """Open a predictions file or a folder of parts. Reads footers only; values are checked as they are read."""
    path = Path(path)
    parts = []
    for file in part_paths(path):
        part, problems = inspect_part(file)
        if part is None:
            raise ProblemError(problems[0])
        parts.append(part)
    _refuse_first(_disagreements(parts))
    return Predictions(path, tuple(parts))


def check_predictions(path: str | Path) -> list[Problem]:
    """Return everything wrong with the predictions at ``path``, one `Problem` for each row and column. Empty is good.

    Of several bad values in one field (cells of a map, boxes of a list) the first is named and the rest are counted.
    """
    path = Path(path)
    try:
        files = part_paths(path)
    except InputError as error:
        return [Problem(path.name or str(path), str(error).removeprefix(f"{path}: "))]
    problems: list[Problem] = []
    parts = []
    for file in files:
        part, found = inspect_part(file)
        problems += found
        if part is not None:
            parts.append(part)
    problems += _disagreements(parts)
    for part in parts:
        for rows, columns in read_rows(part, problems=problems):
            batch = Batch(part.name, rows, columns)
            problems += [_problem(batch, flaw) for flaw in find_flaws(columns)]
    # Flawed keys and broken parts are named above; what is left of them here is only whether a key comes twice.
    problems += _KeyTable(parts, []).repetitions()
    return problems


class Predictions:
    """Predictions, opened. Iterating gives `Prediction` values, `batches` gives arrays; neither holds all rows at once.

    Reading checks every value it passes on; a first look at all keys makes sure beforehand that none comes twice.
    """

    def __init__(self, path: Path, parts: tuple[Part, ...]) -> None:
        self.path = path
        self.parts = parts

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts)

    def __iter__(self) -> Iterator[Prediction]:
        for batch in self.batches():
            yield from batch.predictions()

    def __repr__(self) -> str:
        return f"<Predictions {str(self.path)!r}: {len(self)} rows, model {self.model!r}, source {self.source!r}>"

    @property
    def schema_version(self) -> int:
        """The newest schema version among the parts."""
        return max(part.version for part in self.parts)

    @property
    def source(self) -> str | None:
        """The address of the data the model was asked about, where the file names it."""
        return next((part.source for part in self.parts if part.source is not None), None)

    @property
    def model(self) -> str | None:
        """The model's name, where the file gives it."""
        return next((part.model for part in self.parts if part.model is not None), None)

    @property
    def runs(self) -> tuple[Mapping[str, object], ...]:
        """What is noted of the runs that wrote the parts, each different note once."""
        runs: list[Mapping[str, object]] = []
        for part in self.parts:
            if part.run is not None and part.run not in runs:
                runs.append(part.run)
        return tuple(runs)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions asked under: ``none`` first, the others by name."""
        return tuple(sorted(self.rows_by_condition, key=lambda name: (name != "none", name)))

    @cached_property
    def rows_by_condition(self) -> Mapping[str, int]:
        """How many rows each condition has. Looks at all keys, and raises where one is flawed or comes twice."""
        table = _KeyTable(self.parts)
        _refuse_first(table.repetitions())
        return table.conditions

    def keys(self) -> Iterator[Key]:
        """Yield the key of every row, in the rows' order, reading nothing else."""
        _ = self.rows_by_condition
        for part in self.parts:
            yield from (key for _, key in read_keys(part))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, checked, some thousand small maps or some dozen large ones at a time."""
        _ = self.rows_by_condition
        for part in self.parts:
            for rows, columns in read_rows(part):
                batch = Batch(part.name, rows, columns)
                _refuse_first(_problem(batch, flaw) for flaw in find_flaws(columns))
                yield batch


def read_keys(part: Part, problems: list[Problem] | None = None) -> Iterator[tuple[int, Key]]:
    """Yield row number and key of every row; rows with a flawed key raise, or go to ``problems`` and are left out."""
    for rows, columns in read_rows(part, KEY_COLUMNS, problems):
        batch = Batch(part.name, rows, columns)
        flaws = list(find_key_flaws(columns))
        found = [_problem(batch, flaw) for flaw in flaws]
        if problems is None:
            _refuse_first(found)
        else:
            problems += found
        flawed = {flaw.row for flaw in flaws}
        for index, (row, key) in enumerate(zip(rows.tolist(), batch.keys, strict=True)):
            if index not in flawed:
                yield row, key


class _KeyTable:
    """16 bytes for each row's key and 8 for its place: ten million rows take 240 MB, however long their names."""

    def __init__(self, parts: list[Part] | tuple[Part, ...], problems: list[Problem] | None = None) -> None:
        self._parts = parts
        self._starts = list(accumulate((part.rows for part in parts), initial=0))
        self.conditions: dict[str, int] = {}
        digests, places = [], []
        for part, start in zip(parts, self._starts[:-1], strict=True):
            part_digests, rows = bytearray(), array("q")
            for row, key in read_keys(part, problems):
                part_digests += digest(*key)
                rows.append(row)
                self.conditions[key.condition] = self.conditions.get(key.condition, 0) + 1
            digests.append(np.frombuffer(bytes(part_digests), dtype=np.uint64).reshape(-1, 2))
            places.append(np.frombuffer(rows, dtype=np.int64) + start)
        self._digests: NDArray[np.uint64] = np.concatenate(digests) if digests else np.zeros((0, 2), np.uint64)
        self._places: NDArray[np.int64] = np.concatenate(places) if places else np.zeros(0, np.int64)

    def repetitions(self) -> Iterator[Problem]:
        """Yield every row whose key stands in an earlier row, with both places."""
        order = np.lexsort((self._digests[:, 1], self._digests[:, 0]))  # stable: equal keys stay in the rows' order
        ordered = self._digests[order]
        same = (
            np.concatenate([[False], (ordered[1:] == ordered[:-1]).all(axis=1)]) if len(ordered) else np.zeros(0, bool)
        )
        groups = np.flatnonzero(~same)  # where each run of equal keys begins
        again = np.flatnonzero(same)
        firsts = order[groups[np.searchsorted(groups, again, side="right") - 1]]
        pairs = sorted(zip(self._places[order[again]].tolist(), self._places[firsts].tolist(), strict=True))
        for part, start in zip(self._parts, self._starts[:-1], strict=True):
            first_of = {later - start: first for later, first in pairs if start <= later < start + part.rows}
            for row, key in read_keys(part, []) if first_of else ():
                if row in first_of:
                    first_part, first_row = self._place(first_of[row])
                    message = f"this key already stands in {first_part.name}, row {first_row}"
                    yield Problem(part.name, message, row=row, key=key)

    def _place(self, place: int) -> tuple[Part, int]:
        number = bisect_right(self._starts, place) - 1
        return self._parts[number], place - self._starts[number]


def _disagreements(parts: list[Part]) -> Iterator[Problem]:
    """Yield parts that name another model or source than an earlier part: one data set is one model on one source."""
    for what in ("model", "source"):
        named = [(part, getattr(part, what)) for part in parts if getattr(part, what) is not None]
        for part, name in named[1:]:
            if name != named[0][1]:
                message = f"names the {what} {name!r}, but {named[0][0].name} names {named[0][1]!r}"
                yield Problem(part.name, message)


def _problem(batch: Batch, flaw: Flaw) -> Problem:
    texts = [batch.columns.column(name)[flaw.row].as_py() for name in KEY_COLUMNS]
    row = int(batch.rows[flaw.row])
    return Problem(batch.part, flaw.message, row=row, column=flaw.column, key=Key(*texts))


def _refuse_first(problems: Iterator[Problem] | list[Problem]) -> None:
    for problem in problems:
        raise ProblemError(problem)
