"""Read and check predictions: footers first, then all keys, then the rows in batches."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.core.problem import Problem, ProblemError
from rightlung.predictions.batch import Batch
from rightlung.predictions.checks import Flaw, find_flaws, find_key_flaws
from rightlung.predictions.parts import Part, inspect_part, part_paths, read_rows
from rightlung.predictions.prediction import Key, Prediction, digest
from rightlung.predictions.schema import KEY_COLUMNS, SCHEMA

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 1 << 40  # of a part


def open_predictions(path: str | Path) -> Predictions:
    """Open a predictions file or a folder of parts. Only footers are read; values are checked when read."""
    path = Path(path)
    parts, problems = _inspected(part_paths(path))
    _refuse_first(problems)
    return Predictions(path, tuple(parts))


def check_predictions(path: str | Path) -> list[Problem]:
    """Return everything wrong with the predictions at ``path``, one `Problem` per row and column; empty if valid.

    Of several bad values in one field (cells of a map, boxes of a list), the first is named and the others are counted.
    """
    path = Path(path)
    try:
        files = part_paths(path)
    except InputError as error:
        return [Problem(path.name or str(path), str(error).removeprefix(f"{path}: "))]
    parts, problems = _inspected(files)
    for part in parts:
        for rows, columns in read_rows(part, problems=problems):
            batch = Batch(part.name, rows, columns)
            problems += [_problem(batch, flaw) for flaw in find_flaws(columns)]
    # Wrong keys and broken parts are listed above; only duplicates are left.
    return [*problems, *_look_at_keys(parts, [])[1]]


class Predictions:
    """Opened predictions. Iterating yields `Prediction` values, `batches` yields arrays; neither loads all rows.

    All values are checked when read, and duplicate keys beforehand.
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
        """The address of the source, if the file names it."""
        return next((part.source for part in self.parts if part.source is not None), None)

    @property
    def model(self) -> str | None:
        """The name of the model, if the file names it."""
        return next((part.model for part in self.parts if part.model is not None), None)

    @property
    def runs(self) -> tuple[Mapping[str, object], ...]:
        """The different notes on the runs that wrote the parts."""
        runs: list[Mapping[str, object]] = []
        for part in self.parts:
            if part.run is not None and part.run not in runs:
                runs.append(part.run)
        return tuple(runs)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions: ``none`` first, the others by name."""
        return tuple(sorted(self.rows_by_condition, key=lambda name: (name != "none", name)))

    @cached_property
    def rows_by_condition(self) -> Mapping[str, int]:
        """The number of rows of each condition. Reads all keys; wrong or duplicate keys are errors."""
        conditions, repetitions = _look_at_keys(self.parts)
        _refuse_first(repetitions)
        return conditions

    def keys(self) -> Iterator[Key]:
        """Yield the key of every row, in order."""
        _ = self.rows_by_condition
        for part in self.parts:
            yield from (key for _, key in read_keys(part))

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, checked, in batches of limited size."""
        _ = self.rows_by_condition
        for part in self.parts:
            yield from read_batches(part)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as one data frame with the columns of the file, checked; maps and boxes stay lists.

        It holds everything in memory: go through `batches` where that is too much.
        """
        return pa.Table.from_batches([batch.columns for batch in self.batches()], SCHEMA).to_pandas()


def read_batches(part: Part, only: NDArray[np.int64] | None = None) -> Iterator[Batch]:
    """Yield the rows of a part, or ``only`` some of them, checked; nothing is known of duplicate keys."""
    for rows, columns in read_rows(part, only=only):
        batch = Batch(part.name, rows, columns)
        _refuse_first(_problem(batch, flaw) for flaw in find_flaws(columns))
        yield batch


def read_keys(part: Part, problems: list[Problem] | None = None) -> Iterator[tuple[int, Key]]:
    """Yield number and key of every row; rows with a wrong key raise, or go to ``problems`` and are left out."""
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


def _look_at_keys(
    parts: Sequence[Part], problems: list[Problem] | None = None
) -> tuple[dict[str, int], Iterator[Problem]]:
    """Return the number of rows of each condition, and every row whose key is a duplicate.

    Takes 24 bytes per row.
    """
    conditions: Counter[str] = Counter()
    digests, places = bytearray(), array("q")
    for number, part in enumerate(parts):
        for row, key in read_keys(part, problems):
            digests += digest(*key)
            places.append(number * _MOST_ROWS + row)
            conditions[key.condition] += 1
    return dict(conditions), _repetitions(parts, bytes(digests), places)


def _repetitions(parts: Sequence[Part], digests: bytes, places: array[int]) -> Iterator[Problem]:
    import pandas as pd

    keys = pd.DataFrame(np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2), index=np.asarray(places))
    doubled = keys[keys.duplicated(keep=False)]
    first_of = {int(place): same.min() for same in doubled.groupby([0, 1]).groups.values() for place in same}
    for number in sorted({place // _MOST_ROWS for place in first_of}):
        for row, key in read_keys(parts[number], []):
            place = number * _MOST_ROWS + row
            if first_of.get(place, place) != place:
                first_part, first_row = divmod(int(first_of[place]), _MOST_ROWS)
                message = f"duplicate of the key in {parts[first_part].name}, row {first_row}"
                yield Problem(parts[number].name, message, row=row, key=key)


def _inspected(files: Iterable[Path]) -> tuple[list[Part], list[Problem]]:
    """Read the footers of all parts; different models or sources are problems."""
    inspected = [inspect_part(file) for file in files]
    parts = [part for part, _ in inspected if part is not None]
    problems = [problem for _, found in inspected for problem in found]
    for what in ("model", "source"):
        named = [(part, getattr(part, what)) for part in parts if getattr(part, what) is not None]
        for part, name in named[1:]:
            if name != named[0][1]:
                message = f"names the {what} {name!r}, but {named[0][0].name} names {named[0][1]!r}"
                problems.append(Problem(part.name, message))
    return parts, problems


def _problem(batch: Batch, flaw: Flaw) -> Problem:
    texts = [batch.columns.column(name)[flaw.row].as_py() for name in KEY_COLUMNS]
    row = int(batch.rows[flaw.row])
    return Problem(batch.part, flaw.message, row=row, column=flaw.column, key=Key(*texts))


def _refuse_first(problems: Iterable[Problem]) -> None:
    for problem in problems:
        raise ProblemError(problem)
