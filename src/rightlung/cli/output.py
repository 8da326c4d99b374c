"""Exit codes and printing: JSON goes to standard output, everything for people to standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum

import typer

from rightlung.core.errors import OutputError
from rightlung.core.files import plain


class Exit(IntEnum):
    """Exit codes of every command (docs/cli.md); scripts rely on them."""

    DONE = 0
    BUG = 1
    BAD_INPUT = 2
    SOME_LEFT_OUT = 3
    NOT_WRITTEN = 4
    INTERRUPTED = 130


def finish(
    json: bool, result: object, tell: Callable[[], None], problems: Collection[object] = (), code: int = 3
) -> None:
    """Print ``result`` as JSON, or call ``tell`` to print it for people; exit with ``code`` if there are problems."""
    if json:
        print_json(result)
    else:
        tell()
    if problems:
        raise typer.Exit(code)


def say(text: str = "") -> None:
    """Print a line on standard error, if that is open. Control characters are escaped: text may come from a file."""
    shown = "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1] for character in text
    )
    with contextlib.suppress(OSError, ValueError):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        print(shown.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a result as JSON, in ASCII so that the locale does not matter; NaN and infinities become null."""
    try:
        print(json.dumps(plain(value), indent=2, allow_nan=False), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `rightlung … | head` is no error, now or at exit
            raise OutputError(f"standard output cannot be written: {error.strerror or error}") from None


def say_problems(problems: Sequence[object], what: str, shown: int = 10) -> None:
    """List the first problems and count the rest."""
    if problems:
        say(f"{len(problems):,} {what}:")
        for problem in problems[:shown]:
            say(f"  {problem}")
        if len(problems) > shown:
            say(f"  … and {len(problems) - shown} more; --json lists them all")


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[str] = ()) -> None:
    """Print a table. The first column and those named in ``words`` are left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if title in (header[0], *words) else cell.rjust(width)
            for cell, width, title in zip(row, widths, header, strict=True)
        ]
        say("  " + "  ".join(cells).rstrip())
