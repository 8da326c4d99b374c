"""Training batches as a function of the recipe, the batch's number and the process; no state is kept between them.

So a resumed run needs no replaying, and any batch can be drawn again. Each process draws its part of one joint batch:
``N`` processes of ``b`` images see what one process of ``N * b`` sees.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import InputError
from rightlung.core.keyed import Stream, key_number
from rightlung.lexicon.side_changes import mirrored
from rightlung.models.base import Target, TrainingBatch
from rightlung.training.augmentation import Augmentation, apply_changes, draw_changes, on_device
from rightlung.training.curves import value_at
from rightlung.training.datasets import Dataset, Samples
from rightlung.training.recipe import Data, DataEntry
from rightlung.training.study_texts import StudyTexts, draw_texts, hide_entities, hide_words
from rightlung.training.targets import target_builders
from rightlung.training.targets.base import BatchPart, Drawing

SHUFFLED = 2_000_000
"""The largest source that is shuffled; the studies of larger ones (phantoms) come in their order."""

Words = tuple[list[str], dict[str, Any]]
"""The texts of an image, and what each target drew for it."""


def step_seed(*key: object) -> int:
    """Return a seed for a generator that follows from a key."""
    return key_number(*key) >> 1


class Sampler:
    """Numbers below ``count``, shuffled over and over: each comes once before any comes again."""

    def __init__(self, count: int, *key: object) -> None:
        self.count, self.key = count, key
        self._round = lru_cache(maxsize=4)(self._shuffled)

    def numbers(self, begin: int, end: int) -> list[int]:
        """Return the numbers at these positions of the endless sequence."""
        if self.count > SHUFFLED:
            return [place % self.count for place in range(begin, end)]
        return [int(self._round(place // self.count)[place % self.count]) for place in range(begin, end)]

    def _shuffled(self, number: int) -> NDArray[np.int64]:
        generator = torch.Generator().manual_seed(step_seed(*self.key, "round", number))
        return torch.randperm(self.count, generator=generator).numpy()


def divided(size: int, shares: Sequence[float]) -> list[int]:
    """Return how many of ``size`` images each share gets, rounded so that they add up."""
    exact = [size * share / sum(shares) for share in shares]
    counts = [int(value) for value in exact]
    by_rest = sorted(range(len(shares)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_rest[: size - sum(counts)]:
        counts[number] += 1
    return counts


class Mixture:
    """How many images each entry gives to each joint batch, and how the processes divide them.

    Everything follows from the seed and the batch's number, so that all processes agree.
    """

    def __init__(
        self,
        entries: Sequence[DataEntry],
        size: int,
        key: Sequence[object],
        draw: Literal["all", "one"] = "all",
        run: int = 1,
        world: int = 1,
    ) -> None:
        """``size`` is the batch size of one process, and ``run`` the number of batches of the whole run."""
        self.entries, self.size, self.key, self.draw, self.run, self.world = entries, size, key, draw, run, world
        self.constant = draw == "all" and all(
            isinstance(entry.share, int | float) and entry.probability == 1 for entry in entries
        )
        self.unit = 2 if not self.constant and any(entry.mirrored for entry in entries) else 1
        self.joint = lru_cache(maxsize=1000)(self._joint)
        self._before = [[0] * len(entries)]
        curves = [curve for entry in entries for curve in (entry.share, entry.probability)]
        points = [point for curve in curves if isinstance(curve, list | tuple) for point in curve]
        for fraction in sorted({0.0, *(fraction for fraction, _ in points)}):
            self._chances(fraction)
        counts = [self.counts(0, rank) for rank in range(world)]
        for number, entry in enumerate(entries):
            if self.constant and not any(own[number] for own in counts):
                raise InputError(
                    f"data.train[{number}].share: {entry.share:g} of a batch of {size} is less than one image"
                )
            odd = [own[number] for own in counts if own[number] % 2] if self.constant else [size] * (size % 2)
            if entry.mirrored and odd:
                raise InputError(f"data.train[{number}].mirrored needs an even number of images a batch; got {odd[0]}")

    def _joint(self, number: int) -> list[int]:
        """Return how many images of the joint batch come from each entry."""
        shares = self._shares(min(1.0, number / self.run), Stream(*self.key, "entries", number))
        return [self.unit * count for count in divided(self.size * self.world // self.unit, shares)]

    def _shares(self, fraction: float, stream: Stream) -> list[float]:
        shares, chances = self._chances(fraction)
        if self.constant:
            return shares
        drawn: list[float] = []
        while not any(drawn):  # where chance leaves out every entry, it is drawn again
            drawn = [share if stream.chance(chance) else 0.0 for share, chance in zip(shares, chances, strict=True)]
        if self.draw == "one":
            chosen = stream.weighted(enumerate(drawn))
            drawn = [float(place == chosen) for place in range(len(drawn))]
        return drawn

    def _chances(self, fraction: float) -> tuple[list[float], list[float]]:
        """Return the entries' shares, and the probabilities with which they take part."""
        shares = [value_at(entry.share, fraction) for entry in self.entries]
        chances = [value_at(entry.probability, fraction) for entry in self.entries]
        if not any(share * chance for share, chance in zip(shares, chances, strict=True)):
            raise InputError(f"data.train: no entry has a share and a probability above 0 at {fraction:.0%} of the run")
        return shares, chances

    def counts(self, number: int, rank: int) -> list[int]:
        """Return how many images one process has of each entry: distributed round-robin, so that all have as many."""
        units = [count // self.unit for count in self.joint(number)]
        ends = list(accumulate(units, initial=0))
        dealt = [(end + self.world - 1 - rank) // self.world for end in ends]  # units below each end that are its own
        return [self.unit * (end - begin) for begin, end in pairwise(dealt)]

    def studies(self, number: int, place: int, rank: int) -> range:
        """Return the positions of one process's studies among all that an entry gives in the run."""
        before, own = sum(self.counts(number, one)[place] for one in range(rank)), self.counts(number, rank)[place]
        images = self.images(place)
        return self.joint_studies(number, place)[before // images : (before + own) // images]

    def images(self, place: int) -> int:
        """Return how many images each study of an entry gives."""
        return 2 if self.entries[place].mirrored else 1

    def joint_studies(self, number: int, place: int) -> range:
        """Return the positions of all processes' studies."""
        begin = self._begin(number, place)
        return range(begin, begin + self.joint(number)[place] // self.images(place))

    def _begin(self, number: int, place: int) -> int:
        if self.constant:
            return number * self.joint(0)[place] // self.images(place)
        while len(self._before) <= number:
            last = len(self._before) - 1
            self._before.append([self.joint_studies(last, one).stop for one in range(len(self.entries))])
        return self._before[number][place]


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
        world: int = 1,
        name: str = "train",
        data: Data | None = None,
        run: int = 1,
    ) -> None:
        """``data`` names targets and how entries are mixed; ``run`` is the number of batches of the whole run."""
        self.entries, self.size, self.seed, self.device = entries, size, seed, device
        self.augmentation, self.rank, self.world, self.name = augmentation, rank, world, name
        data = data or Data(train=tuple(entry for entry, _ in entries))
        self.builders = target_builders(data)
        self.mixture = Mixture([entry for entry, _ in entries], size, (seed, name), data.draw, run, world)
        self.samplers = [Sampler(len(studies), seed, name, number) for number, (_, studies) in enumerate(entries)]

    def from_number(self, first: int, last: int) -> Generator[TrainingBatch, None, None]:
        """Yield the batches from ``first`` on, up to but not including ``last``."""

        def own(place: int) -> Iterator[list[int]]:
            return (numbers for number in range(first, last) if (numbers := self._own(place, number)))

        loaded = [studies.load(own(place)) for place, (_, studies) in enumerate(self.entries)]
        for number in range(first, last):
            places = [place for place, count in enumerate(self.mixture.counts(number, self.rank)) if count]
            yield _together([self._draw(place, number, next(loaded[place])) for place in places])

    def one(self, number: int) -> TrainingBatch:
        """Return one batch, the same as in its turn."""
        return next(self.from_number(number, number + 1))

    def _own(self, place: int, number: int) -> list[int]:
        """Return the studies of this process's images."""
        positions = self.mixture.studies(number, place, self.rank)
        own = self.samplers[place].numbers(positions.start, positions.stop)
        return own * self.mixture.images(place)

    def _draw(self, place: int, number: int, samples: Samples) -> TrainingBatch:
        """Draw the part of a batch that one entry gives."""
        entry, studies = self.entries[place]
        words, flips = self._words(place, number)
        images = samples.images[:, None].float() / 255
        flipped = on_device(torch.tensor(flips), self.device)
        changes = None
        if self.augmentation is not None:
            generator = torch.Generator().manual_seed(step_seed(self.seed, self.name, place, number, "augmentation"))
            rows, total = self._rows(place, number), self.mixture.joint(number)[place]
            changes = draw_changes(images.shape, self.augmentation, generator, rows, total, self.device)
            if any(flips):
                changes = replace(changes, mirrored=flipped)
            images = apply_changes(images, changes)
        elif any(flips):
            images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
        texts = [studies.texts(study) for study in self._own(place, number)]
        targets: dict[str, Target] = {}
        for builder in self.builders:
            own, name = [drawn[builder.name] for _, drawn in words], builder.name
            part = BatchPart(entry, texts, samples.columns_of(name), own, flipped, changes, samples.grid)
            targets[name] = builder.collate(part)
        return TrainingBatch(
            images=images,
            texts=[text for own_texts, _ in words for text in own_texts],
            ids=[one.id for one in texts],
            image_of_text=[image for image in range(len(images)) for _ in range(entry.texts)],
            targets=targets,
        )

    def _rows(self, place: int, number: int) -> Tensor:
        """Return the rows of this process's images in the joint batch, which has all mirror images at its end."""
        own, joint = self.mixture.studies(number, place, self.rank), self.mixture.joint_studies(number, place)
        first = torch.arange(own.start - joint.start, own.stop - joint.start)
        return torch.cat([first + turn * len(joint) for turn in range(self.mixture.images(place))])

    def _words(self, place: int, number: int) -> tuple[list[Words], list[bool]]:
        """Draw the words of this process's images, and which images are mirrored.

        Each image has a stream of its own, whichever process draws it.
        """
        entry = self.entries[place][0]
        joint = self.mixture.joint_studies(number, place)
        drawn = [self._drawn(place, at, joint) for at in self.mixture.studies(number, place, self.rank)]
        share = 0.0 if self.augmentation is None else self.augmentation.mirror
        words: list[Words] = []
        flips: list[bool] = []
        for image in range(self.mixture.counts(number, self.rank)[place]):
            texts, of_targets, stream = drawn[image % len(drawn)]
            flip = image >= len(drawn) if entry.mirrored else stream.chance(share)
            if flip:
                # Texts without a mirror image (the lingula has no partner) are left out. Where all are such, or a
                # target has words without one, the image stays as it is.
                turned = [other for text in texts if (other := mirrored(text)) is not None]
                others = {builder.name: builder.mirror(of_targets[builder.name]) for builder in self.builders}
                flip = bool(turned) and None not in others.values()
                if flip:
                    texts, of_targets = [turned[number % len(turned)] for number in range(len(texts))], others
            words.append(([_hidden(text, entry, stream) for text in texts], of_targets))
            flips.append(flip)
        return words, flips

    def _drawn(self, place: int, at: int, joint: range) -> tuple[list[str], dict[str, Any], Stream]:
        """Draw the words of the study at a position of the sampler, and return the stream that they come from."""
        entry, studies = self.entries[place]
        sampler = self.samplers[place]
        number = sampler.numbers(at, at + 1)[0]
        stream = Stream(self.seed, self.name, place, *((at,) if entry.examples is None else ("study", number)), "words")
        own = studies.texts(number)

        def other() -> StudyTexts:
            if entry.examples is not None:  # independent of the rest of the batch
                return studies.texts(stream.integer(0, len(studies) - 1))
            position = stream.integer(joint.start, joint.stop - 1)
            return studies.texts(sampler.numbers(position, position + 1)[0])

        paired = own
        if entry.text_of == "another":  # of all studies: those of the batch would also be negatives of their own images
            if len(studies) < 2:
                raise InputError(f"data.train[{place}].text_of 'another' needs at least two studies")
            paired = studies.texts((number + stream.integer(1, len(studies) - 1)) % len(studies))
        texts = draw_texts(paired, entry, stream)
        drawing = Drawing(entry, stream, other, studies.findings)
        return texts, {builder.name: builder.draw(own, drawing) for builder in self.builders}, stream


def _hidden(text: str, entry: DataEntry, stream: Stream) -> str:
    if entry.masked_words:
        text = hide_words(text, entry.masked_words, stream)
    return hide_entities(text, entry.masked_entities, stream) if entry.masked_entities else text


def _together(parts: Sequence[TrainingBatch]) -> TrainingBatch:
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
        elif key == "images":
            joined[key] = [before + int(one) for before, part in zip(first, parts, strict=True) for one in part[key]]
        else:
            joined[key] = [one for part in parts for one in part[key]]
    return joined
