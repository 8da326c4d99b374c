"""What can be wrong with the values of a row: found for a whole batch at once, then put into words for the rows found.

The rules are those of the core's types (`Box`, `Extent`, `Heatmap`), and the words are theirs wherever they have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rightlung.core import Box, Extent, InputError
from rightlung.predictions.prediction import PHRASE_QUERY, check_query_name
from rightlung.predictions.schema import ANSWER_COLUMNS, EMBEDDING_COLUMNS, KEY_COLUMNS, unnest


class Flaw(NamedTuple):
    """Something wrong at a row of a batch."""

    row: int
    column: str
    message: str


def find_flaws(columns: Any) -> list[Flaw]:
    """Return everything wrong in a record batch of the schema's columns, in the order of the rows."""
    checks = (
        find_key_flaws, _asked, _grid, _map_values, _extents, _abstentions, _scored_boxes, _similarities, _sentences,
        _finding_scores, _reports, _embeddings, _answered,
    )  # fmt: skip
    flaws = [flaw for check in checks for flaw in check(columns)]
    return sorted(flaws, key=lambda flaw: flaw.row)


def find_key_flaws(columns: Any) -> Iterator[Flaw]:
    """Yield keys that are null, blank or, for a phrase's query, without an index."""
    for name in KEY_COLUMNS:
        column = columns.column(name)
        for row in _where(column.is_null()):
            yield Flaw(row, name, "null, but every row needs a text here")
        for row in _where(_blank(column)):
            yield Flaw(row, name, "empty, but every row needs a text here")
    queries = columns.column("query")
    indexed = pc.match_substring_regex(queries, f"^{PHRASE_QUERY.pattern}$")
    for row in _where(pc.and_not(pc.starts_with(queries, "phrase:"), indexed)):
        message = _refusal(check_query_name, queries[row].as_py())
        if message:
            yield Flaw(row, "query", message)


def _asked(columns: Any) -> Iterator[Flaw]:
    for row in _where(_blank(columns.column("phrase"))):
        yield Flaw(row, "phrase", "empty; where no phrase was asked it must be null")
    yield from _rectangles(columns.column("box"), "box", _bad_boxes, Box.from_sequence)


def _grid(columns: Any) -> Iterator[Flaw]:
    rows, cols = (_numbers(columns.column(name)) for name in ("map_rows", "map_cols"))
    maps = columns.column("map")
    given = ~_mask(maps.is_null())
    for name, count, other in (("map_rows", rows, cols), ("map_cols", cols, rows)):
        for row in _rows(np.isnan(count) & (given | ~np.isnan(other))):
            yield Flaw(row, name, "null, but a map needs both map_rows and map_cols")
        for row in _rows(count < 1):
            yield Flaw(row, name, f"must be at least 1; got {int(count[row])}")
    lengths = _numbers(pc.list_value_length(maps))
    whole = (rows >= 1) & (cols >= 1)
    for row in _rows(given & whole & (rows * cols != lengths)):
        message = f"{int(lengths[row])} values, but map_rows × map_cols = {int(rows[row])} × {int(cols[row])}"
        yield Flaw(row, "map", f"{message} = {int(rows[row]) * int(cols[row])}")


def _map_values(columns: Any) -> Iterator[Flaw]:
    offsets, values = unnest(columns.column("map"))
    cells = values.to_numpy(zero_copy_only=False)
    # Two passes without a temporary array; a NaN makes both comparisons false.
    if not len(cells) or (values.null_count == 0 and cells.min() >= 0 and cells.max() < np.inf):
        return
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(np.isfinite(cells) & (cells >= 0)))
    for row, first, count in _by_row(offsets, bad):
        value = values[int(offsets[row]) + first].as_py()
        more = f" (and {count - 1} more cells)" if count > 1 else ""
        yield Flaw(row, "map", f"value {_shown(value)} at cell {first}{more} must be finite and non-negative")


def _extents(columns: Any) -> Iterator[Flaw]:
    yield from _rectangles(columns.column("extent"), "extent", _bad_extents, _extent)


def _abstentions(columns: Any) -> Iterator[Flaw]:
    column = columns.column("abstention")
    for row in _rows(_given(column) & ~((_numbers(column) >= 0) & (_numbers(column) <= 1))):
        yield Flaw(row, "abstention", f"must lie between 0 and 1; got {column[row].as_py()}")
    for row in _rows(_given(column) & _mask(columns.column("map").is_null())):
        yield Flaw(
            row, "abstention", "given without a map; a model that draws none and finds nothing writes boxes = []"
        )


def _scored_boxes(columns: Any) -> Iterator[Flaw]:
    offsets, boxes = unnest(columns.column("boxes"))
    corners = np.stack([_numbers(boxes.field(name)) for name in ("x0", "y0", "x1", "y1")], axis=1)
    scores = _numbers(boxes.field("score"))
    bad = np.flatnonzero(_mask(boxes.is_null()) | _bad_boxes(corners) | ~np.isfinite(scores))
    for row, first, count in _by_row(offsets, bad):
        box = boxes[int(offsets[row]) + first].as_py()
        if box is None:
            message = "null"
        else:
            message = _refusal(Box, *(box[corner] for corner in ("x0", "y0", "x1", "y1"))) or (
                f"score must be a finite number; got {_shown(box['score'])}"
            )
        yield Flaw(row, "boxes", _item("box", first, count, message))


def _similarities(columns: Any) -> Iterator[Flaw]:
    for name in ("similarity_global", "similarity_local"):
        column = columns.column(name)
        for row in _rows(_given(column) & ~np.isfinite(_numbers(column))):
            yield Flaw(row, name, f"must be finite; got {column[row].as_py()}")


def _sentences(columns: Any) -> Iterator[Flaw]:
    offsets, sentences = unnest(columns.column("sentences"))
    text, score = sentences.field("text"), sentences.field("score")
    null = _mask(sentences.is_null())
    silent = _mask(text.is_null()) | _mask(_blank(text))
    unsure = _given(score) & ~np.isfinite(_numbers(score))
    misplaced = {flaw.row: flaw.message for flaw in _sentence_boxes(sentences)}
    bad = np.flatnonzero(null | silent | unsure | np.isin(np.arange(len(sentences)), list(misplaced)))
    for row, first, count in _by_row(offsets, bad):
        index = int(offsets[row]) + first
        if null[index]:
            message = "null"
        elif silent[index]:
            message = "text must have at least one character"
        elif unsure[index]:
            message = f"score must be finite; got {_shown(score[index].as_py())}"
        else:
            message = misplaced[index]
        yield Flaw(row, "sentences", _item("sentence", first, count, message))


def _sentence_boxes(sentences: Any) -> Iterator[Flaw]:
    offsets, boxes = unnest(sentences.field("boxes"))
    bad = {flaw.row: flaw.message for flaw in _rectangles(boxes, "boxes", _bad_boxes, Box.from_sequence)}
    bad.update(dict.fromkeys(_where(boxes.is_null()), "null"))
    for row, first, count in _by_row(offsets, np.array(sorted(bad), dtype=np.int64)):
        yield Flaw(row, "boxes", _item("box", first, count, bad[int(offsets[row]) + first]))


def _finding_scores(columns: Any) -> Iterator[Flaw]:
    offsets, items = unnest(columns.column("finding_scores"))
    finding, scores = items.field("finding"), _numbers(items.field("score"))
    unnamed = _mask(items.is_null()) | _mask(finding.is_null()) | _mask(_blank(finding))
    bad = np.flatnonzero(unnamed | ~np.isfinite(scores))
    for row, first, count in _by_row(offsets, bad):
        index = int(offsets[row]) + first
        fault = "finding must be a text" if unnamed[index] else f"score must be finite; got {_shown(scores[index])}"
        yield Flaw(row, "finding_scores", _item("item", first, count, fault))
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    counted = pa.table({"row": rows, "finding": finding}).group_by(["row", "finding"]).aggregate([([], "count_all")])
    for repeated in counted.filter(pc.greater(counted["count_all"], 1)).to_pylist():
        if repeated["finding"] is not None:
            message = f"finding {repeated['finding']!r} appears {repeated['count_all']} times"
            yield Flaw(repeated["row"], "finding_scores", message)


def _reports(columns: Any) -> Iterator[Flaw]:
    for row in _where(_blank(columns.column("report"))):
        yield Flaw(row, "report", "empty; where no report was written it must be null")


def _embeddings(columns: Any) -> Iterator[Flaw]:
    for name in EMBEDDING_COLUMNS:
        for row in _where(pc.equal(pc.list_value_length(columns.column(name)), 0)):
            yield Flaw(row, name, "empty; where there is no embedding it must be null")
        offsets, values = unnest(columns.column(name))
        bad = np.flatnonzero(~np.isfinite(_numbers(values)))
        for row, first, count in _by_row(offsets, bad):
            fault = f"must be finite; got {_shown(values[int(offsets[row]) + first].as_py())}"
            yield Flaw(row, name, _item("value", first, count, fault))


def _answered(columns: Any) -> Iterator[Flaw]:
    error = columns.column("error")
    answered = np.any([_given(columns.column(name)) for name in ANSWER_COLUMNS], axis=0)
    for row in _where(_blank(error)):
        yield Flaw(row, "error", "empty; where there is none it must be null")
    for row in _rows(answered & _given(error)):
        given = next(name for name in ANSWER_COLUMNS if columns.column(name)[row].is_valid)
        yield Flaw(row, "error", f"a row with an error holds no answer, but {given} is given")
    for row in _rows(~answered & ~_given(error)):
        yield Flaw(row, "error", "null, but the row holds no answer: say why there is none")


def _rectangles(
    column: Any,
    name: str,
    is_bad: Callable[[NDArray[np.float64]], NDArray[np.bool_]],
    build: Callable[[Any], object],
) -> Iterator[Flaw]:
    """Yield rows of ``column`` (lists of four numbers, or null) that ``is_bad`` finds, in ``build``'s own words."""
    lengths = _numbers(pc.list_value_length(column))
    four = np.flatnonzero(lengths == 4)
    corners = _numbers(column.take(pa.array(four, pa.int64())).flatten()).reshape(-1, 4)
    bad = np.concatenate([np.flatnonzero(~np.isnan(lengths) & (lengths != 4)), four[is_bad(corners)]])
    for row in sorted(bad.tolist()):
        values = column[row].as_py()
        yield Flaw(row, name, _refusal(build, values) or f"unusable: {values}")


def _bad_boxes(corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    x0, y0, x1, y1 = corners.T
    with np.errstate(invalid="ignore", over="ignore"):
        inside = (x0 >= 0) & (y0 >= 0) & (x1 <= 1) & (y1 <= 1)
        return np.asarray(~(inside & (x0 < x1) & (y0 < y1) & ((x1 - x0) * (y1 - y0) > 0)))


def _bad_extents(corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    x0, y0, x1, y1 = corners.T
    return np.asarray(~(np.isfinite(corners).all(axis=1) & (x0 < x1) & (y0 < y1)))


def _extent(values: list[float]) -> Extent:
    if len(values) != 4:
        raise InputError(f"an extent must have four numbers [x0, y0, x1, y1]; got {values!r}")
    return Extent(*values)


def _refusal(build: Callable[..., object], *values: object) -> str | None:
    try:
        build(*values)
    except InputError as error:
        return str(error)
    return None


def _item(kind: str, index: int, count: int, message: str) -> str:
    return f"{kind} {index}: {message}" + (f" (and {count - 1} more)" if count > 1 else "")


def _shown(value: object) -> str:
    return "null" if value is None else str(value)


def _by_row(offsets: NDArray[np.int64], items: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield ``(row, first item's index within the row, number of items)`` for items given by their place end to end."""
    rows, firsts, counts = np.unique(
        np.searchsorted(offsets, items, side="right") - 1, return_index=True, return_counts=True
    )
    for row, first, count in zip(rows, firsts, counts, strict=True):
        yield int(row), int(items[first] - offsets[row]), int(count)


def _blank(column: Any) -> Any:
    return pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0)


def _mask(condition: Any) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(condition, False).to_numpy(zero_copy_only=False), dtype=bool)


def _given(column: Any) -> NDArray[np.bool_]:
    return ~_mask(column.is_null())


def _where(condition: Any) -> list[int]:
    return _rows(_mask(condition))


def _rows(mask: NDArray[np.bool_]) -> list[int]:
    return [int(row) for row in np.flatnonzero(mask)]


def _numbers(column: Any) -> NDArray[np.float64]:
    """Return a column of numbers with NaN for null."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
