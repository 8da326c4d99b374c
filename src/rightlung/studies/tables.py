"""CSV tables of data sets, plain or compressed, read row by row in bounded memory.

Published tables have been edited in spreadsheets: byte-order marks, CRLF, blanks around column names, unclosed quotes.
A row that cannot be read is skipped and listed with file, line and column. A fault of the whole table (a missing
column, truncated compressed data) is an `InputError`.

In most readers an unclosed quote would swallow the rest of the table. Here a record may span several lines only if its
quotes close, it has as many cells as the header, and not every line in it is a valid row by itself; otherwise its first
line is the bad row, and reading continues with the second.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rightlung.core import Box, InputError
from rightlung.core.checks import Size
from rightlung.core.errors import BoxFormError, EmptyBoxError, unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.files import shown
from rightlung.studies.lines import MAX_LINE_BYTES, Lines, opened_table

MAX_RECORD_LINES = 500
"""The most lines of one quoted record."""
MAX_LISTED = 1000
"""The most bad rows of one table that are listed; the rest is counted."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_BOX_COLUMN = re.compile(r"(?:bbox ?)?\[?[xywh](?:_?(?:min|max|[0-2]))?\]?|[xy](?:min|max)|width|height", re.IGNORECASE)
_NOT_A_NUMBER = frozenset({"", "nan", "na", "n/a", "none", "null"})

Value = TypeVar("Value")


class TableRow:
    """One row: its cells by column name, each checked on access. Errors name file, line and column."""

    __slots__ = ("_cells", "_table", "line")

    def __init__(self, table: CsvTable, line: int, cells: list[str]) -> None:
        self._table = table
        self._cells = cells
        self.line = line
        """The line on which the row begins; the table's first line is 1."""

    @property
    def file(self) -> str:
        """The table's name, as problems give it."""
        return self._table.name

    def error(self, column: str | None, message: str, kind: str | None = None) -> ProblemError:
        """Return the error for a fault of this row; ``kind`` is the matching check, if known."""
        return ProblemError(Problem(self._table.name, message, self.line, column, kind))

    def text(self, column: str) -> str:
        """Return a stripped cell; empty if the table has no such column."""
        place = self._table.places.get(column)
        return "" if place is None else self._cells[place].strip()

    def texts(self, columns: Iterable[str]) -> list[str]:
        """Return several cells like `text`."""
        places, cells = self._table.places, self._cells
        return [cells[place].strip() if (place := places.get(column)) is not None else "" for column in columns]

    def required(self, column: str) -> str:
        """Return a cell that must not be empty."""
        text = self.text(column)
        if not text:
            raise self.error(column, "is empty; every row must have it")
        return text

    def identifier(self, column: str) -> str:
        """Return a cell that can be part of a file name: no slash, no dots at its start."""
        text = self.required(column)
        if not _IDENTIFIER.fullmatch(text) or ".." in text:
            raise self.error(column, f"must be letters, digits, '-', '_' and '.'; got {shown(text)}")
        return text

    def number(self, column: str, low: float | None = None, high: float | None = None) -> float | None:
        """Return a cell as a finite number from ``low`` to ``high``; None if it is empty."""
        text = self.text(column)
        if text.casefold() in _NOT_A_NUMBER:
            return None
        try:
            number = float(text)
        except ValueError:
            raise self.error(column, f"must be a number; got {shown(text)}", _kind(column, "box-form")) from None
        if not abs(number) < float("inf"):
            raise self.error(column, f"must be finite; got {shown(text)}", _kind(column, "box-form"))
        if (low is not None and number < low) or (high is not None and number > high):
            given = ("at least", low), ("at most", high)
            limits = [f"{word} {limit:g}" for word, limit in given if limit is not None]
            message = f"must be {' and '.join(limits)}; got {shown(text)}"
            raise self.error(column, message, _kind(column, "box-range"))
        return number

    def required_number(self, column: str, low: float | None = None, high: float | None = None) -> float:
        """Return a cell as a number; it must not be empty."""
        number = self.number(column, low, high)
        if number is None:
            raise self.error(column, "must be a number, but is empty", _kind(column, "box-form"))
        return number

    def whole(self, column: str, low: float | None = None, high: float | None = None) -> int | None:
        """Return a cell as an integer (``3`` or ``3.0``); None if it is empty."""
        text = self.text(column)
        if text.isdecimal() and low is None and high is None:
            return int(text)  # fast for most cells of most tables, and exact where a float is not
        number = self.number(column, low, high)
        if number is None:
            return None
        if number != int(number):
            raise self.error(column, f"must be an integer; got {shown(text)}", _kind(column, "box-form"))
        return int(text) if text.lstrip("+-").isdecimal() else int(number)

    def choice(self, column: str, known: Iterable[str]) -> str | None:
        """Return a cell that must be one of ``known``; None if it is empty."""
        text = self.text(column)
        if not text:
            return None
        names = list(known)
        if text not in names:
            raise self.error(column, str(unknown_name("value", text, names)), "label-value")
        return text


def box_kind(error: InputError) -> str:
    """Return the check for an invalid box."""
    if isinstance(error, BoxFormError):
        return "box-form"
    return "box-size" if isinstance(error, EmptyBoxError) else "box-range"


def _kind(column: str, of_boxes: str) -> str:
    """Return the check for a cell that is not a valid number."""
    return of_boxes if _BOX_COLUMN.fullmatch(column) else "label-value"


def pixel_box(edges: Sequence[float], size: Size) -> Box:
    """Return the box with pixel edges ``(x0, y0, x1, y1)``.

    Edges up to 2 pixels or 1 % of the side outside the image, as from rounding, are clipped.
    """
    inside = []
    for edge, side in zip(edges, (size[1], size[0], size[1], size[0]), strict=True):
        slack = max(2.0, 0.01 * side)
        inside.append(min(max(edge, 0.0), float(side)) if -slack <= edge <= side + slack else edge)
    try:
        return Box.from_pixels(inside, size)
    except InputError:
        x0, y0, x1, y1 = edges
        height, width = size
        is_inside = min(edges) >= 0 and x1 <= width and y1 <= height
        what, kind = ("has no area", EmptyBoxError) if is_inside else ("leaves the image", InputError)
        raise kind(
            f"box ({x0:g}, {y0:g}, {x1:g}, {y1:g}) {what}, which is {width} pixels wide and {height} high"
        ) from None


class CsvTable:
    """A table that can be read repeatedly, a row at a time. See the head of this module for what it tolerates.

    ``problems`` collects skipped rows. The table's name in messages is relative to ``root``. ``aliases`` maps column
    names in the file to the names used in code.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        required: Iterable[str] = (),
        *,
        problems: list[Problem],
        root: str | os.PathLike[str] | None = None,
        aliases: Mapping[str, str] | None = None,
        delimiter: str = ",",
    ) -> None:
        self.path = Path(path)
        self.problems = problems
        self.name = _relative(self.path, root)
        self.rows_bad = 0
        self._delimiter = delimiter
        self.columns = self._read_header(dict(aliases or {}))
        self.places: Mapping[str, int] = {column: place for place, column in enumerate(self.columns) if column}
        for column in required:
            if column not in self.places:
                message = str(unknown_name("column", column, self.places)).removeprefix("unknown ")
                raise InputError(f"{self.path} has no {message.replace('Known:', 'It has:')}")

    def __iter__(self) -> Iterator[TableRow]:
        """Yield the rows that can be read."""
        count = len(self.columns)
        self.rows_bad = 0
        for line, cells, fault in islice(self._records(count), 1, None):
            if fault is None and len(cells) != count:
                # Extra empty cells are harmless; an extra or missing cell has shifted the others.
                if len(cells) > count and not any(cell.strip() for cell in cells[count:]):
                    del cells[count:]
                else:
                    fault = f"has {len(cells)} cells, but the header has {count}"
            if fault is not None:
                self.skip(Problem(self.name, f"the row {fault}", line))
                continue
            yield TableRow(self, line, cells)
        if self.rows_bad > MAX_LISTED:
            message = f"{self.rows_bad - MAX_LISTED:,} more rows have problems, not listed"
            self.problems.append(Problem(self.name, message))

    def read(self, parse: Callable[[TableRow], Value | None]) -> Iterator[Value]:
        """Yield what ``parse`` returns for each row; a row for which it raises `ProblemError` is listed and skipped."""
        for row in self:
            try:
                value = parse(row)
            except ProblemError as error:
                self.skip(error.problem)
                continue
            if value is not None:
                yield value

    def skip(self, problem: Problem) -> None:
        """List a skipped row."""
        self.rows_bad += 1
        if self.rows_bad <= MAX_LISTED:
            self.problems.append(problem)

    def _read_header(self, aliases: Mapping[str, str]) -> tuple[str, ...]:
        for line, cells, fault in self._records():
            if fault is not None:
                raise InputError(f"{self.path}, line {line}: the header {fault}")
            names = [aliases.get(cell.strip(), cell.strip()) for cell in cells]
            while names and not names[-1]:
                names.pop()
            for name in names:
                # Tables written with row numbers begin with an unnamed column.
                if name and names.count(name) > 1:
                    raise InputError(f"{self.path} has column {name!r} twice")
            if not any(names):
                break
            return tuple(names)
        raise InputError(f"{self.path} is empty: it has no header")

    def _records(self, count: int | None = None) -> Iterator[tuple[int, list[str], str | None]]:
        """Yield line number, cells, and the fault, if any, of the header and all rows, which have ``count`` cells."""
        with opened_table(self.path) as file:
            lines = Lines(file, self.path)
            expected = None  # the header may have any number of cells
            while (taken := lines.take()) is not None:
                line, text, fault = taken
                if fault is None and not text.strip():
                    continue
                cells = text.split(self._delimiter)
                if fault is None and '"' in text:
                    cells, fault = self._quoted(lines, text, expected)
                yield line, cells, fault
                expected = count

    def _quoted(self, lines: Lines, first: str, count: int | None) -> tuple[list[str], str | None]:
        """Return the cells of a record with quotes, which may span further lines."""
        cells, open_quote = self._parse(first)
        if cells is not None:
            return cells, None
        if not open_quote:
            return [], "has a quote that closes in the middle of a cell"
        parts = [first]
        taken: list[tuple[int, str, str | None]] = []
        while len(taken) < MAX_RECORD_LINES and (following := lines.take()) is not None:
            taken.append(following)
            _, text, fault = following
            if fault is not None:
                break
            parts.append(text)
            # Only an odd number of quotes can close the cell; parsing at every line would take too long.
            if text.count('"') % 2 == 0:
                continue
            cells, open_quote = self._parse("\n".join(parts))
            if open_quote:
                continue
            rows_themselves = (count or 0) > 2 and all(one.count(self._delimiter) + 1 == count for one in parts[1:])
            if cells is None or rows_themselves or count not in (None, len(cells)):
                break
            return cells, None
        lines.put_back(taken)
        return [], "has an unclosed quote"

    def _parse(self, text: str) -> tuple[list[str] | None, bool]:
        """Return the cells of one record (None if they are ambiguous), and whether a quote is still open."""
        try:
            records = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return None, "unexpected end" in str(error)  # the csv module has one type for all errors
        return (records[0], False) if len(records) == 1 else (None, False)


# The standard library rejects cells of more than 128 KiB, which run-length masks and whole reports can have.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


def _relative(path: Path, root: str | os.PathLike[str] | None) -> str:
    try:
        return path.relative_to(root).as_posix() if root is not None else str(path)
    except ValueError:
        return str(path)
