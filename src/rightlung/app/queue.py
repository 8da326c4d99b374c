"""Questions to models: one at a time, a bounded number waiting, equal ones asked once, answers remembered."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rightlung.app.errors import AppError

_PATIENCE = 120.0
"""Seconds to wait for an answer."""


class ModelQueue:
    """One worker: two models at once would only share the cores. More than ``waiting`` questions are refused (503)."""

    def __init__(self, waiting: int, remembered: int = 2_000) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._places = threading.BoundedSemaphore(waiting)
        self._waiting, self._remembered = waiting, remembered
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._asked: dict[Hashable, Future[Any]] = {}
        self._seconds = 0.2

    def ask(self, key: Hashable, job: Callable[[], Any]) -> tuple[Any, bool]:
        """Return the answer of ``job``, and whether it was known already. An error is not remembered."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key], True
            future = self._asked.get(key)
            if future is None:
                future = self._asked[key] = self._submit(key, job)
        try:
            return future.result(_PATIENCE), False
        except TimeoutError:
            raise self._busy() from None

    def _submit(self, key: Hashable, job: Callable[[], Any]) -> Future[Any]:
        if not self._places.acquire(blocking=False):
            raise self._busy()

        def work() -> Any:
            started = time.perf_counter()
            try:
                answer = job()
                with self._lock:
                    self._known[key] = answer
                    if len(self._known) > self._remembered:
                        self._known.popitem(last=False)
                return answer
            finally:
                self._seconds += 0.1 * (time.perf_counter() - started - self._seconds)
                with self._lock:
                    self._asked.pop(key, None)
                self._places.release()

        return self._worker.submit(work)

    def forget(self, wanted: Callable[[Any], bool]) -> None:
        """Forget the answers whose keys are ``wanted``."""
        with self._lock:
            for key in [key for key in self._known if wanted(key)]:
                del self._known[key]

    def _busy(self) -> AppError:
        wait = max(1, round(self._waiting * self._seconds))
        return AppError(503, "busy", "the models are busy; try again in a moment", retry_after=min(wait, 30))

    def close(self) -> None:
        """Stop after the question that is being answered."""
        self._worker.shutdown(wait=True, cancel_futures=True)
