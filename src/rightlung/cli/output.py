"""Where things are printed: JSON alone goes to standard output, everything for people to standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence

from rightlung.core.errors import OutputError
from rightlung.core.files import plain


def say(text: str = "") -> None:
    """Print a line for a person. What came from a file or a user is shown, never obeyed, by the terminal.

    Nothing can be said of a standard error that is closed or full.
    """
    shown = "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1] for character in text
    )
    with contextlib.suppress(OSError, ValueError):
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        print(shown.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a result for a program: NaN and infinities, which JSON does not have, become null.

    In ASCII, which is the same in every locale.
    """
    try:
        print(json.dumps(plain(value), indent=2, allow_nan=False), flush=True)
    except BrokenPipeError:  # the reader went away, as in `rightlung … | head`: no reason to complain, now or at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"standard output cannot be written: {error.strerror or error}") from None


def say_problems(problems: Sequence[object], what: str, shown: int = 10) -> None:
    """List the first problems and count the rest."""
    if problems:
        say(f"{len(problems)} {what}:")
        for problem in problems[:shown]:
            say(f"  {problem}")
        if len(problems) > shown:
            say(f"  … and {len(problems) - shown} more; --json lists them all")


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left and numbers to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  " + "  ".join(cells).rstrip())
