"""Threads over the usable cores. NumPy releases the interpreter lock while it works."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rightlung.core.errors import InputError

Result = TypeVar("Result")


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[int], Result], tasks: int, workers: int | None) -> Iterator[Result]:
    """Yield ``work(0)``, ``work(1)``, … in order, computed by ``workers`` threads (default: all usable cores)."""
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    threads = min(workers or usable_cores(), tasks)
    if threads <= 1:
        yield from map(work, range(tasks))
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, range(tasks))
