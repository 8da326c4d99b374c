"""How a command ends. The numbers are documented in docs/cli.md and relied on by scripts."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    BUG = 1
    BAD_INPUT = 2
    SOME_LEFT_OUT = 3
    NOT_WRITTEN = 4
    INTERRUPTED = 130
