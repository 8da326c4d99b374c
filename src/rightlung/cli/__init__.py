"""The command line. What a command needs is imported when the command runs, so that ``--help`` answers at once."""

from rightlung.cli.main import app, main

__all__ = ["app", "main"]
