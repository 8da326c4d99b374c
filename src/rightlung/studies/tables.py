"""Tables that data sets come with: CSV, plain or compressed, read row by row in bounded memory.

Published tables have been through spreadsheets: byte-order marks, CRLF, blanks around column names, a quote that nobody
closed. A row that cannot be read is left out, counted and named by file, line and column; the million others go on.
What is wrong with the table as a whole (no such column, compressed data that breaks off) is an `InputError`.

A quote that is opened and not closed would swallow the rest of the table in most readers. Here a record may run over
several lines only if its quotes close and it has as many cells as the header, and not if every line it swallowed is a
row by itself; else its first line is the bad row, and reading goes on at the second.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rightlung.core import Box, InputError
from rightlung.core.checks import Size
from rightlung.core.errors import BoxFormError, EmptyBoxError, unknown_name
from rightlung.core.problem import Problem, ProblemError
from rightlung.studies.files import shown
from rightlung.studies.lines import MAX_LINE_BYTES, Lines, opened_table

MAX_RECORD_LINES = 500
"""The most lines one quoted record may run over."""
MAX_LISTED = 1000
"""The most bad rows of one table that are listed one by one; the rest is counted."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_BOX_COLUMN = re.compile(r"(?:bbox ?)?\[?[xywh](?:_?(?:min|max|[0-2]))?\]?|[xy](?:min|max)|width|height", re.IGNORECASE)
_NOT_A_NUMBER = frozenset({"", "nan", "na", "n/a", "none", "null"})

Value = TypeVar("Value")


class TableRow:
    """One row: its cells by column name, each checked when it is asked for. Faults name file, line and column."""

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
        """Build the error that says what is wrong with this row; ``kind`` is the check it belongs to, if known."""
        return ProblemError(Problem(self._table.name, message, self.line, column, kind))

    def text(self, column: str) -> str:
        """Return a cell without blanks around it; empty where the table has no such column."""
        place = self._table.places.get(column)
        return "" if place is None else self._cells[place].strip()

    def texts(self, columns: Iterable[str]) -> list[str]:
        """Return several cells as `text` does, in one go."""
        places, cells = self._table.places, self._cells
        return [cells[place].strip() if (place := places.get(column)) is not None else "" for column in columns]

    def required(self, column: str) -> str:
        """Return a cell that must not be empty."""
        text = self.text(column)
        if not text:
            raise self.error(column, "is empty; every row must have it")
        return text

    def identifier(self, column: str) -> str:
        """Return a cell that must hold a name from which a file's name can be made: no slash, no dots at its start."""
        text = self.required(column)
        if not _IDENTIFIER.fullmatch(text) or ".." in text:
            raise self.error(column, f"must be letters, digits, '-', '_' and '.'; got {shown(text)}")
        return text

    def number(self, column: str, low: float | None = None, high: float | None = None) -> float | None:
        """Return a cell as a finite number from ``low`` to ``high``; ``None`` where it is empty."""
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
        """Return a cell as a number, refusing an empty one."""
        number = self.number(column, low, high)
        if number is None:
            raise self.error(column, "must be a number; it is empty", _kind(column, "box-form"))
        return number

    def whole(self, column: str, low: float | None = None, high: float | None = None) -> int | None:
        """Return a cell as a whole number (``3`` or ``3.0``); ``None`` where it is empty."""
        text = self.text(column)
        if text.isdecimal() and low is None and high is None:
            return int(text)  # most cells of most tables; also exact where a float is not
        number = self.number(column, low, high)
        if number is None:
            return None
        if number != int(number):
            raise self.error(column, f"must be a whole number; got {shown(text)}", _kind(column, "box-form"))
        return int(text) if text.lstrip("+-").isdecimal() else int(number)

    def choice(self, column: str, known: Iterable[str]) -> str | None:
        """Return a cell that must be one of ``known``; ``None`` where it is empty."""
        text = self.text(column)
        if not text:
            return None
        names = list(known)
        if text not in names:
            raise self.error(column, str(unknown_name("value", text, names)), "label-value")
        return text

    def values(self) -> dict[str, str]:
        """Return the cells that are not empty, by column."""
        cells = ((column, self._cells[place].strip()) for column, place in self._table.places.items())
        return {column: text for column, text in cells if text}


def box_kind(error: InputError) -> str:
    """Return which check a box that cannot be made belongs to."""
    if isinstance(error, BoxFormError):
        return "box-form"
    return "box-size" if isinstance(error, EmptyBoxError) else "box-range"


def _kind(column: str, of_boxes: str) -> str:
    """Return which check a cell that is not the number it should be belongs to."""
    return of_boxes if _BOX_COLUMN.fullmatch(column) else "label-value"


def pixel_box(edges: Sequence[float], size: Size) -> Box:
    """Return the box of pixel edges ``(x0, y0, x1, y1)``.

    Edges that rounding has put outside by 2 pixels or 1 % of the side are brought back.
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
    """A table that is gone through once or more, a row at a time. See the head of this module for what it bears.

    ``problems`` is where rows that are left out are put down. ``root``, where given, is what the table's name in
    sentences is relative to. ``header`` names the columns of a table that has no line for it. ``aliases`` maps names in
    the file to the names under which they are asked for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        required: Iterable[str] = (),
        *,
        problems: list[Problem],
        root: str | os.PathLike[str] | None = None,
        header: Sequence[str] | None = None,
        aliases: Mapping[str, str] | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
    ) -> None:
        self.path = Path(path)
        self.problems = problems
        self.name = _relative(self.path, root)
        self.rows_bad = 0
        self._delimiter = delimiter
        self._encoding = encoding
        self._header = tuple(header) if header is not None else None
        self.columns = self._header if self._header is not None else self._read_header(dict(aliases or {}))
        self.places: Mapping[str, int] = {column: place for place, column in enumerate(self.columns) if column}
        for column in required:
            if column not in self.places:
                message = str(unknown_name("column", column, self.places)).removeprefix("unknown ")
                raise InputError(f"{self.path} has no {message.replace('Known:', 'It has:')}")

    def has(self, column: str) -> bool:
        """Whether the table has a column."""
        return column in self.places

    def __iter__(self) -> Iterator[TableRow]:
        """Yield the rows that can be read."""
        count = len(self.columns)
        self.rows_bad = 0
        for line, cells, fault in self._records():
            if fault is None and len(cells) != count:
                # A trailing comma too many says nothing; a cell too many or too few has moved the others.
                if len(cells) > count and not any(cell.strip() for cell in cells[count:]):
                    del cells[count:]
                elif self._header is None or len(cells) > count:
                    fault = f"has {len(cells)} cells, where the header has {count}"
                else:
                    fault = f"has {len(cells)} cells, where {count} are expected"
            if fault is not None:
                self.skip(Problem(self.name, f"the row {fault}", line))
                continue
            yield TableRow(self, line, cells)
        if self.rows_bad > MAX_LISTED:
            message = f"{self.rows_bad - MAX_LISTED:,} more rows have problems, not listed"
            self.problems.append(Problem(self.name, message))

    def read(self, parse: Callable[[TableRow], Value | None]) -> Iterator[Value]:
        """Yield what ``parse`` makes of each row; a row for which it raises `ProblemError` is put down and left out."""
        for row in self:
            try:
                value = parse(row)
            except ProblemError as error:
                self.skip(error.problem)
                continue
            if value is not None:
                yield value

    def skip(self, problem: Problem) -> None:
        """Put down why a row is left out."""
        self.rows_bad += 1
        if self.rows_bad <= MAX_LISTED:
            self.problems.append(problem)

    def _read_header(self, aliases: Mapping[str, str]) -> tuple[str, ...]:
        for line, cells, fault in self._records(1):
            if fault is not None:
                raise InputError(f"{self.path}, line {line}: the header {fault}")
            names = [aliases.get(cell.strip(), cell.strip()) for cell in cells]
            while names and not names[-1]:
                names.pop()
            for name in names:
                # An unnamed column is what a table written with its row numbers begins with.
                if name and names.count(name) > 1:
                    raise InputError(f"{self.path} has column {name!r} twice")
            if not any(names):
                break
            return tuple(names)
        raise InputError(f"{self.path} is empty: it has no header")

    def _records(self, limit: int | None = None) -> Iterator[tuple[int, list[str], str | None]]:
        """Yield line number, cells, and what is wrong, if anything; the header only where ``limit`` is 1."""
        count = None if limit == 1 else len(self.columns)
        with opened_table(self.path) as file:
            lines = Lines(file, self.path, self._encoding)
            header_seen = self._header is not None
            while (taken := lines.take()) is not None:
                line, text, fault = taken
                if fault is not None:
                    yield line, [], fault
                    continue
                if not text.strip():
                    continue
                if '"' in text:
                    cells, fault = self._quoted(lines, text, count if header_seen else None)
                else:
                    cells = text.split(self._delimiter)
                if header_seen or limit == 1:
                    yield line, cells, fault
                    if limit == 1:
                        return
                header_seen = True

    def _quoted(self, lines: Lines, first: str, count: int | None) -> tuple[list[str], str | None]:
        """Return the cells of a record with quotes, taking as many further lines as they span."""
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
            # Only an odd number of quotes can close the cell; parsing anew at every line would take for ever.
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
        return [], "has a quote that is not closed"

    def _parse(self, text: str) -> tuple[list[str] | None, bool]:
        """Return the cells of one record; ``None`` where they cannot be told, and whether a quote is still open."""
        try:
            records = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return None, "unexpected end" in str(error)  # the csv module has one type for all errors
        return (records[0], False) if len(records) == 1 else (None, False)


# The standard library refuses cells of more than 128 KiB, which masks as run lengths and whole reports can have.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


def _relative(path: Path, root: str | os.PathLike[str] | None) -> str:
    try:
        return path.relative_to(root).as_posix() if root is not None else str(path)
    except ValueError:
        return str(path)
