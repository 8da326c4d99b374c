"""Work on many items: in this process, in several, or on the machines of a Ray cluster; with the same results."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from rightlung.core.errors import InputError, OutputError
from rightlung.scoring.threads import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Any, Item], Result]
"""From what all items share and an item to its result."""

LOCAL = "local"
AHEAD = 2
"""Items that are handed out for each worker; no more results than these wait in memory."""

_shared: Any = None


@dataclass(frozen=True)
class Workers:
    """Who does the work. ``ray`` is the address of a cluster, ``auto`` for the one of this machine, or ``local``."""

    jobs: int | None = 1
    """Number of processes; None: all cores."""
    ray: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"jobs must be at least 1; got {self.jobs}")

    @property
    def threads(self) -> int | None:
        """The number of threads that the work on one item may use, None for all."""
        return None if self.jobs == 1 and self.ray is None else 1

    def each(self, work: Work[Item, Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``work(shared, item)`` of each item, in order. ``items`` are read as they are needed."""
        if self.ray is not None:
            yield from _on_cluster(work, shared, items, self.ray, self.jobs)
        elif self.jobs != 1:
            yield from _in_processes(work, shared, items, self.jobs or usable_cores())
        else:
            yield from (work(shared, item) for item in items)


def can_be_sent(shared: Any) -> bool:
    """Whether something can be sent to another process."""
    try:
        pickle.dumps(shared)
    except (pickle.PicklingError, TypeError, AttributeError):
        return False
    return True


def _in_order(
    submit: Callable[[Item], Any], result: Callable[[Any], Result], items: Iterable[Item], most: int
) -> Iterator[Result]:
    waiting: deque[Any] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= most:
            yield result(waiting.popleft())
    while waiting:
        yield result(waiting.popleft())


def _in_processes(work: Work[Item, Result], shared: Any, items: Iterable[Item], jobs: int) -> Iterator[Result]:
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        context.set_forkserver_preload([work.__module__])  # imported once, not by every process
    pool = ProcessPoolExecutor(jobs, context, _begin, (shared,))
    try:
        yield from _in_order(
            lambda item: pool.submit(_work, work, item), lambda one: one.result(), items, AHEAD * jobs
        )  # fmt: skip
    except BrokenProcessPool:
        raise OutputError(
            f"one of {jobs} processes ended before its work was done, perhaps for want of memory; run the command "
            "again to continue, with fewer --jobs"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(shared: Any) -> None:
    """Prepare a process: one thread, Ctrl-C is the parent's, and no process outlives its parent."""
    global _shared
    import torch
    from threadpoolctl import threadpool_limits

    _shared = shared
    torch.set_num_threads(1)
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(work: Work[Item, Result], item: Item) -> Result:
    return work(_shared, item)


def _on_cluster(
    work: Work[Item, Result], shared: Any, items: Iterable[Item], address: str, jobs: int | None
) -> Iterator[Result]:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("--ray needs Ray: pip install 'rightlung[ray]'") from None
    started = not ray.is_initialized()
    if started:
        cluster = {"num_cpus": jobs or usable_cores()} if address == LOCAL else {"address": address}
        try:
            ray.init(**cluster, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"--ray {address}: no Ray cluster answers there: {error}") from None
    try:
        everything, remote = ray.put(shared), ray.remote(num_cpus=1, max_retries=3)(work)
        most = AHEAD * int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]

        def result(one: Any) -> Any:
            try:
                return ray.get(one)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None

        yield from _in_order(lambda item: remote.remote(everything, item), result, items, most)
    finally:
        if started:
            ray.shutdown()


def default_jobs(items: int) -> int:
    """Return how many processes pay for themselves: starting them takes as long as a few items."""
    return min(usable_cores(), items) if items >= 4 else 1
