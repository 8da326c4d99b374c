"""Training studies by number, whatever their source: their words, and their images and targets on the device.

- `PhantomDataset`: phantom studies, painted on the device as they are needed.
- `SourceDataset`: studies of any source, read by worker processes as they are needed.
- `CachedDataset`: studies of one of these, held on the device.

A sampler decides which studies a batch has; the same number always gives the same study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rightlung.core import InputError
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.report import write_report
from rightlung.phantom.source import PhantomSource
from rightlung.phantom.stream import PhantomBatch, PhantomStream
from rightlung.phantom.study import study_scene
from rightlung.phantom.truth import known_findings
from rightlung.studies.sources import Source
from rightlung.training.augmentation import on_device
from rightlung.training.recipe import DataEntry
from rightlung.training.study_texts import NO_FINDING, StudyTexts, texts_of_scene, texts_of_study
from rightlung.training.targets.base import Column, Rows, StudyFrame, TargetBuilder, only

CHUNK = {"cpu": 64, "cuda": 256}
"""Studies that are cached at a time."""
FEW_PHANTOMS, FEW_STUDIES = 256, 20_000
"""With fewer studies, starting worker processes takes longer than loading."""

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Loading:
    """How the studies of an entry are loaded."""

    entry: DataEntry
    size: int  # pixels per side
    grid: int  # cells per side
    builders: Sequence[TargetBuilder]
    device: torch.device
    workers: int

    @property
    def built(self) -> list[TargetBuilder]:
        """The targets that have to be built."""
        return [builder for builder in self.builders if builder.wanted(self.entry)]

    def columns(self, build: Callable[[TargetBuilder], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what ``build`` returns for each target, by "target/name"."""
        return {f"{one.name}/{name}": value for one in self.built for name, value in build(one).items()}

    def chunks(self, count: int) -> list[range]:
        """Return the numbers below ``count``, some at a time."""
        size = CHUNK.get(self.device.type, CHUNK["cpu"])
        return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The images of some studies and what their targets keep, on the device."""

    images: Tensor  # (n, size, size) uint8
    grid: int
    columns: Mapping[str, Column]  # by "target/name"

    def columns_of(self, target: str) -> dict[str, Column]:
        """Return the columns of one target."""
        return {key.partition("/")[2]: one for key, one in self.columns.items() if key.startswith(f"{target}/")}


class Dataset(Protocol):
    """Studies that batches are drawn from."""

    @property
    def findings(self) -> frozenset[str]:
        """Every finding that the labels of some study name."""

    @property
    def served(self) -> frozenset[str]:
        """The targets that at least one study has."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the studies that were left out."""

    def __len__(self) -> int: ...

    def texts(self, number: int, /) -> StudyTexts:
        """Return the words of a study."""

    def load(self, wanted: Iterable[Sequence[int]]) -> Iterator[Samples]:
        """Yield the images and targets of each sequence of studies, in order."""


class CachedDataset:
    """Studies whose images and targets are all on the device."""

    def __init__(
        self, samples: Samples, texts: list[StudyTexts], served: Iterable[str] = (), problems: Sequence[str] = ()
    ) -> None:
        self.samples, self.served, self.problems = samples, frozenset(served), problems
        self.findings = labelled(texts)
        self.texts: Callable[[int], StudyTexts] = texts.__getitem__

    def __len__(self) -> int:
        return len(self.samples.images)

    def only(self, numbers: Sequence[int]) -> CachedDataset:
        """Return some of the studies."""
        return CachedDataset(self._some(numbers), [self.texts(one) for one in numbers], self.served, self.problems)

    def load(self, wanted: Iterable[Sequence[int]]) -> Iterator[Samples]:
        """Yield the images and targets of each sequence of studies, in order."""
        return map(self._some, wanted)

    def _some(self, numbers: Sequence[int]) -> Samples:
        images = self.samples.images
        chosen = on_device(torch.tensor(list(numbers), dtype=torch.long), images.device)
        columns = {name: only(column, numbers) for name, column in self.samples.columns.items()}
        return Samples(images[chosen], self.samples.grid, columns)

    @classmethod
    def filled(
        cls,
        parts: Iterable[tuple[Samples, list[StudyTexts]]],
        count: int,
        advance: Advance,
        served: Iterable[str],
        problems: Sequence[str] = (),
    ) -> CachedDataset:
        """Gather studies that come in parts; ``served`` and ``problems`` may grow meanwhile."""
        images: Tensor | None = None
        columns: list[Mapping[str, Column]] = []
        texts: list[StudyTexts] = []
        for samples, own in parts:
            if images is None:  # in one piece from the beginning: joining parts would need the memory twice
                images = torch.empty(count, *samples.images.shape[1:], dtype=torch.uint8, device=samples.images.device)
            images[len(texts) : len(texts) + len(own)] = samples.images
            columns.append(samples.columns)
            texts.extend(own)
            advance(len(own))
        if images is None or not texts:
            raise InputError("none of the studies can be read")
        whole = {name: _joined([part[name] for part in columns]) for name in columns[0]}
        return cls(Samples(images[: len(texts)], samples.grid, whole), texts, served, problems)


def labelled(texts: Iterable[StudyTexts]) -> frozenset[str]:
    """Return every finding that the labels of some study name."""
    return frozenset(name for one in texts for name in (*one.labels, *one.absent))


def _stacked(built: Sequence[Any], device: torch.device) -> Column:
    if not isinstance(built[0], Tensor):
        return list(built)
    return Rows.of(on_device(torch.cat(list(built)), device), [len(one) for one in built])


def _joined(parts: Sequence[Column]) -> Column:
    if all(isinstance(part, Rows) for part in parts):
        counts = [count for part in parts for count in part.counts]  # type: ignore[union-attr]
        return Rows.of(torch.cat([part.values for part in parts]), counts)  # type: ignore[union-attr]
    return [value for part in parts for value in part]  # type: ignore[union-attr]


class PhantomDataset:
    """Phantom studies, made by worker processes and painted on the device as they are needed."""

    def __init__(self, source: PhantomSource, how: Loading) -> None:
        self.source, self.how = source, how
        self.findings = frozenset(known_findings()) - {NO_FINDING}
        self.served = frozenset(builder.name for builder in how.builders)
        self.problems: Sequence[str] = ()
        self.texts = lru_cache(maxsize=1 << 14)(self._texts)

    def __len__(self) -> int:
        return len(self.source)

    def _texts(self, number: int) -> StudyTexts:
        scene = study_scene(self.source.config, self.source.seed, self.source.indices[number])
        return texts_of_scene(scene, write_report(scene, self.source.config, self.source.seed), self.how.entry.masks)

    def load(self, wanted: Iterable[Sequence[int]]) -> Iterator[Samples]:
        """Yield the images and targets of each sequence of studies, in order."""
        return map(self._samples, self._painted(wanted, self.how.workers))

    def cached(self, count: int, advance: Advance) -> CachedDataset:
        """Paint the first studies and hold them."""
        painted = self._painted(self.how.chunks(count), self.how.workers if count > FEW_PHANTOMS else 0)

        def parts() -> Iterator[tuple[Samples, list[StudyTexts]]]:
            for batch in painted:
                told = zip(batch.scenes, batch.statements, strict=True)
                yield self._samples(batch), [texts_of_scene(*one, self.how.entry.masks) for one in told]

        return CachedDataset.filled(parts(), count, advance, self.served)

    def _painted(self, wanted: Iterable[Sequence[int]], workers: int) -> Iterator[PhantomBatch]:
        stream = PhantomStream(self.source.config, self.source.seed, self.how.size, self.how.device, workers)
        return stream.batches([self.source.indices[number] for number in numbers] for numbers in wanted)

    def _samples(self, batch: PhantomBatch) -> Samples:
        columns = self.how.columns(lambda builder: builder.paint(batch, self.how.grid))
        return Samples((batch.rendering.images * 255).round_().to(torch.uint8), self.how.grid, columns)


class SourceDataset:
    """Studies of any source, read by worker processes as they are needed."""

    def __init__(self, source: Source, how: Loading) -> None:
        self.reader, self.how = _Reader(source, how), how
        self.problems = [str(problem) for problem in source.problems]  # rows that the source itself leaves out

    def __len__(self) -> int:
        return len(self.reader)

    @cached_property
    def _known(self) -> list[tuple[StudyTexts, frozenset[str]]]:
        source = self.reader.source
        known = [(self.reader.words(study)[0], self.reader.served(study)) for study in source]
        if len(known) != len(source):
            raise InputError(f"source {source.address}: {source.problems[0]}")
        return known

    @cached_property
    def findings(self) -> frozenset[str]:
        """Every finding that the labels of some study name."""
        return labelled(texts for texts, _ in self._known)

    @cached_property
    def served(self) -> frozenset[str]:
        """The targets that at least one study has."""
        return frozenset().union(*(served for _, served in self._known))

    def texts(self, number: int) -> StudyTexts:
        """Return the words of a study."""
        return self._known[number][0]

    def load(self, wanted: Iterable[Sequence[int]]) -> Iterator[Samples]:
        """Yield the images and targets of each sequence of studies, in order."""
        for parts in _loader(self.reader, wanted, self.how.workers):
            if wrong := [part for part in parts if isinstance(part, str)]:
                raise InputError(wrong[0])
            yield self._samples(parts)

    def cached(self, count: int, advance: Advance) -> CachedDataset:
        """Read the first studies and hold them; unreadable ones are left out and listed in ``problems``.

        An error with the first reason is raised where more than half cannot be read.
        """
        unread: list[str] = []
        served: set[str] = set()

        def parts() -> Iterator[tuple[Samples, list[StudyTexts]]]:
            for read in _loader(self.reader, self.how.chunks(count), self.how.workers if count > FEW_STUDIES else 0):
                good = [part for part in read if not isinstance(part, str)]
                unread.extend(part for part in read if isinstance(part, str))
                advance(len(read) - len(good))
                served.update(*(part.served for part in good))
                if good:
                    yield self._samples(good), [part.texts for part in good]
            if 2 * len(unread) > count:
                raise InputError(
                    f"source {self.reader.source.address}: {len(unread):,} of {count:,} studies cannot be read, "
                    f"the first: {unread[0]}"
                )
            self.problems.extend(unread)

        return CachedDataset.filled(parts(), count, advance, served, self.problems)

    def _samples(self, parts: Sequence[Any]) -> Samples:
        columns = {name: _stacked([part.columns[name] for part in parts], self.how.device) for name in parts[0].columns}
        images = on_device(torch.stack([part.image for part in parts]), self.how.device)
        return Samples(images, self.how.grid, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One study: its image (size, size) uint8, its words, and what its targets keep."""

    image: Tensor
    texts: StudyTexts
    columns: dict[str, Any]
    served: frozenset[str]


class _Reader(torch.utils.data.Dataset["_Part | str"]):
    """Reads one study, or says what is wrong with it; this is what a data loader's workers run."""

    def __init__(self, source: Source, how: Loading) -> None:
        self.source, self.how = source, how

    def __len__(self) -> int:
        return len(self.source)

    def words(self, study: Any) -> Any:
        return texts_of_study(study, self.how.entry.masks, coded=isinstance(self.source, PhantomSource))

    def served(self, study: Any) -> frozenset[str]:
        return frozenset(builder.name for builder in self.how.builders if builder.has(study))

    def __getitem__(self, number: int) -> _Part | str:
        try:
            study = self.source[number]
            square, extent = letterbox(np.asarray(study.image), self.how.size)
            texts, locations = self.words(study)
            frame = StudyFrame(self.how.size, self.how.grid, extent, locations)
            columns = self.how.columns(lambda builder: builder.build(study, texts, frame))
        except InputError as error:
            return str(error)
        return _Part((square * 255).round_().to(torch.uint8), texts, columns, self.served(study))


def _loader(reader: _Reader, wanted: Iterable[Sequence[int]], workers: int) -> Iterable[list[_Part | str]]:
    return torch.utils.data.DataLoader(
        reader,
        batch_sampler=wanted,  # type: ignore[arg-type]  # any iterable of numbers will do
        num_workers=workers,
        collate_fn=list,
        generator=torch.Generator(),  # its own, so that no other random numbers are used up
        multiprocessing_context="spawn" if workers else None,
    )
