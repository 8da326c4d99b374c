"""What happens while an index is built: problems put down, laterals counted, and progress shown if it takes long."""

from __future__ import annotations

import sys
from collections import Counter
from time import monotonic
from types import TracebackType
from typing import Any

from rightlung.core.problem import Problem
from rightlung.studies.cache import note

PATIENCE_SECONDS = 2.0
"""How long an index may take before anything is shown."""
_BETWEEN_LINES_SECONDS = 30.0
_STEPS_BETWEEN_LOOKS = 500


class Building:
    """Collects what is to be said of an index. A bar on standard error; without a terminal, a line at times."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.problems: list[Problem] = []
        self.left_out_by_reason: Counter[str] = Counter()
        self._done = 0
        self._began = self._spoke = monotonic()
        self._bar: Any = None
        self._task: Any = None

    def left_out(self, reason: str, count: int = 1) -> None:
        """Count what is left out on purpose, such as lateral views."""
        self.left_out_by_reason[reason] += count
        self.step(count)

    def step(self, count: int = 1) -> None:
        """Say that so many more rows or files have been gone through."""
        before = self._done // _STEPS_BETWEEN_LOOKS
        self._done += count
        if self._done // _STEPS_BETWEEN_LOOKS != before:
            self._show()

    def _show(self) -> None:
        now = monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif now - self._began > PATIENCE_SECONDS:
            if sys.stderr is not None and sys.stderr.isatty():
                self._start_bar()
            elif now - self._spoke > _BETWEEN_LINES_SECONDS:
                self._spoke = now
                note(f"indexing {self.what}, once: {self._done:,} so far")

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"))
        self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(f"indexing {self.what}, once", total=None)

    def __enter__(self) -> Building:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
