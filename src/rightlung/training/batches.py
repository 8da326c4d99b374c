"""Training batches as a function of the recipe, the step and the process: nothing is remembered between them.

So a run that goes on after an interruption needs no replaying, and any batch can be drawn again to look at it. Each
process draws its part of one joint batch: ``N`` processes of ``b`` images see what one process of ``N * b`` sees.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from rightlung.core import InputError
from rightlung.lexicon.side_changes import mirrored
from rightlung.models.base import TrainingBatch
from rightlung.phantom.streams import Stream, key_number
from rightlung.training.augmentation import Augmentation, apply_changes, draw_changes_alike, move_masks, on_device
from rightlung.training.facts import Facts
from rightlung.training.phrases import Asked, draw_phrases, draw_text
from rightlung.training.pools import Pictures, Studies
from rightlung.training.recipe import DataEntry

SHUFFLED = 2_000_000
"""Studies up to which a source is shuffled; more of them (phantoms, which are alike everywhere) come in their order."""


def step_seed(*key: object) -> int:
    """Return a seed for a generator that follows from a key."""
    return key_number(*key) >> 1


class Deck:
    """Numbers below ``count``, shuffled over and over: each comes once before any comes again."""

    def __init__(self, count: int, *key: object) -> None:
        self.count, self.key = count, key
        self._rounds: dict[int, NDArray[np.int64]] = {}

    def numbers(self, begin: int, end: int) -> list[int]:
        """Return the numbers at these places of the endless row."""
        if self.count > SHUFFLED:
            return [place % self.count for place in range(begin, end)]
        return [int(self._round(place // self.count)[place % self.count]) for place in range(begin, end)]

    def _round(self, number: int) -> NDArray[np.int64]:
        if number not in self._rounds:
            for old in [known for known in self._rounds if known < number - 1]:
                del self._rounds[old]
            generator = torch.Generator().manual_seed(step_seed(*self.key, "round", number))
            self._rounds[number] = torch.randperm(self.count, generator=generator).numpy()
        return self._rounds[number]


def divided(size: int, entries: Sequence[DataEntry]) -> list[int]:
    """Return how many of a batch's images come from each entry: shares rounded so that they add up."""
    total = sum(entry.share for entry in entries)
    exact = [size * entry.share / total for entry in entries]
    counts = [int(value) for value in exact]
    by_rest = sorted(range(len(entries)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_rest[: size - sum(counts)]:
        counts[number] += 1
    for number, count in enumerate(counts):
        if not count:
            raise InputError(
                f"data.train[{number}].share: {entries[number].share:g} of a batch of {size} is less than one image"
            )
    return counts


@dataclass(frozen=True, slots=True)
class _Words:
    """Texts and phrases of some images."""

    texts: list[str]
    asked: list[tuple[int, Asked]]  # with the image that each is asked of
    flipped: list[bool]


class Batches:
    """The batches of a run for one of its processes."""

    def __init__(
        self,
        entries: Sequence[tuple[DataEntry, Studies]],
        size: int,
        seed: int,
        device: torch.device,
        augmentation: Augmentation | None = None,
        rank: int = 0,
        world: int = 1,
        name: str = "train",
    ) -> None:
        self.entries, self.size, self.seed, self.device = entries, size, seed, device
        self.augmentation, self.rank, self.world, self.name = augmentation, rank, world, name
        self.counts = divided(size, [entry for entry, _ in entries])
        self.decks = [Deck(len(studies), seed, name, number) for number, (_, studies) in enumerate(entries)]

    def from_number(self, first: int, last: int | None = None) -> Generator[TrainingBatch, None, None]:
        """Yield the batches from ``first`` on, up to but not including ``last``."""
        dealt = [studies.deal(self._all_own(place, first, last)) for place, (_, studies) in enumerate(self.entries)]
        for number in _counting(first, last):
            yield _together([self._draw(place, number, next(pictures)) for place, pictures in enumerate(dealt)])

    def one(self, number: int) -> TrainingBatch:
        """Return one batch, the same as when it came in its turn."""
        return next(self.from_number(number, number + 1))

    def _range(self, place: int, number: int) -> range:
        """Where the joint batch of an entry lies in its deck."""
        together = self.counts[place] * self.world
        return range(number * together, (number + 1) * together)

    def _own(self, place: int, number: int) -> list[int]:
        begin = self._range(place, number).start + self.rank * self.counts[place]
        return self.decks[place].numbers(begin, begin + self.counts[place])

    def _all_own(self, place: int, first: int, last: int | None) -> Iterator[list[int]]:
        for number in _counting(first, last):
            yield self._own(place, number)

    def _draw(self, place: int, number: int, pictures: Pictures) -> TrainingBatch:
        """Draw the part of a batch that one entry gives."""
        joint = self._range(place, number)
        words = self._words(place, joint)
        images = pictures.images[:, None].float() / 255
        asked = [one for _, one in words.asked]
        of = on_device(torch.tensor([image for image, _ in words.asked], dtype=torch.long), self.device)
        masks = pictures.take([(image, one.targets) for image, one in words.asked])
        if self.augmentation is not None:
            count = self.counts[place]
            rows = torch.arange(self.rank * count, (self.rank + 1) * count)
            generator = torch.Generator().manual_seed(step_seed(self.seed, self.name, place, number, "augmentation"))
            changes = draw_changes_alike(images.shape, self.augmentation, generator, rows, len(joint), self.device)
            if any(words.flipped):
                flipped = on_device(torch.tensor(words.flipped), self.device)
                changes = replace(changes, mirrored=flipped)
            images = apply_changes(images, changes)
            if len(asked):
                masks = move_masks(masks[:, None], changes, of)[:, 0].clamp(0.0, 1.0)
        facts = self.entries[place][1].facts
        present = on_device(torch.tensor([float(one.present) for one in asked]), self.device)
        placed = on_device(torch.tensor([bool(one.targets) for one in asked], dtype=torch.bool), self.device)
        # What the picture's border has cut off is not to be seen, and nobody can say whether it is there.
        located = placed & (masks.flatten(1).amax(1) > 0.02) if len(asked) else placed
        return TrainingBatch(
            images=images,
            texts=words.texts,
            ids=[facts(study).id for study in self._own(place, number)],
            phrases=[one.text for one in asked],
            asked_of=of,
            present=torch.where(placed & ~located, torch.nan, present),
            located=located,
            masks=masks,
            most_asked=max(self.entries[place][0].phrases, 1),
        )

    def _words(self, place: int, joint: range) -> _Words:
        """Draw the words of this process's images. Each image has a stream of its own, whoever draws it."""
        entry, studies = self.entries[place]
        count = self.counts[place]
        begin = joint.start + self.rank * count
        texts: list[str] = []
        asked: list[tuple[int, Asked]] = []
        flipped: list[bool] = []
        share = 0.0 if self.augmentation is None else self.augmentation.mirror
        deck = self.decks[place]
        for image, at in enumerate(range(begin, begin + count)):
            stream = Stream(self.seed, self.name, place, at, "words")
            facts = studies.facts(deck.numbers(at, at + 1)[0])

            def other(stream: Stream = stream) -> Facts:
                beside = stream.integer(joint.start, joint.stop - 1)
                return studies.facts(deck.numbers(beside, beside + 1)[0])

            text = draw_text(facts, entry, stream)
            phrases = draw_phrases(facts, entry, stream, other, studies.universe) if entry.phrases else []
            flip = stream.chance(share)
            if flip:
                # Words that cannot be mirrored (the lingula has no partner) keep their image as it is.
                other_side = [mirrored(one) for one in (text, *(phrase.text for phrase in phrases))]
                flip = None not in other_side
                if flip:
                    text = str(other_side[0])
                    pairs = zip(phrases, other_side[1:], strict=True)
                    phrases = [replace(phrase, text=str(other_text)) for phrase, other_text in pairs]
            texts.append(text)
            asked.extend((image, phrase) for phrase in phrases)
            flipped.append(flip)
        return _Words(texts, asked, flipped)


def _counting(first: int, last: int | None) -> Iterator[int]:
    number = first
    while last is None or number < last:
        yield number
        number += 1


def _together(parts: Sequence[TrainingBatch]) -> TrainingBatch:
    if len(parts) == 1:
        return parts[0]
    asked_of, before = [], 0
    for part in parts:
        asked_of.append(part.asked_of + before)
        before += len(part)
    return TrainingBatch(
        images=torch.cat([part.images for part in parts]),
        texts=[text for part in parts for text in part.texts],
        ids=[name for part in parts for name in part.ids],
        phrases=[phrase for part in parts for phrase in part.phrases],
        asked_of=torch.cat(asked_of),
        present=torch.cat([part.present for part in parts]),
        located=torch.cat([part.located for part in parts]),
        masks=torch.cat([part.masks for part in parts]),
        most_asked=max(part.most_asked or 1 for part in parts),
    )
