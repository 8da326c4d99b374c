"""Interruption of a run by Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interruption:
    """Turns Ctrl-C and SIGTERM into a flag that is checked after each step; the second one interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGINT, signal.SIGTERM):
                self._before[kind] = signal.signal(kind, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for kind, before in self._before.items():
            signal.signal(kind, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
