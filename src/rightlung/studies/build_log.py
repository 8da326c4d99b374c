"""Problems, counts of skipped images and progress while an index is built."""

from __future__ import annotations

from collections import Counter
from time import monotonic

from rightlung.core.problem import Problem
from rightlung.core.progress import ProgressBars
from rightlung.studies.cache import note

PATIENCE_SECONDS = 2.0
"""How long an index may take before progress is shown."""
_STEPS_BETWEEN_LOOKS = 500


class BuildLog:
    """Collects problems and skipped images of an index, and shows progress on standard error."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.problems: list[Problem] = []
        self.left_out_by_reason: Counter[str] = Counter()
        self._done = 0
        self._began = monotonic()
        self._bars = ProgressBars(note)

    def left_out(self, reason: str, count: int = 1) -> None:
        """Count images that are skipped on purpose, such as lateral views."""
        self.left_out_by_reason[reason] += count
        self.step(count)

    def step(self, count: int = 1) -> None:
        """Count rows or files that have been processed."""
        before = self._done // _STEPS_BETWEEN_LOOKS
        self._done += count
        is_time = self._done // _STEPS_BETWEEN_LOOKS != before
        if is_time and monotonic() - self._began > PATIENCE_SECONDS:
            self._bars(f"indexing {self.what} (first time only)", self._done, None)

    def __enter__(self) -> BuildLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.close()
