"""Processes that make phantom studies ahead: all of a batch that needs no device.

Each worker is a new interpreter (never a copy of this one, which may hold a device) with a pipe for orders and answers
and a few pieces of shared memory for arrays, so that nobody has to read megabytes from a pipe.
Pieces go round the workers in turn, so that the answers come in order without anybody sorting them.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from rightlung.phantom.config import PhantomConfig
from rightlung.phantom.prepare import Prepared, prepare
from rightlung.phantom.report import Statement, write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import study_scene

CHUNK = 32
"""How many studies a worker makes at a time: enough for whole arrays to pay, few enough to spread a batch."""

_SLOTS = 3  # pieces that a worker may have under way: one read, one waiting, one being made
_ROOM = CHUNK * 72 * 1024  # bytes of shared memory for a piece; a study takes 55 thousand
_ALIGNED = 64


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


@dataclass(frozen=True, slots=True)
class _Answer:
    """A piece on its way: pickled but for its arrays, which lie in the shared memory at these places."""

    pickled: bytes
    places: list[tuple[int, int]]  # begin and length


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    trace: str


def _work(orders: Connection, slots: Sequence[Any], config: PhantomConfig, seed: int, size: int) -> None:
    """Make pieces as they are ordered, until the other end of the pipe is closed or gone."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever gave the orders decides what an interrupt ends
    rooms = [memoryview(slot).cast("B") for slot in slots]
    try:
        while True:
            slot, indices = orders.recv()
            answer: _Answer | _Failure
            try:
                answer = _put(make(config, seed, size, indices), rooms[slot])
            except Exception as error:
                answer = _Failure(str(error), traceback.format_exc())
            orders.send(answer)
    except (EOFError, OSError):
        os._exit(0)  # there is nothing to tidy up, and torch would take a second to do so


def _put(made: Made, room: memoryview) -> _Answer:
    """Pickle a piece with its arrays in the shared memory, or all of it where they do not fit."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(made, protocol=5, buffer_callback=buffers.append)
    places: list[tuple[int, int]] = []
    begin = 0
    for buffer in buffers:
        with buffer.raw() as raw:
            if begin + raw.nbytes > len(room):
                return _Answer(pickle.dumps(made, protocol=5), [])
            room[begin : begin + raw.nbytes] = raw
            places.append((begin, raw.nbytes))
            begin += -(-raw.nbytes // _ALIGNED) * _ALIGNED
    return _Answer(pickled, places)


def _get(answer: _Answer, room: memoryview) -> Made:
    """Read a piece and leave the shared memory to the next."""
    end = max((begin + length for begin, length in answer.places), default=0)
    held = memoryview(bytearray(room[:end]))
    made = pickle.loads(answer.pickled, buffers=[held[begin : begin + length] for begin, length in answer.places])
    assert isinstance(made, Made)
    return made


class Workers:
    """Some processes that make studies of one configuration, seed and size. Close it, or use it with ``with``."""

    def __init__(self, count: int, config: PhantomConfig, seed: int, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._rooms: list[list[memoryview]] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        try:
            for number in range(count):
                own, theirs = context.Pipe()
                self._pipes.append(own)
                slots = [context.RawArray(ctypes.c_byte, _ROOM) for _ in range(_SLOTS)]
                self._rooms.append([memoryview(slot).cast("B") for slot in slots])
                process = context.Process(
                    target=_work, args=(theirs, slots, config, seed, size), name=f"phantom {number}", daemon=True
                )
                process.start()
                self._processes.append(process)
                theirs.close()  # so that the pipe ends with the worker
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make(self, pieces: Iterator[Sequence[int]]) -> Iterator[Made]:
        """Yield what is made of each piece, in order; pieces are taken some ahead."""
        ways = [(worker, slot) for slot in range(_SLOTS) for worker in range(len(self._pipes))]
        ordered: deque[tuple[int, int]] = deque()
        for worker, slot in ways:
            if not self._order(worker, slot, pieces):
                break
            ordered.append((worker, slot))
        while ordered:
            worker, slot = ordered.popleft()
            made = self._receive(worker, slot)
            if self._order(worker, slot, pieces):
                ordered.append((worker, slot))
            yield made

    def _order(self, worker: int, slot: int, pieces: Iterator[Sequence[int]]) -> bool:
        piece = next(pieces, None)
        if piece is None:
            return False
        try:
            self._pipes[worker].send((slot, piece))
        except OSError:
            raise self._lost(worker) from None
        return True

    def _receive(self, worker: int, slot: int) -> Made:
        try:
            answer = self._pipes[worker].recv()
        except (EOFError, OSError):
            raise self._lost(worker) from None
        if isinstance(answer, _Failure):
            error = RuntimeError(answer.message)
            error.add_note(f"In a worker process:\n{answer.trace}")
            raise error
        return _get(answer, self._rooms[worker][slot])

    def _lost(self, worker: int) -> RuntimeError:
        process = self._processes[worker]
        process.join(5.0)
        return RuntimeError(
            f"worker {worker} of the phantom stream ended by itself (exit code {process.exitcode}). It may have run "
            'out of memory; a script that uses workers must begin its work under if __name__ == "__main__":'
        )

    def close(self) -> None:
        """End the processes. What they were making is lost."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(2.0)
            if process.is_alive():
                process.terminate()
                process.join()
        self._processes = []
