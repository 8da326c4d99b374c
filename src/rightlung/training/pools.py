"""Training studies by number, whatever their source: what is known of them, and their pictures on the device.

- `Pool`: pictures and masks of all studies held on the device, from which batches are dealt at once.
- `PhantomFlow`: phantom studies painted on the device as they are asked for.
- `ReadFlow`: studies of any source, read by worker processes as they are asked for.

Which studies a batch has is decided elsewhere; the same number always gives the same study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Protocol

import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.phantom.report import Statement, write_report
from rightlung.phantom.scene import Scene
from rightlung.phantom.source import PhantomSource
from rightlung.phantom.stream import PhantomBatch, PhantomStream, cell_shares
from rightlung.phantom.study import study_scene
from rightlung.phantom.truth import known_findings
from rightlung.training.augmentation import on_device
from rightlung.training.facts import NO_FINDING, Facts, TargetKind, facts_of_scene, without_targets

CHUNK = {"cpu": 64, "cuda": 256}
"""Studies that a pool is filled with at a time."""
FEW = 256
"""Studies that are made sooner than worker processes have started."""

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """The pictures of some studies and the masks of their targets, on the device."""

    images: Tensor  # (n, size, size) uint8
    shares: Tensor  # (m + 1, grid, grid) uint8: of each cell, in 255ths; the last row is empty
    first: Sequence[int]  # (n,) the row of each study's first target
    boxes: Tensor  # (n, k, 4) float32: of the regions `IMAGENOME_REGIONS`, in fractions; NaN where one is not known

    def take(self, targets: Sequence[tuple[int, tuple[int, ...]]]) -> Tensor:
        """Return the united targets of (study, targets) pairs: (p, grid, grid) float in 0–1, zeros where none is."""
        longest = max((len(numbers) for _, numbers in targets), default=0)
        if not longest:
            return torch.zeros(len(targets), *self.shares.shape[1:], device=self.shares.device)
        empty = len(self.shares) - 1
        rows = [
            [*(self.first[study] + number for number in numbers), *([empty] * (longest - len(numbers)))]
            for study, numbers in targets
        ]
        index = on_device(torch.tensor(rows, dtype=torch.long), self.shares.device)
        united = self.shares[index[:, 0]]
        for turn in range(1, longest):
            united = torch.maximum(united, self.shares[index[:, turn]])
        return united.float() / 255


class Studies(Protocol):
    """Studies that can be dealt in batches."""

    universe: frozenset[str]
    """Every finding that the labels of some study name."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the studies that were left out."""

    def __len__(self) -> int: ...

    def facts(self, number: int) -> Facts:
        """Return what is known of a study."""

    def deal(self, wanted: Iterable[Sequence[int]]) -> Iterator[Pictures]:
        """Yield the pictures of each sequence of studies, in order."""


class Pool:
    """Studies whose pictures and masks are all on the device."""

    def __init__(
        self,
        images: Tensor,
        shares: Tensor,
        first: list[int],
        boxes: Tensor,
        facts: list[Facts],
        problems: Sequence[str] = (),
    ) -> None:
        self.images, self.first, self._facts, self.problems = images, first, facts, problems
        self.shares, self.boxes = shares, boxes
        self.universe = frozenset(name for one in facts for name in (*one.labels, *one.absent))

    def __len__(self) -> int:
        return len(self._facts)

    def facts(self, number: int) -> Facts:
        """Return what is known of a study."""
        return self._facts[number]

    def only(self, numbers: Sequence[int]) -> Pool:
        """Return a pool of some of the studies."""
        some, facts = self._some(numbers), [self._facts[number] for number in numbers]
        return Pool(some.images, some.shares, list(some.first), some.boxes, facts, self.problems)

    def deal(self, wanted: Iterable[Sequence[int]]) -> Iterator[Pictures]:
        """Yield the pictures of each sequence of studies, in order."""
        return map(self._some, wanted)

    def _some(self, numbers: Sequence[int]) -> Pictures:
        chosen = on_device(torch.tensor(list(numbers), dtype=torch.long), self.images.device)
        first = [self.first[number] for number in numbers]
        return Pictures(self.images[chosen], self.shares, first, self.boxes[chosen])

    @classmethod
    def filled(
        cls,
        parts: Iterable[tuple[Pictures, list[Facts]]],
        count: int,
        device: torch.device,
        advance: Advance,
        problems: Sequence[str] = (),
    ) -> Pool:
        """Gather studies that come in parts; ``problems`` may grow meanwhile."""
        images: Tensor | None = None
        shares: list[Tensor] = []
        boxes: list[Tensor] = []
        first: list[int] = []
        facts: list[Facts] = []
        row = 0
        for pictures, known in parts:
            if images is None:  # in one piece from the beginning: joining parts would need the memory twice
                images = torch.empty(count, *pictures.images.shape[1:], dtype=torch.uint8, device=device)
            images[len(facts) : len(facts) + len(known)] = pictures.images.to(device)
            shares.append(pictures.shares[:-1].to(device))
            boxes.append(pictures.boxes.to(device))
            first.extend(row + begin for begin in pictures.first)
            facts.extend(known)
            row += len(pictures.shares) - 1
            advance(len(known))
        if images is None or not facts:
            raise InputError("there is no study that could be trained on")
        empty = torch.zeros(1, *shares[0].shape[1:], dtype=torch.uint8, device=device)
        return cls(images[: len(facts)], torch.cat([*shares, empty]), first, torch.cat(boxes), facts, problems)


def chunks_of(count: int, device: torch.device) -> list[range]:
    """Return the numbers below ``count``, some at a time."""
    size = CHUNK.get(device.type, CHUNK["cpu"])
    return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


def phantom_pictures(batch: PhantomBatch, grid: int) -> Pictures:
    """Return the pictures and targets of a phantom batch: of each study the lesions, then the devices."""
    rendering = batch.rendering
    masks = chain.from_iterable(zip(rendering.lesion_masks, rendering.device_masks, strict=True))
    counts = [len(scene.lesions) + len(scene.devices) for scene in batch.scenes]
    return Pictures(
        images=(rendering.images * 255).round_().to(torch.uint8),
        shares=with_empty_row(in_255ths(cell_shares(torch.cat(list(masks)), grid))),
        first=first_rows(counts),
        boxes=rendering.regions.float(),
    )


def with_empty_row(shares: Tensor) -> Tensor:
    """Return masks with an empty one at their end, for phrases without a target."""
    return torch.cat([shares, torch.zeros(1, *shares.shape[1:], dtype=shares.dtype, device=shares.device)])


def first_rows(counts: Sequence[int]) -> list[int]:
    """Return where each study's targets begin if these are their numbers."""
    return list(accumulate(counts, initial=0))[:-1]


def in_255ths(shares: Tensor) -> Tensor:
    """Return shares as bytes, rounded up: what is hardly there is still there."""
    return (shares * 255).ceil_().clamp_(0, 255).to(torch.uint8)


class PhantomFlow:
    """Phantom studies, made by ``workers`` processes and painted on the device as they are asked for."""

    def __init__(
        self,
        source: PhantomSource,
        size: int,
        grid: int,
        device: torch.device,
        workers: int,
        targets: TargetKind = "exact",
    ) -> None:
        """``targets`` are the exact masks or none."""
        self.source, self.size, self.grid, self.device, self.workers = source, size, grid, device, workers
        self.targets = targets
        self.universe = frozenset(known_findings()) - {NO_FINDING}
        self.problems: Sequence[str] = ()  # what is made up can be made
        self._facts = lru_cache(maxsize=1 << 14)(self._tell)

    def __len__(self) -> int:
        return len(self.source)

    def _stream(self, workers: int) -> PhantomStream:
        return PhantomStream(self.source.config, self.source.seed, self.size, self.device, workers)

    def _tell(self, number: int) -> Facts:
        scene = study_scene(self.source.config, self.source.seed, self.source.indices[number])
        return self._known(scene, write_report(scene, self.source.config, self.source.seed))

    def _known(self, scene: Scene, told: Sequence[Statement]) -> Facts:
        facts = facts_of_scene(scene, told)
        return without_targets(facts) if self.targets == "none" else facts

    def facts(self, number: int) -> Facts:
        """Return what is known of a study."""
        return self._facts(number)

    def deal(self, wanted: Iterable[Sequence[int]]) -> Iterator[Pictures]:
        """Yield the pictures of each sequence of studies, in order."""
        indices = ([self.source.indices[number] for number in numbers] for numbers in wanted)
        for batch in self._stream(self.workers).batches(indices):
            yield phantom_pictures(batch, self.grid)

    def pool(self, count: int, advance: Advance) -> Pool:
        """Paint the first studies and hold them."""
        chunks = chunks_of(count, self.device)
        stream = self._stream(self.workers if count > FEW else 0)
        parts = (
            (
                phantom_pictures(batch, self.grid),
                [self._known(scene, told) for scene, told in zip(batch.scenes, batch.statements, strict=True)],
            )
            for batch in stream.batches([self.source.indices[number] for number in chunk] for chunk in chunks)
        )
        return Pool.filled(parts, count, self.device, advance)
