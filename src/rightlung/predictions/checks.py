"""Checks of the values of a row. Maps and embeddings are checked as arrays, everything else value by value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core import Box, Extent, InputError
from rightlung.predictions.prediction import check_query_name
from rightlung.predictions.schema import ANSWER_COLUMNS, EMBEDDING_COLUMNS, KEY_COLUMNS, unnest

Fault = Callable[[Any], str | None]
"""From a value to what is wrong with it, or None."""


class Flaw(NamedTuple):
    """A wrong value in a row of a batch."""

    row: int
    column: str
    message: str


def find_flaws(columns: Any) -> list[Flaw]:
    """Return everything wrong in a record batch, in the order of its rows."""
    flaws = [*find_key_flaws(columns), *_grids(columns), *_cells(columns)]
    for name, fault in _FAULTS.items():
        column = columns.column(name)
        for row, value in enumerate(column.to_pylist() if column.null_count < len(column) else ()):
            if value is not None and (message := fault(value)) is not None:
                flaws.append(Flaw(row, name, message))
    for name in EMBEDDING_COLUMNS:
        column = columns.column(name)
        for row in np.flatnonzero(pc.equal(pc.list_value_length(column), 0).fill_null(False)).tolist():
            flaws.append(Flaw(row, name, "empty; write null if there is no embedding"))
        for row in _rows_with(column, np.isfinite):
            flaws.append(Flaw(row, name, str(_first_of("value", column[row].as_py(), _number))))
    return sorted([*flaws, *_answers(columns)], key=lambda flaw: flaw.row)


def find_key_flaws(columns: Any) -> Iterator[Flaw]:
    """Yield keys that are null or blank, and phrase queries without an index."""
    for name in KEY_COLUMNS:
        for row, text in enumerate(columns.column(name).to_pylist()):
            if text is None or not text.strip():
                yield Flaw(row, name, f"{'null' if text is None else 'empty'}; every row needs a text here")
            elif name == "query" and (message := _refusal(check_query_name, text)) is not None:
                yield Flaw(row, name, message)


def _grids(columns: Any) -> Iterator[Flaw]:
    lengths = pc.list_value_length(columns.column("map")).to_pylist()
    counts = (columns.column(name).to_pylist() for name in ("map_rows", "map_cols"))
    for row, (length, rows, cols) in enumerate(zip(lengths, *counts, strict=True)):
        if length is rows is cols is None:
            continue
        for name, count in (("map_rows", rows), ("map_cols", cols)):
            if count is None:
                yield Flaw(row, name, "null; a map needs both map_rows and map_cols")
            elif count < 1:
                yield Flaw(row, name, f"must be at least 1; got {count}")
        if length is not None and min(rows or 0, cols or 0) >= 1 and rows * cols != length:
            message = f"{length} values, but map_rows × map_cols = {rows} × {cols} = {rows * cols}"
            yield Flaw(row, "map", message)


def _cells(columns: Any) -> Iterator[Flaw]:
    column = columns.column("map")
    values = column.flatten()
    cells = values.to_numpy(zero_copy_only=False)
    # Two passes without a temporary array; a NaN makes both comparisons false.
    if not len(cells) or (values.null_count == 0 and cells.min() >= 0 and cells.max() < np.inf):
        return
    for row in _rows_with(column, lambda cells: np.isfinite(cells) & (cells >= 0)):
        faulty = [
            (cell, value)
            for cell, value in enumerate(column[row].as_py())
            if value is None or not 0 <= value < math.inf
        ]
        (cell, value), more = faulty[0], f" (and {len(faulty) - 1} more cells)" if len(faulty) > 1 else ""
        yield Flaw(row, "map", f"value {_shown(value)} at cell {cell}{more} must be finite and non-negative")


def _answers(columns: Any) -> Iterator[Flaw]:
    given = {name: columns.column(name).is_valid().to_numpy(zero_copy_only=False) for name in columns.schema.names}
    answered = np.any([given[name] for name in ANSWER_COLUMNS], axis=0)
    for row in np.flatnonzero(answered & given["error"]).tolist():
        which = next(name for name in ANSWER_COLUMNS if given[name][row])
        yield Flaw(row, "error", f"a row with an error must hold no answer, but {which} is given")
    for row in np.flatnonzero(~answered & ~given["error"]).tolist():
        yield Flaw(row, "error", "null, but the row holds no answer; write why there is none")
    for row in np.flatnonzero(given["abstention"] & ~given["map"]).tolist():
        message = "given without a map; for a model without maps that finds nothing, write boxes = []"
        yield Flaw(row, "abstention", message)


def _rows_with(column: Any, is_good: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> list[int]:
    """Return the rows of a list column that hold a bad value."""
    offsets, values = unnest(column)
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~is_good(values.to_numpy(zero_copy_only=False)))
    found: list[int] = np.unique(np.searchsorted(offsets, bad, side="right") - 1).tolist()
    return found


def _text(where_none: str) -> Fault:
    return lambda text: None if text.strip() else f"empty; write null if {where_none}"


def _number(value: float | None) -> str | None:
    return None if value is not None and math.isfinite(value) else f"must be finite; got {_shown(value)}"


def _share(value: float) -> str | None:
    return None if 0 <= value <= 1 else f"must lie between 0 and 1; got {value}"


def _extent(values: Sequence[float]) -> str | None:
    if len(values) != 4:
        return f"an extent must have four numbers [x0, y0, x1, y1]; got {values!r}"
    return _refusal(Extent, *values)


def _box(corners: Sequence[float | None] | None) -> str | None:
    if corners is None:
        return "null"
    if len(corners) == 4 and None not in corners:
        x0, y0, x1, y1 = corners
        if 0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1 and (x1 - x0) * (y1 - y0) > 0:  # type: ignore[operator]
            return None
    refusal = _refusal(Box.from_sequence, corners)
    in_pixels = max((one for one in corners if isinstance(one, int | float)), default=0.0) > 1.5
    return f"{refusal}; it looks like pixels or a scale of 0–1000" if refusal and in_pixels else refusal


def _scored_box(box: dict[str, Any] | None) -> str | None:
    if box is None:
        return "null"
    refusal = _box([box[corner] for corner in ("x0", "y0", "x1", "y1")])
    if refusal is None and _number(box["score"]) is not None:
        return f"score must be a finite number; got {_shown(box['score'])}"
    return refusal


def _sentence(sentence: dict[str, Any] | None) -> str | None:
    if sentence is None:
        return "null"
    if not (sentence["text"] or "").strip():
        return "text must have at least one character"
    if sentence["score"] is not None and (fault := _number(sentence["score"])) is not None:
        return f"score {fault}"
    return _first_of("box", sentence["boxes"] or (), _box)


def _finding_score(item: dict[str, Any] | None) -> str | None:
    if item is None or not (item["finding"] or "").strip():
        return "finding must be a text"
    fault = _number(math.nan if item["score"] is None else item["score"])
    return None if fault is None else f"score {fault}"


def _finding_scores(items: Sequence[dict[str, Any] | None]) -> str | None:
    names = [item["finding"] for item in items if item is not None]
    if (fault := _first_of("item", items, _finding_score)) is not None or len(set(names)) == len(names):
        return fault
    twice = next(name for name in names if names.count(name) > 1)
    return f"finding {twice!r} appears {names.count(twice)} times"


_FAULTS: dict[str, Fault] = {
    "phrase": _text("no phrase was asked"),
    "box": _box,
    "extent": _extent,
    "abstention": _share,
    "boxes": lambda boxes: _first_of("box", boxes, _scored_box),
    "similarity_global": _number,
    "similarity_local": _number,
    "sentences": lambda sentences: _first_of("sentence", sentences, _sentence),
    "finding_scores": _finding_scores,
    "report": _text("no report was written"),
    "error": _text("there is none"),
}


def _first_of(kind: str, items: Sequence[Any], fault: Fault) -> str | None:
    """Return what is wrong with the first faulty item, and the number of further ones."""
    faults = [(index, message) for index, item in enumerate(items) if (message := fault(item)) is not None]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{kind} {faults[0][0]}: {faults[0][1]}{more}" if faults else None


def _refusal(build: Callable[..., object], *values: object) -> str | None:
    try:
        build(*values)
    except InputError as error:
        return str(error)
    return None


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
