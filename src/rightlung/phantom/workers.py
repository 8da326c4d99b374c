"""Processes that make phantom studies ahead: all of a batch that needs no device.

Each worker is a new interpreter, never a copy of this one, which may hold a device.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch

from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.prepare import Prepared, prepare
from rightlung.phantom.report import Statement, write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import study_scene

CHUNK = 32
"""How many studies a worker makes at a time: enough for whole arrays to pay, few enough to spread a batch."""

_AHEAD = 3  # pieces that a worker may have under way: one read, one waiting, one being made


@dataclass(frozen=True, slots=True)
class Made:
    """What is made of some studies without the device."""

    scenes: list[Scene]
    statements: list[list[Statement]]
    prepared: Prepared


def make(config: PhantomConfig, seed: int, size: int, indices: Sequence[int]) -> Made:
    """Make the scenes and words of some studies and prepare their pictures."""
    try:
        scenes = [study_scene(config, seed, index) for index in indices]
        statements = [write_report(scene, config, seed) for scene in scenes]
        return Made(scenes, statements, prepare(scenes, size))
    except Exception as error:
        raise RuntimeError(_blame(config, seed, size, indices, error)) from error


def _blame(config: PhantomConfig, seed: int, size: int, indices: Sequence[int], error: Exception) -> str:
    """Return a sentence that names the first study that cannot be made alone."""
    for index in indices:
        try:
            scene = study_scene(config, seed, index)
            write_report(scene, config, seed)
            prepare([scene], size)
        except Exception as own:
            return f"phantom study {index} of seed {seed} could not be made: {own}"
    return f"the phantom studies {list(indices)} of seed {seed} could not be made: {error}"


def make_ahead(
    workers: int, pieces: Iterator[Sequence[int]], config: PhantomConfig, seed: int, size: int
) -> Generator[Made, None, None]:
    """Yield what processes make of each piece, in order; pieces are taken some ahead. They end with the iterator."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    ahead: deque[Future[Made]] = deque()
    try:
        for piece in pieces:
            ahead.append(pool.submit(make, config, seed, size, piece))
            if len(ahead) >= _AHEAD * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    except BrokenProcessPool:
        raise RuntimeError(
            "a worker of the phantom stream ended by itself. It may have run out of memory; a script that uses workers "
            'must begin its work under if __name__ == "__main__":'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent is gone, even if it was killed: the pool itself would leave its workers behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
