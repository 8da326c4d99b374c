"""Phantom batches for training: scenes and reports from worker processes, images rendered on the device.

>>> from rightlung.phantom.config import default_config
>>> stream = PhantomLoader(default_config(), seed=7, size=64)
>>> for batch in stream.batches([[0, 1], [2, 3]]):
...     print(tuple(batch.rendering.images.shape), [scene.index for scene in batch.scenes])
(2, 64, 64) [0, 1]
(2, 64, 64) [2, 3]

A study equals that of `make_studies` with the same configuration, seed, index and size. The number of workers and the
other studies of a batch make no difference.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, chain, islice, zip_longest

import numpy as np
import torch
from torch import Tensor

from rightlung.core.errors import InputError
from rightlung.phantom.config import PhantomConfig, check_picture_size
from rightlung.phantom.image.columns import carry
from rightlung.phantom.prepare import Prepared, prepare
from rightlung.phantom.render import Rendering, join, paint, pictures_at_once
from rightlung.phantom.report import Statement, write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.study import RenderedTruth, rendered_truth, study_scene

CHUNK = 32
"""Studies that a worker makes at a time: enough for array operations to pay off, few enough to spread a batch."""

Made = tuple[list[Scene], list[list[Statement]], Prepared]  # the part of some studies that needs no device
_AHEAD = 3  # pieces per worker under way: one being read, one waiting, one being made


@dataclass(frozen=True)
class StatementMasks:
    """The sentences of a batch that have a target, and the share of each grid cell that the target covers.

    The row of a lesion completely outside the exposed field or between the pixels is all zero.
    """

    studies: list[int]  # (m,) index of the study in the batch
    statements: list[int]  # (m,) index of the sentence in ``batch.statements[study]``
    shares: Tensor  # (m, grid, grid) float32 in 0 to 1, on the batch's device


@dataclass(frozen=True)
class PhantomBatch:
    """Some studies: scenes and reports, and their images and masks on the device."""

    scenes: list[Scene]
    statements: list[list[Statement]]  # for each study, the sentences of its report
    rendering: Rendering

    def __len__(self) -> int:
        return len(self.scenes)

    @cached_property
    def truths(self) -> list[RenderedTruth]:
        """The boxes and regions of each study's lesions."""
        rendering = self.rendering.cpu()
        return [rendered_truth(scene, rendering, place) for place, scene in enumerate(self.scenes)]

    def lesion_shares(self, grid: int) -> list[Tensor]:
        """Return, for each study, the share of each grid cell that each lesion covers, ``(lesions, grid, grid)``."""
        counts = [len(scene.lesions) for scene in self.scenes]
        return list(torch.split(cell_shares(torch.cat(self.rendering.lesion_masks), grid), counts))

    def statement_masks(self, grid: int) -> StatementMasks:
        """Return the share of each grid cell that the lesions and devices of each sentence with a target cover."""
        masks = torch.cat([*self.rendering.lesion_masks, *self.rendering.device_masks])
        lesion = [0, *accumulate(len(scene.lesions) for scene in self.scenes)]
        device = [*accumulate((len(scene.devices) for scene in self.scenes), initial=lesion[-1])]
        told = [
            (study, place, [lesion[study] + n for n in said.lesions] + [device[study] + n for n in said.devices])
            for study, statements in enumerate(self.statements)
            for place, said in enumerate(statements)
            if said.lesions or said.devices
        ]
        shares = cell_shares(_unions(masks, [members for *_, members in told]), grid)
        return StatementMasks([study for study, *_ in told], [place for _, place, _ in told], shares)


def _unions(masks: Tensor, members: Sequence[Sequence[int]]) -> Tensor:
    """Return the union of the masks ``(k, h, w)`` that each row of ``members`` names; no row is empty."""
    if not members:
        return masks[:0]
    # One copy to the device; a shorter row repeats its first entry, which changes no union.
    turns = list(zip_longest(*members))
    table = [[first if one is None else one for first, one in zip(turns[0], turn, strict=True)] for turn in turns]
    index = carry(np.array(table, dtype=np.int64), masks.device)
    return reduce(torch.logical_or, (masks[turn] for turn in index))


def cell_shares(masks: Tensor, grid: int) -> Tensor:
    """Return the share of each grid cell that masks ``(k, size, size)`` cover, ``(k, grid, grid)`` float32."""
    size = masks.shape[-1]
    if isinstance(grid, bool) or not isinstance(grid, int) or not 1 <= grid <= size:
        raise InputError(f"grid must be an integer from 1 to {size} (cells); got {grid!r}")
    if not len(masks):
        return torch.zeros((0, grid, grid), device=masks.device)
    maps = masks.float()
    if size % grid == 0:
        return torch.nn.functional.avg_pool2d(maps[:, None], size // grid)[:, 0]
    # A pixel across a border between cells counts for each by the part inside it.
    edges = torch.arange(grid + 1, device=masks.device, dtype=torch.float32) * (size / grid)
    pixels = torch.arange(size, device=masks.device, dtype=torch.float32)
    low = torch.maximum(pixels[None], edges[:-1, None])
    high = torch.minimum(pixels[None] + 1.0, edges[1:, None])
    weights = (high - low).clamp_min_(0.0) * (grid / size)  # (grid, size)
    return (weights @ maps @ weights.T).clamp_(0.0, 1.0)


class PhantomLoader:
    """Phantom studies in batches, prepared ahead by ``workers`` processes and rendered on ``device`` on request.

    Without workers everything happens in this process. Workers are new interpreters, so a script that uses them needs
    the usual ``if __name__ == "__main__":``. They start with the first batch and end with the iterator.
    """

    def __init__(
        self, config: PhantomConfig, seed: int, size: int, device: str | torch.device = "cpu", workers: int = 0
    ) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise InputError(f"workers must be an integer of at least 0; got {workers!r}")
        self.config = config
        self.seed = seed
        self.size = check_picture_size(size)
        self.device = torch.device(device)
        self.workers = workers

    def batches(self, indices: Iterable[Sequence[int]]) -> Iterator[PhantomBatch]:
        """Yield a batch for each sequence of study indices, in order; sequences are read some batches ahead."""
        lengths: deque[int] = deque()  # of batches under way, in pieces

        def pieces() -> Iterator[list[int]]:
            for wanted in indices:
                cut = self._cut(wanted)
                lengths.append(len(cut))
                yield from cut

        settings = self.config, self.seed, self.size
        if self.workers:
            made = make_ahead(self.workers, pieces(), *settings)
        else:
            made = (make(*settings, piece) for piece in pieces())
        with contextlib.closing(made):
            for first in made:
                yield self._paint([first, *islice(made, lengths.popleft() - 1)])

    def _cut(self, indices: Sequence[int]) -> list[list[int]]:
        """Split a batch into the pieces that are made together and, on a CPU, rendered together."""
        wanted = list(indices)
        if not wanted:
            raise InputError("a batch must have at least one study; got none")
        step = min(CHUNK, pictures_at_once(self.size, self.device))
        return [wanted[begin : begin + step] for begin in range(0, len(wanted), step)]

    def _paint(self, parts: Sequence[Made]) -> PhantomBatch:
        # Every piece except the last has the same length.
        scenes, statements, prepared = zip(*parts, strict=True)
        step = max(1, pictures_at_once(self.size, self.device) // len(scenes[0]))
        rendered = [paint(prepared[begin : begin + step], self.device) for begin in range(0, len(parts), step)]
        return PhantomBatch([*chain(*scenes)], [*chain(*statements)], join(rendered))


def make(config: PhantomConfig, seed: int, size: int, indices: Sequence[int]) -> Made:
    """Make the scenes and reports of some studies and prepare their images."""
    try:
        scenes = [study_scene(config, seed, index) for index in indices]
        statements = [write_report(scene, config, seed) for scene in scenes]
        return scenes, statements, prepare(scenes, size)
    except Exception as error:
        for index in indices if len(indices) > 1 else ():
            make(config, seed, size, [index])  # raises the error that names the study at fault
        studies = ", ".join(map(str, indices))
        raise RuntimeError(f"phantom study {studies} of seed {seed} could not be made: {error}") from error


def make_ahead(
    workers: int, pieces: Iterator[Sequence[int]], config: PhantomConfig, seed: int, size: int
) -> Generator[Made, None, None]:
    """Yield what worker processes make of each piece, in order, working some pieces ahead."""
    # Never a fork of this interpreter, which may hold a device.
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
        raise InputError(
            "a process that makes phantoms ended unexpectedly: a script must start training, or use workers, below "
            'if __name__ == "__main__":; otherwise the system may have killed it because memory ran out, and fewer '
            "workers help"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent is gone, even if it was killed: the pool itself would leave its workers behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
