"""Training batches as a function of the recipe, the batch's index and the process; no state is kept between them.

So a resumed run need not regenerate earlier batches, and any batch can be drawn again. Each process draws its
part of one global batch: ``N`` processes of ``b`` images see what one process of ``N * b`` sees.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import InputError
from rightlung.core.keyed import RandomStream, key_number
from rightlung.lexicon.side_changes import mirrored
from rightlung.models.base import Target, TrainingBatch
from rightlung.training.annotations import StudyAnnotations, draw_texts, mask_entities, mask_words
from rightlung.training.augmentation import Augmentation, apply_params, sample_params, to_device
from rightlung.training.curves import value_at
from rightlung.training.datasets import Dataset, LoadedStudies
from rightlung.training.film_matching import matched_to_films, read_films
from rightlung.training.recipe import Data, DataEntry
from rightlung.training.targets import target_builders
from rightlung.training.targets.base import BatchPart, DrawContext

SWITCH_INTERVAL = 2e-4
"""Seconds after which the threads that draw and use batches take turns."""
LARGEST_SHUFFLED = 2_000_000
"""The largest source that is shuffled; the studies of larger ones (phantoms) come in their order."""

Words = tuple[list[str], dict[str, Any]]
"""The texts of an image, and what each target drew for it."""


def seed_from_key(*key: object) -> int:
    """Return a seed for a generator that follows from a key."""
    return key_number(*key) >> 1


class Sampler:
    """Indices below ``count``, shuffled over and over: each comes once before any comes again."""

    def __init__(self, count: int, *key: object) -> None:
        self.count, self.key = count, key
        self._epoch = lru_cache(maxsize=4)(self._shuffled)

    def indices(self, begin: int, end: int) -> list[int]:
        """Return the indices at these positions of the endless sequence."""
        if self.count > LARGEST_SHUFFLED:
            return [position % self.count for position in range(begin, end)]
        return [int(self._epoch(position // self.count)[position % self.count]) for position in range(begin, end)]

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        generator = torch.Generator().manual_seed(seed_from_key(*self.key, "round", epoch))
        return torch.randperm(self.count, generator=generator).numpy()


def split_by_shares(size: int, shares: Sequence[float]) -> list[int]:
    """Return how many of ``size`` images each share gets, rounded so that they add up."""
    exact = [size * share / sum(shares) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda index: (counts[index] - exact[index], index))
    for index in by_remainder[: size - sum(counts)]:
        counts[index] += 1
    return counts


class Mixture:
    """How many images each entry gives to each global batch, and how the processes divide them.

    Everything follows from the seed and the batch's index, so that all processes agree.
    """

    def __init__(
        self,
        entries: Sequence[DataEntry],
        size: int,
        key: Sequence[object],
        sources_per_batch: Literal["all", "one"] = "all",
        total_batches: int = 1,
        world_size: int = 1,
    ) -> None:
        """``size`` is the batch size of one process, and ``total_batches`` the number of batches of the run."""
        self.entries, self.size, self.key, self.world_size = entries, size, key, world_size
        self.sources_per_batch, self.total_batches = sources_per_batch, total_batches
        self.sharing = [index for index, entry in enumerate(entries) if not entry.added_images]
        sharing = [entries[index] for index in self.sharing]
        self.fixed_counts = sources_per_batch == "all" and all(
            isinstance(entry.share, int | float) and entry.probability == 1 for entry in sharing
        )
        self.images_dealt_together = 2 if not self.fixed_counts and any(entry.mirror_pairs for entry in sharing) else 1
        self.global_counts = lru_cache(maxsize=1000)(self._global_counts)
        self._before = [[0] * len(entries)]
        curves = [curve for entry in sharing for curve in (entry.share, entry.probability)]
        points = [point for curve in curves if isinstance(curve, list | tuple) for point in curve]
        for fraction in sorted({0.0, *(fraction for fraction, _ in points)}):
            self._chances(fraction)
        counts = [self.counts(0, rank) for rank in range(world_size)]
        for index in self.sharing:
            entry = entries[index]
            if self.fixed_counts and not any(own[index] for own in counts):
                raise InputError(
                    f"data.train[{index}].share: {entry.share:g} of a batch of {size} is less than one image"
                )
            odd = [own[index] for own in counts if own[index] % 2] if self.fixed_counts else [size] * (size % 2)
            if entry.mirror_pairs and odd:
                raise InputError(
                    f"data.train[{index}].mirror_pairs needs an even number of images a batch; got {odd[0]}"
                )

    def _global_counts(self, batch_index: int) -> list[int]:
        """Return how many images of the global batch come from each entry."""
        fraction = min(1.0, batch_index / self.total_batches)
        shares = self._shares(fraction, RandomStream(*self.key, "entries", batch_index))
        groups = self.size * self.world_size // self.images_dealt_together
        shared = iter(self.images_dealt_together * count for count in split_by_shares(groups, shares))
        return [
            next(shared) if index in self.sharing else self.world_size * self._added(index, batch_index)
            for index in range(len(self.entries))
        ]

    def _added(self, entry_index: int, batch_index: int) -> int:
        """Return how many images an entry adds to the batch of each process.

        The draw has a key of its own, so that the other entries give the same images with and without this one.
        """
        entry = self.entries[entry_index]
        chance = value_at(entry.probability, min(1.0, batch_index / self.total_batches))
        takes_part = RandomStream(*self.key, "added", entry_index, batch_index).chance(chance)
        return entry.added_images if takes_part else 0

    def _shares(self, fraction: float, stream: RandomStream) -> list[float]:
        shares, chances = self._chances(fraction)
        if self.fixed_counts:
            return shares
        drawn: list[float] = []
        while not any(drawn):  # where chance leaves out every entry, it is drawn again
            drawn = [share if stream.chance(chance) else 0.0 for share, chance in zip(shares, chances, strict=True)]
        if self.sources_per_batch == "one":
            chosen = stream.weighted(enumerate(drawn))
            drawn = [float(index == chosen) for index in range(len(drawn))]
        return drawn

    def _chances(self, fraction: float) -> tuple[list[float], list[float]]:
        """Return the shares of the entries that share a batch, and the probabilities with which they take part."""
        entries = [self.entries[index] for index in self.sharing]
        shares = [value_at(entry.share, fraction) for entry in entries]
        chances = [value_at(entry.probability, fraction) for entry in entries]
        if not any(share * chance for share, chance in zip(shares, chances, strict=True)):
            raise InputError(f"data.train: no entry has a share and a probability above 0 at {fraction:.0%} of the run")
        return shares, chances

    def counts(self, batch_index: int, rank: int) -> list[int]:
        """Return one process's images of each entry, dealt round-robin so that every process gets the same number."""
        counts = [count // self.world_size for count in self.global_counts(batch_index)]  # of entries that add images
        units = [self.global_counts(batch_index)[index] // self.images_dealt_together for index in self.sharing]
        ends = list(accumulate(units, initial=0))
        # How many of the units below each end are its own.
        dealt = [(end + self.world_size - 1 - rank) // self.world_size for end in ends]
        for index, (begin, end) in zip(self.sharing, pairwise(dealt), strict=True):
            counts[index] = self.images_dealt_together * (end - begin)
        return counts

    def study_positions(self, batch_index: int, entry_index: int, rank: int) -> range:
        """Return the positions of one process's studies among all studies that an entry gives in the run."""
        before, own = (
            sum(self.counts(batch_index, one)[entry_index] for one in range(rank)),
            self.counts(batch_index, rank)[entry_index],
        )
        images = self.images_per_study(entry_index)
        return self.global_study_positions(batch_index, entry_index)[before // images : (before + own) // images]

    def images_per_study(self, entry_index: int) -> int:
        """Return how many images each study of an entry gives."""
        return 2 if self.entries[entry_index].mirror_pairs else 1

    def global_study_positions(self, batch_index: int, entry_index: int) -> range:
        """Return the positions of all processes' studies."""
        begin = self._begin(batch_index, entry_index)
        return range(begin, begin + self.global_counts(batch_index)[entry_index] // self.images_per_study(entry_index))

    def _begin(self, batch_index: int, entry_index: int) -> int:
        if self.fixed_counts and entry_index in self.sharing:
            return batch_index * self.global_counts(0)[entry_index] // self.images_per_study(entry_index)
        while len(self._before) <= batch_index:
            last = len(self._before) - 1
            self._before.append([self.global_study_positions(last, one).stop for one in range(len(self.entries))])
        return self._before[batch_index][entry_index]


class Batches:
    """The batches of a run for one of its processes."""

    def __init__(
        self,
        entries: Sequence[tuple[DataEntry, Dataset]],
        size: int,
        seed: int,
        device: torch.device,
        augmentation: Augmentation | None = None,
        rank: int = 0,
        world_size: int = 1,
        name: str = "train",
        data: Data | None = None,
        total_batches: int = 1,
    ) -> None:
        """``data`` names targets and how entries are mixed; ``total_batches`` is the number of batches of the run."""
        self.entries, self.size, self.seed, self.device = entries, size, seed, device
        self.augmentation, self.rank, self.world_size, self.name = augmentation, rank, world_size, name
        data = data or Data(train=tuple(entry for entry, _ in entries))
        self.builders = target_builders(data)
        self.mixture = Mixture(
            [entry for entry, _ in entries], size, (seed, name), data.sources_per_batch, total_batches, world_size
        )
        self.samplers = [Sampler(len(studies), seed, name, index) for index, (_, studies) in enumerate(entries)]

    def iterate(self, first: int, last: int) -> Generator[TrainingBatch, None, None]:
        """Yield the batches from ``first`` on, up to but not including ``last``."""

        def own(entry_index: int) -> Iterator[list[int]]:
            return (indices for batch_index in range(first, last) if (indices := self._own(entry_index, batch_index)))

        loaded = [studies.load(own(entry_index)) for entry_index, (_, studies) in enumerate(self.entries)]
        for batch_index in range(first, last):
            entries = [
                entry_index for entry_index, count in enumerate(self.mixture.counts(batch_index, self.rank)) if count
            ]
            parts = [self._draw(entry_index, batch_index, next(loaded[entry_index])) for entry_index in entries]
            yield replace(_concatenate(parts), seed=seed_from_key(self.seed, self.name, batch_index, "model"))

    def batch_at(self, batch_index: int) -> TrainingBatch:
        """Return one batch, the same as in its turn."""
        return next(self.iterate(batch_index, batch_index + 1))

    def _own(self, entry_index: int, batch_index: int) -> list[int]:
        """Return the studies of this process's images."""
        positions = self.mixture.study_positions(batch_index, entry_index, self.rank)
        own = self.samplers[entry_index].indices(positions.start, positions.stop)
        return own * self.mixture.images_per_study(entry_index)

    def _draw(self, entry_index: int, batch_index: int, loaded: LoadedStudies) -> TrainingBatch:
        """Draw the part of a batch that one entry gives."""
        entry, studies = self.entries[entry_index]
        words, flips = self._words(entry_index, batch_index)
        images = loaded.images[:, None].float() / 255
        rows, total = self._rows(entry_index, batch_index), self.mixture.global_counts(batch_index)[entry_index]
        if (match := entry.match_to) is not None:
            generator = torch.Generator().manual_seed(
                seed_from_key(self.seed, self.name, entry_index, batch_index, "films")
            )
            films = read_films(match.source, match.films, images.shape[-1], self.device)
            images = matched_to_films(images, match, films, generator, rows, total)
        flipped = to_device(torch.tensor(flips), self.device)
        params = None
        if self.augmentation is not None:
            generator = torch.Generator().manual_seed(
                seed_from_key(self.seed, self.name, entry_index, batch_index, "augmentation")
            )
            params = sample_params(images.shape, self.augmentation, generator, rows, total, self.device)
            if any(flips):
                params = replace(params, mirrored=flipped)
            images = apply_params(images, params)
        elif any(flips):
            images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
        exchanged = flipped & self._mirrors_words(entry)
        annotations = [studies.annotations(study) for study in self._own(entry_index, batch_index)]
        targets: dict[str, Target] = {}
        for builder in self.builders:
            own, name = [drawn[builder.name] for _, drawn in words], builder.name
            columns, findings = loaded.columns_of(name), studies.findings
            part = BatchPart(entry, annotations, columns, own, flipped, exchanged, params, loaded.grid, findings)
            targets[name] = builder.collate(part)
        return TrainingBatch(
            images=images,
            texts=[text for own_texts, _ in words for text in own_texts],
            ids=[one.id for one in annotations],
            image_of_text=[image for image in range(len(images)) for _ in range(entry.texts_per_image)],
            targets=targets,
        )

    def _rows(self, entry_index: int, batch_index: int) -> Tensor:
        """Return the rows of this process's images in the global batch, which has all mirror images at its end."""
        own, all_studies = (
            self.mixture.study_positions(batch_index, entry_index, self.rank),
            self.mixture.global_study_positions(batch_index, entry_index),
        )
        first = torch.arange(own.start - all_studies.start, own.stop - all_studies.start)
        images_per_study = self.mixture.images_per_study(entry_index)
        return torch.cat([first + turn * len(all_studies) for turn in range(images_per_study)])

    def _words(self, entry_index: int, batch_index: int) -> tuple[list[Words], list[bool]]:
        """Draw the words of this process's images, and which images are mirrored.

        Each image has a stream of its own, whichever process draws it.
        """
        entry = self.entries[entry_index][0]
        all_studies = self.mixture.global_study_positions(batch_index, entry_index)
        drawn = [
            self._drawn(entry_index, at, all_studies)
            for at in self.mixture.study_positions(batch_index, entry_index, self.rank)
        ]
        mirrored_share = 0.0 if self.augmentation is None else self.augmentation.mirrored_share
        words: list[Words] = []
        flips: list[bool] = []
        for image in range(self.mixture.counts(batch_index, self.rank)[entry_index]):
            texts, of_targets, stream = drawn[image % len(drawn)]
            flip = image >= len(drawn) if entry.mirror_pairs else stream.chance(mirrored_share)
            if flip and self._mirrors_words(entry):
                # Texts without a mirror image (the lingula has no partner) are left out. Where all are such, or a
                # target has words without one, the image stays as it is.
                turned = [other for text in texts if (other := mirrored(text)) is not None]
                others = {builder.name: builder.mirror(of_targets[builder.name]) for builder in self.builders}
                flip = bool(turned or not texts) and None not in others.values()
                if flip:
                    texts, of_targets = [turned[index % len(turned)] for index in range(len(texts))], others
            words.append(([_hidden(text, entry, stream) for text in texts], of_targets))
            flips.append(flip)
        return words, flips

    def _mirrors_words(self, entry: DataEntry) -> bool:
        """Whether the words and region names of an entry's mirrored images are mirrored, too."""
        return entry.mirror_pairs or self.augmentation is None or self.augmentation.mirror != "pixels"

    def _drawn(self, entry_index: int, at: int, all_studies: range) -> tuple[list[str], dict[str, Any], RandomStream]:
        """Draw the words of the study at a position of the sampler, and return the stream that they come from."""
        entry, studies = self.entries[entry_index]
        sampler = self.samplers[entry_index]
        study = sampler.indices(at, at + 1)[0]
        stream = RandomStream(
            self.seed, self.name, entry_index, *((at,) if entry.few_shot_studies is None else ("study", study)), "words"
        )
        own = studies.annotations(study)

        def other() -> StudyAnnotations:
            if entry.few_shot_studies is not None:  # independent of the rest of the batch
                return studies.annotations(stream.integer(0, len(studies) - 1))
            position = stream.integer(all_studies.start, all_studies.stop - 1)
            return studies.annotations(sampler.indices(position, position + 1)[0])

        paired = own
        if entry.pairing == "random":  # of all studies: those of the batch would also be negatives of their own images
            if len(studies) < 2:
                raise InputError(f"data.train[{entry_index}].pairing 'random' needs at least two studies")
            paired = studies.annotations((study + stream.integer(1, len(studies) - 1)) % len(studies))
        texts = draw_texts(paired, entry, stream)
        context = DrawContext(entry, stream, other, studies.findings, texts)
        return texts, {builder.name: builder.draw(own, context) for builder in self.builders}, stream


def prefetched(batches: Iterator[TrainingBatch]) -> Generator[TrainingBatch, None, None]:
    """Yield the same batches, each drawn by a thread while the one before is used.

    A GPU computes meanwhile: drawing words takes about as long as a step of a small model. Both threads run Python, so
    they take turns more often than usual: otherwise the step often waits for the draw (a third of the time is saved).
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with ThreadPoolExecutor(1) as thread:
            following = thread.submit(next, batches, None)
            while (batch := following.result()) is not None:
                following = thread.submit(next, batches, None)
                yield batch
    finally:
        sys.setswitchinterval(interval)


def _hidden(text: str, entry: DataEntry, stream: RandomStream) -> str:
    if entry.word_mask_probability:
        text = mask_words(text, entry.word_mask_probability, stream)
    return mask_entities(text, entry.entity_mask_probability, stream) if entry.entity_mask_probability else text


def _concatenate(parts: Sequence[TrainingBatch]) -> TrainingBatch:
    if len(parts) == 1:
        return parts[0]
    first = list(accumulate(map(len, parts), initial=0))[:-1]  # images of the parts before each
    return TrainingBatch(
        images=torch.cat([part.images for part in parts]),
        texts=[text for part in parts for text in part.texts],
        ids=[name for part in parts for name in part.ids],
        image_of_text=[
            before + image for before, part in zip(first, parts, strict=True) for image in part.image_of_text
        ],
        targets={name: _joined([part.targets[name] for part in parts], first) for name in parts[0].targets},
    )


def _joined(parts: Sequence[Target], first: Sequence[int]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for key, value in parts[0].items():
        if isinstance(value, Tensor):
            joined[key] = torch.cat([part[key] for part in parts])
        elif key == "image_indices":
            joined[key] = [before + int(one) for before, part in zip(first, parts, strict=True) for one in part[key]]
        else:
            joined[key] = [one for part in parts for one in part[key]]
    return joined
