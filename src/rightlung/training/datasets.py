"""Training studies by number, whatever their source: their annotations, and their images and targets on the device.

- `PhantomDataset`: phantom studies, rendered on the device as they are needed.
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
from threadpoolctl import threadpool_limits
from torch import Tensor

from rightlung.core import InputError, Study
from rightlung.models.preprocessing import letterbox
from rightlung.phantom.loader import PhantomBatch, PhantomLoader
from rightlung.phantom.report import write_report
from rightlung.phantom.source import PhantomSource
from rightlung.phantom.study import study_scene
from rightlung.phantom.truth import known_findings
from rightlung.studies.sources import Source
from rightlung.training.annotations import NO_FINDING, StudyAnnotations, annotate_scene, annotate_study
from rightlung.training.augmentation import to_device
from rightlung.training.recipe import DataEntry
from rightlung.training.targets.base import Column, RaggedTensor, StudyFrame, TargetBuilder, select_studies

CHUNK = {"cpu": 64, "cuda": 256}
"""Studies that are cached at a time."""
PHANTOMS_WITHOUT_WORKERS, STUDIES_WITHOUT_WORKERS = 256, 20_000
"""With fewer studies, starting worker processes takes longer than loading."""

ReportProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How the studies of an entry are loaded."""

    entry: DataEntry
    size: int  # pixels per side
    grid: int  # cells per side
    builders: Sequence[TargetBuilder]
    device: torch.device
    workers: int

    @property
    def builders_to_run(self) -> list[TargetBuilder]:
        """The targets that have to be built."""
        return [builder for builder in self.builders if builder.needs_build(self.entry)]

    def columns(self, build: Callable[[TargetBuilder], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what ``build`` returns for each target, by "target/name"."""
        return {f"{one.name}/{name}": value for one in self.builders_to_run for name, value in build(one).items()}

    def chunks(self, count: int, device: str) -> list[range]:
        """Return the numbers below ``count``, as many at a time as a device should make or read."""
        size = CHUNK.get(device, CHUNK["cpu"])
        return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


@dataclass(frozen=True, slots=True, eq=False)
class LoadedStudies:
    """The images of some studies and what their targets store, on the device."""

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
    def available_targets(self) -> frozenset[str]:
        """The targets that at least one study has."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong with the studies that were left out."""

    def __len__(self) -> int: ...

    def annotations(self, number: int, /) -> StudyAnnotations:
        """Return the annotations of a study."""

    def load(self, index_batches: Iterable[Sequence[int]]) -> Iterator[LoadedStudies]:
        """Yield the images and targets of each sequence of studies, in order."""


class CachedDataset:
    """Studies whose images and targets are all on the device."""

    def __init__(
        self,
        loaded: LoadedStudies,
        annotations: list[StudyAnnotations],
        available_targets: Iterable[str] = (),
        problems: Sequence[str] = (),
    ) -> None:
        self.loaded, self.available_targets, self.problems = loaded, frozenset(available_targets), problems
        self.findings = labelled_findings(annotations)
        self.annotations: Callable[[int], StudyAnnotations] = annotations.__getitem__

    def __len__(self) -> int:
        return len(self.loaded.images)

    def select(self, numbers: Sequence[int]) -> CachedDataset:
        """Return some of the studies."""
        return CachedDataset(
            self._select(numbers), [self.annotations(one) for one in numbers], self.available_targets, self.problems
        )

    def load(self, index_batches: Iterable[Sequence[int]]) -> Iterator[LoadedStudies]:
        """Yield the images and targets of each sequence of studies, in order."""
        return map(self._select, index_batches)

    def _select(self, numbers: Sequence[int]) -> LoadedStudies:
        images = self.loaded.images
        chosen = to_device(torch.tensor(list(numbers), dtype=torch.long), images.device)
        columns = {name: select_studies(column, numbers) for name, column in self.loaded.columns.items()}
        return LoadedStudies(images[chosen], self.loaded.grid, columns)

    @classmethod
    def from_parts(
        cls,
        parts: Iterable[tuple[LoadedStudies, list[StudyAnnotations]]],
        count: int,
        advance: ReportProgress,
        available_targets: Iterable[str],
        problems: Sequence[str] = (),
    ) -> CachedDataset:
        """Gather studies that come in parts; ``available_targets`` and ``problems`` may grow meanwhile."""
        images: Tensor | None = None
        columns: list[Mapping[str, Column]] = []
        annotations: list[StudyAnnotations] = []
        for loaded, own in parts:
            if images is None:  # in one piece from the beginning: joining parts would need the memory twice
                images = torch.empty(count, *loaded.images.shape[1:], dtype=torch.uint8, device=loaded.images.device)
            images[len(annotations) : len(annotations) + len(own)] = loaded.images
            columns.append(loaded.columns)
            annotations.extend(own)
            advance(len(own))
        if images is None or not annotations:
            raise InputError("none of the studies can be read")
        whole = {name: _joined([part[name] for part in columns]) for name in columns[0]}
        return cls(
            LoadedStudies(images[: len(annotations)], loaded.grid, whole), annotations, available_targets, problems
        )


def labelled_findings(annotations: Iterable[StudyAnnotations]) -> frozenset[str]:
    """Return every finding that the labels of some study name."""
    return frozenset(name for one in annotations for name in (*one.positive_findings, *one.absent))


def _stacked(built: Sequence[Any]) -> Column:
    if not isinstance(built[0], Tensor):
        return list(built)
    return RaggedTensor.of(torch.cat(list(built)), [len(one) for one in built])


def _joined(parts: Sequence[Column]) -> Column:
    if all(isinstance(part, RaggedTensor) for part in parts):
        counts = [count for part in parts for count in part.counts]  # type: ignore[union-attr]
        return RaggedTensor.of(torch.cat([part.values for part in parts]), counts)  # type: ignore[union-attr]
    return [value for part in parts for value in part]  # type: ignore[union-attr]


class PhantomDataset:
    """Phantom studies, made by worker processes and rendered on the device as they are needed."""

    def __init__(self, source: PhantomSource, options: LoadOptions) -> None:
        self.source, self.options = source, options
        self.findings = frozenset(known_findings()) - {NO_FINDING}
        self.available_targets = frozenset(builder.name for builder in options.builders)
        self.problems: Sequence[str] = ()
        self.annotations = lru_cache(maxsize=1 << 14)(self._annotate)

    def __len__(self) -> int:
        return len(self.source)

    def _annotate(self, number: int) -> StudyAnnotations:
        scene = study_scene(self.source.config, self.source.seed, self.source.indices[number])
        return annotate_scene(
            scene, write_report(scene, self.source.config, self.source.seed), self.options.entry.phrase_masks
        )

    def load(self, index_batches: Iterable[Sequence[int]]) -> Iterator[LoadedStudies]:
        """Yield the images and targets of each sequence of studies, in order."""
        return map(self._loaded, self._rendered(index_batches, self.options.workers))

    def cached(self, count: int, advance: ReportProgress) -> CachedDataset:
        """Render the first studies and hold them."""
        rendered = self._rendered(
            self.options.chunks(count, self.options.device.type),
            self.options.workers if count > PHANTOMS_WITHOUT_WORKERS else 0,
        )

        def parts() -> Iterator[tuple[LoadedStudies, list[StudyAnnotations]]]:
            for batch in rendered:
                pairs = zip(batch.scenes, batch.statements, strict=True)
                yield self._loaded(batch), [annotate_scene(*one, self.options.entry.phrase_masks) for one in pairs]

        return CachedDataset.from_parts(parts(), count, advance, self.available_targets)

    def _rendered(self, index_batches: Iterable[Sequence[int]], workers: int) -> Iterator[PhantomBatch]:
        stream = PhantomLoader(self.source.config, self.source.seed, self.options.size, self.options.device, workers)
        return stream.batches([self.source.indices[number] for number in numbers] for numbers in index_batches)

    def _loaded(self, batch: PhantomBatch) -> LoadedStudies:
        columns = self.options.columns(lambda builder: builder.build_from_rendering(batch, self.options.grid))
        return LoadedStudies((batch.rendering.images * 255).round_().to(torch.uint8), self.options.grid, columns)


class SourceDataset:
    """Studies of any source, read by worker processes as they are needed."""

    def __init__(self, source: Source, options: LoadOptions) -> None:
        self.reader, self.options = _Reader(source, options), options
        self.problems = [str(problem) for problem in source.problems]  # rows that the source itself leaves out

    def __len__(self) -> int:
        return len(self.reader)

    @cached_property
    def _known(self) -> list[tuple[StudyAnnotations, frozenset[str]]]:
        source = self.reader.source
        known = [
            (annotate_study(study, self.options.entry.phrase_masks)[0], self.reader.available_targets(study))
            for study in source
        ]
        if len(known) != len(source):
            raise InputError(f"source {source.address}: {source.problems[0]}")
        return known

    @cached_property
    def findings(self) -> frozenset[str]:
        """Every finding that the labels of some study name."""
        return labelled_findings(annotations for annotations, _ in self._known)

    @cached_property
    def available_targets(self) -> frozenset[str]:
        """The targets that at least one study has."""
        return frozenset().union(*(targets for _, targets in self._known))

    def annotations(self, number: int) -> StudyAnnotations:
        """Return the annotations of a study."""
        return self._known[number][0]

    def load(self, index_batches: Iterable[Sequence[int]]) -> Iterator[LoadedStudies]:
        """Yield the images and targets of each sequence of studies, in order."""
        for read in _loader(self.reader, index_batches, self.options.workers):
            if read.wrong:
                raise InputError(read.wrong[0])
            yield self._on_device(read)

    def cached(self, count: int, advance: ReportProgress) -> CachedDataset:
        """Read the first studies and hold them; unreadable ones are left out and listed in ``problems``.

        An error with the first reason is raised where more than half cannot be read.
        """
        unread: list[str] = []
        available_targets: set[str] = set()
        phantoms = isinstance(self.reader.source, PhantomSource)
        few = count <= (PHANTOMS_WITHOUT_WORKERS if phantoms else STUDIES_WITHOUT_WORKERS)
        chunks, workers = self.options.chunks(count, "cpu"), 0 if few else self.options.workers

        def parts() -> Iterator[tuple[LoadedStudies, list[StudyAnnotations]]]:
            for read in _loader(self.reader, chunks, workers):
                unread.extend(read.wrong)
                advance(len(read.wrong))
                available_targets.update(read.available_targets)
                if read.annotations:
                    yield self._on_device(read), read.annotations
            if 2 * len(unread) > count:
                raise InputError(
                    f"source {self.reader.source.address}: {len(unread):,} of {count:,} studies cannot be read, "
                    f"the first: {unread[0]}"
                )
            self.problems.extend(unread)

        return CachedDataset.from_parts(parts(), count, advance, available_targets, self.problems)

    def _on_device(self, read: _ReadStudies) -> LoadedStudies:
        def moved(column: Column) -> Column:
            if not isinstance(column, RaggedTensor):
                return column
            return RaggedTensor(to_device(column.values, self.options.device), column.first, column.counts)

        columns = {name: moved(column) for name, column in read.columns.items()}
        return LoadedStudies(to_device(read.images, self.options.device), self.options.grid, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _ReadStudies:
    """Studies that were read together: a few tensors, because each costs time where it changes processes."""

    images: Tensor  # (n, size, size) uint8
    annotations: list[StudyAnnotations]
    columns: Mapping[str, Column]
    available_targets: frozenset[str]
    wrong: Sequence[str]  # what is wrong with those that could not be read


_ReadStudy = tuple[Tensor, StudyAnnotations, Mapping[str, Any]]
"""One study: its image (size, size) uint8, its annotations, and what its targets store."""


class _Reader(torch.utils.data.Dataset["_ReadStudies"]):
    """Reads studies, or says what is wrong with them; this is what a data loader's workers run."""

    def __init__(self, source: Source, options: LoadOptions) -> None:
        self.source, self.options = source, options

    def __len__(self) -> int:
        return len(self.source)

    def available_targets(self, study: Any) -> frozenset[str]:
        return frozenset(builder.name for builder in self.options.builders if builder.available_in(study))

    def __getitems__(self, numbers: Sequence[int]) -> _ReadStudies:
        """Read several studies; phantoms are rendered together."""
        together = self.source.__getitems__(numbers) if isinstance(self.source, PhantomSource) else None
        wrong, read, available = list[str](), list[_ReadStudy](), set[str]()
        for place, number in enumerate(numbers):
            try:
                study = self.source[number] if together is None else together[place]
                read.append(self._read(study))
            except InputError as error:
                wrong.append(str(error))
            else:
                available |= self.available_targets(study)
        size = self.options.size
        images = torch.stack([one[0] for one in read]) if read else torch.empty(0, size, size, dtype=torch.uint8)
        columns = {name: _stacked([one[2][name] for one in read]) for name in (read[0][2] if read else ())}
        return _ReadStudies(images, [one[1] for one in read], columns, frozenset(available), wrong)

    def _read(self, study: Study) -> _ReadStudy:
        square, extent = letterbox(np.asarray(study.image), self.options.size)
        annotations, locations = annotate_study(study, self.options.entry.phrase_masks)
        frame = StudyFrame(self.options.size, self.options.grid, extent, locations)
        columns = self.options.columns(lambda builder: builder.build(study, annotations, frame))
        return (square * 255).round_().to(torch.uint8), annotations, columns


def _loader(reader: _Reader, index_batches: Iterable[Sequence[int]], workers: int) -> Iterable[_ReadStudies]:
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    return torch.utils.data.DataLoader(
        reader,
        batch_sampler=index_batches,  # type: ignore[arg-type]  # any iterable of numbers will do
        num_workers=workers,
        collate_fn=_as_read,
        generator=torch.Generator(),  # its own, so that no other random numbers are used up
        multiprocessing_context="spawn" if workers else None,
        worker_init_fn=_use_one_thread if workers else None,
    )


def _as_read(read: Any) -> Any:
    return read


def _use_one_thread(_: int) -> None:
    """Keep a worker's linear algebra from using all cores, as torch's already is."""
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    threadpool_limits(1)
