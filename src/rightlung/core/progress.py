"""Progress bars on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

Progress = Callable[[str, float, float], None]
"""Called with the name of the stage, the amount done and the total."""

PAUSE = 20.0
"""Seconds between lines without a terminal."""


def no_progress(stage: str, done: float, total: float) -> None:
    """Show nothing."""


class ProgressBars:
    """A `Progress` that shows one bar at a time or, without a terminal, prints a line every `PAUSE` seconds.

    Print through `say`, which removes the bar first.
    """

    def __init__(self, say: Callable[[str], None] | None = None, shown: bool = True) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.shown = shown
        self.stage = ""
        self.bar: Any = None
        self.task: Any = None
        self._say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self._spoken = self._begun = monotonic()
        self._at_first = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def on_terminal(self) -> bool:
        """Whether bars are shown instead of lines."""
        return self.console.is_terminal

    def __call__(self, stage: str, done: float, total: float | None, figures: str = "") -> None:
        """Show how much of a stage is done, with ``figures`` next to it; ``total`` is None if unknown."""
        if not self.shown:
            return
        if stage != self.stage and not self.on_terminal:
            self.stage, self._begun, self._at_first = stage, monotonic(), done
        if not self.on_terminal:
            if monotonic() - self._spoken >= PAUSE:
                of = " so far" if total is None else f" of {int(total):,}"
                left = "" if total is None else self._time_left(done, total)
                self.say(", ".join(filter(None, [f"{stage}: {int(done):,}{of}", left, figures])))
            return
        if self.bar is None or stage != self.stage:
            self.close()
            self._open(stage)
        self.bar.update(self.task, completed=int(done), total=total, figures=figures)
        if total is not None and done >= total:
            self.close()

    def _time_left(self, done: float, total: float) -> str:
        """Return how long the rest takes at the speed so far."""
        if done <= self._at_first or done >= total:
            return ""
        seconds = (monotonic() - self._begun) * (total - done) / (done - self._at_first)
        return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"

    def say(self, text: str) -> None:
        """Remove the bar and print a line."""
        if self.shown:
            self.close()
            self._spoken = monotonic()
            self._say(text)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _open(self, stage: str) -> None:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False), progress.BarColumn(),
            progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[figures]}", markup=False),
        )  # fmt: skip
        self.stage = stage
        self.bar = progress.Progress(*columns, console=self.console, transient=True)
        self.task = self.bar.add_task(stage, total=None, figures="")
        self.bar.start()
