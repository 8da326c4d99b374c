"""Studies of any source as training studies: read by worker processes, letterboxed, with their boxes as masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rightlung.core import Extent, InputError, Mask, Study
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.models.preprocessing import letterbox
from rightlung.studies.sources import Source
from rightlung.training.augmentation import on_device
from rightlung.training.facts import Facts, Place, TargetKind, facts_of_study
from rightlung.training.pools import Advance, Pictures, Pool, chunks_of, first_rows, in_255ths, with_empty_row

READ_SOON = 20_000
"""Studies that are read (a thousand a second) sooner than worker processes have started and sent them over."""


class ReadFlow:
    """Studies of any source, read by worker processes as they are asked for."""

    def __init__(
        self, source: Source, size: int, grid: int, device: torch.device, workers: int, targets: TargetKind
    ) -> None:
        self.reader = _Reader(source, size, grid, targets)
        self.device, self.workers = device, workers
        self.problems = [str(problem) for problem in source.problems]  # rows that the source has left out itself
        self._facts = [facts_of_study(study, targets)[0] for study in source]
        if len(self._facts) != len(source):
            raise InputError(f"source {source.address}: {source.problems[0]}")
        self.universe = frozenset(name for one in self._facts for name in (*one.labels, *one.absent))

    def __len__(self) -> int:
        return len(self._facts)

    def facts(self, number: int) -> Facts:
        """Return what is known of a study."""
        return self._facts[number]

    def deal(self, wanted: Iterable[Sequence[int]]) -> Iterator[Pictures]:
        """Yield the pictures of each sequence of studies, in order."""
        for parts in _loader(self.reader, wanted, self.workers):
            if wrong := [part for part in parts if isinstance(part, str)]:
                raise InputError(wrong[0])
            yield _joined(parts, self.device)

    def pool(self, count: int, advance: Advance) -> Pool:
        """Read the first studies and hold them; those that cannot be read are left out and listed in ``problems``.

        Where most cannot be read, nothing is held and the first reason is said.
        """
        chunks = chunks_of(count, self.device)
        unread: list[str] = []

        def parts() -> Iterator[tuple[Pictures, list[Facts]]]:
            workers = self.workers if count > READ_SOON else 0
            for chunk, read in zip(chunks, _loader(self.reader, chunks, workers), strict=True):
                good = [number for number, part in zip(chunk, read, strict=True) if not isinstance(part, str)]
                unread.extend(part for part in read if isinstance(part, str))
                advance(len(read) - len(good))
                if good:
                    yield _joined(read, self.device), [self._facts[number] for number in good]
            if 2 * len(unread) > count:  # hardly the data that somebody meant to train on
                raise InputError(
                    f"source {self.reader.source.address}: {len(unread):,} of {count:,} studies cannot be read, "
                    f"the first: {unread[0]}"
                )
            self.problems.extend(unread)

        return Pool.filled(parts(), count, self.device, advance, self.problems)


Part = tuple[Tensor, Tensor, Tensor]
"""One study: picture (size, size) uint8, targets' shares (k, grid, grid) uint8, boxes of regions as in `Pictures`."""


class _Reader(torch.utils.data.Dataset[Part | str]):
    """Reads one study as a square, or says what is wrong with it; what a data loader's workers run."""

    def __init__(self, source: Source, size: int, grid: int, targets: TargetKind) -> None:
        self.source, self.size, self.grid, self.targets = source, size, grid, targets

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int) -> Part | str:
        try:
            study = self.source[number]
            square, extent = letterbox(np.asarray(study.image), self.size)
            placed = facts_of_study(study, self.targets)[1]
            masks = [letterbox(_pixels(place, study).astype(np.float32), self.size)[0] for place in placed]
        except InputError as error:
            return str(error)
        shares = torch.zeros(0, self.grid, self.grid)
        if masks:
            shares = adaptive_avg_pool2d(torch.stack(masks)[:, None], self.grid)[:, 0].clamp(0.0, 1.0)
        return (square * 255).round_().to(torch.uint8), in_255ths(shares), _boxes(study, extent)


def _pixels(place: Place, study: Study) -> NDArray[np.bool_]:
    if isinstance(place, Mask):
        return place.pixels
    height, width = study.image.shape
    return Mask.from_boxes(place, (height, width)).pixels


def _boxes(study: Study, extent: Extent) -> Tensor:
    """Return the boxes of the regions in fractions of the square, (k, 4), NaN where one is not known."""
    boxes = torch.full((len(IMAGENOME_REGIONS), 4), torch.nan)
    start, width, height = (extent.x0, extent.y0), extent.x1 - extent.x0, extent.y1 - extent.y0
    for number, name in enumerate(IMAGENOME_REGIONS):
        if (box := study.regions.get(name)) is not None:
            corners = torch.tensor(box.as_tuple()) - torch.tensor(start * 2)
            boxes[number] = corners / torch.tensor([width, height, width, height])
    return boxes


def _loader(reader: _Reader, wanted: Iterable[Sequence[int]], workers: int) -> Iterable[list[Part | str]]:
    return torch.utils.data.DataLoader(
        reader,
        batch_sampler=wanted,  # type: ignore[arg-type]  # any iterable of numbers will do
        num_workers=workers,
        collate_fn=list,
        generator=torch.Generator(),  # of its own: nobody else's numbers are used up
        multiprocessing_context="spawn" if workers else None,
    )


def _joined(read: Sequence[Part | str], device: torch.device) -> Pictures:
    """Put together the studies that could be read."""
    images, shares, boxes = zip(*(part for part in read if not isinstance(part, str)), strict=True)
    return Pictures(
        images=on_device(torch.stack(images), device),
        shares=on_device(with_empty_row(torch.cat(shares)), device),
        first=first_rows([len(targets) for targets in shares]),
        boxes=on_device(torch.stack(boxes), device),
    )
