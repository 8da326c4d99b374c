"""Training batches as a function of the recipe, the step and the process: nothing is remembered between them.

So a run that goes on after an interruption needs no replaying, and any batch can be drawn again to look at it. Each
process draws its part of one joint batch: ``N`` processes of ``b`` images see what one process of ``N * b`` sees.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import InputError
from rightlung.core.keyed import Stream, key_number
from rightlung.lexicon import IMAGENOME_REGIONS, mirror_region
from rightlung.lexicon.side_changes import mirrored
from rightlung.models.base import Target, TrainingBatch
from rightlung.training.augmentation import Augmentation, apply_changes, draw_changes, move_masks, on_device
from rightlung.training.facts import Facts
from rightlung.training.phrases import DrawnPhrase, draw_phrases, draw_texts, hide_entities, hide_words
from rightlung.training.pools import Pictures, Studies
from rightlung.training.recipe import DataEntry

SHUFFLED = 2_000_000
"""Studies up to which a source is shuffled; more of them (phantoms, which are alike everywhere) come in their order."""
_OTHER_SIDE = [IMAGENOME_REGIONS.index(mirror_region(name)) for name in IMAGENOME_REGIONS]
LEAST_EXTENT = 0.01
"""Of a region's box, either way; what is narrower has been cut off by the picture's border."""


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
    asked: list[tuple[int, DrawnPhrase]]  # with the image that each is asked of
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
        boxes: bool = False,
    ) -> None:
        """``boxes`` says whether the batches hold those of the regions."""
        self.entries, self.size, self.seed, self.device = entries, size, seed, device
        self.augmentation, self.rank, self.world, self.name, self.boxes = augmentation, rank, world, name, boxes
        self.counts = divided(size, [entry for entry, _ in entries])
        for number, (count, (entry, _)) in enumerate(zip(self.counts, entries, strict=True)):
            if entry.mirrored and count % 2:
                raise InputError(f"data.train[{number}].mirrored needs an even number of images a batch; got {count}")
        # How many studies an entry gives to a batch of one process; with their mirror images they are twice as many.
        self.drawn = [
            count // 2 if entry.mirrored else count for count, (entry, _) in zip(self.counts, entries, strict=True)
        ]
        self.decks = [Deck(len(studies), seed, name, number) for number, (_, studies) in enumerate(entries)]

    def from_number(self, first: int, last: int) -> Generator[TrainingBatch, None, None]:
        """Yield the batches from ``first`` on, up to but not including ``last``."""
        numbers = range(first, last)
        dealt = [
            studies.deal(map(partial(self._own, place), numbers)) for place, (_, studies) in enumerate(self.entries)
        ]
        for number in numbers:
            yield _together([self._draw(place, number, next(pictures)) for place, pictures in enumerate(dealt)])

    def one(self, number: int) -> TrainingBatch:
        """Return one batch, the same as when it came in its turn."""
        return next(self.from_number(number, number + 1))

    def _range(self, place: int, number: int) -> range:
        """Where the joint batch of an entry lies in its deck."""
        together = self.drawn[place] * self.world
        return range(number * together, (number + 1) * together)

    def _own(self, place: int, number: int) -> list[int]:
        begin = self._range(place, number).start + self.rank * self.drawn[place]
        own = self.decks[place].numbers(begin, begin + self.drawn[place])
        return own * (self.counts[place] // self.drawn[place])

    def _draw(self, place: int, number: int, pictures: Pictures) -> TrainingBatch:
        """Draw the part of a batch that one entry gives."""
        joint = self._range(place, number)
        words = self._words(place, joint)
        images = pictures.images[:, None].float() / 255
        asked = [one for _, one in words.asked]
        of = on_device(torch.tensor([image for image, _ in words.asked], dtype=torch.long), self.device)
        flipped = on_device(torch.tensor(words.flipped), self.device)
        masks = pictures.take([(image, one.targets) for image, one in words.asked])
        if self.augmentation is not None:
            generator = torch.Generator().manual_seed(step_seed(self.seed, self.name, place, number, "augmentation"))
            rows, total = self._rows(place), self.counts[place] * self.world
            changes = draw_changes(images.shape, self.augmentation, generator, rows, total, self.device)
            if any(words.flipped):
                changes = replace(changes, mirrored=flipped)
            images = apply_changes(images, changes)
            if len(asked):
                masks = move_masks(masks[:, None], changes, of)[:, 0].clamp(0.0, 1.0)
        elif any(words.flipped):
            images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
            masks = torch.where(flipped[of][:, None, None], masks.flip(-1), masks)
        facts = self.entries[place][1].facts
        present = on_device(torch.tensor([float(one.present) for one in asked]), self.device)
        placed = on_device(torch.tensor([bool(one.targets) for one in asked], dtype=torch.bool), self.device)
        # What the picture's border has cut off is not to be seen, and nobody can say whether it is there.
        located = placed & (masks.flatten(1).amax(1) > 0.02) if len(asked) else placed
        targets: dict[str, Target] = {
            "phrases": {
                "texts": [one.text for one in asked],
                "images": [image for image, _ in words.asked],
                "present": torch.where(placed & ~located, torch.nan, present),
                "located": located,
                "masks": masks,
            }
        }
        if self.boxes:
            targets["regions"] = _boxes(pictures.boxes, flipped)
        return TrainingBatch(
            images=images,
            texts=words.texts,
            ids=[facts(study).id for study in self._own(place, number)],
            text_images=[image for image in range(self.counts[place]) for _ in range(self.entries[place][0].texts)],
            targets=targets,
        )

    def _rows(self, place: int) -> Tensor:
        """Where this process's images lie in the joint batch, in which all mirror images come after all images."""
        drawn = self.drawn[place]
        first = torch.arange(self.rank * drawn, (self.rank + 1) * drawn)
        return torch.cat([first + turn * drawn * self.world for turn in range(self.counts[place] // drawn)])

    def _words(self, place: int, joint: range) -> _Words:
        """Draw the words of this process's images. Each image has a stream of its own, whoever draws it."""
        entry = self.entries[place][0]
        begin = joint.start + self.rank * self.drawn[place]
        told = [self._told(place, at, joint) for at in range(begin, begin + self.drawn[place])]
        share = 0.0 if self.augmentation is None else self.augmentation.mirror
        texts: list[str] = []
        asked: list[tuple[int, DrawnPhrase]] = []
        flipped: list[bool] = []
        for image in range(self.counts[place]):
            own_texts, phrases, stream = told[image % len(told)]
            flip = image >= len(told) if entry.mirrored else stream.chance(share)
            if flip:
                # Texts that cannot be mirrored (the lingula has no partner) are left out; where all are such, or any
                # phrase is, the image stays as it is.
                turned = [other for text in own_texts if (other := mirrored(text)) is not None]
                others = [mirrored(phrase.text) for phrase in phrases]
                flip = bool(turned) and None not in others
                if flip:
                    own_texts = [turned[number % len(turned)] for number in range(len(own_texts))]
                    pairs = zip(phrases, others, strict=True)
                    phrases = [replace(phrase, text=str(other)) for phrase, other in pairs]
            for text in own_texts:
                if entry.masked_words:
                    text = hide_words(text, entry.masked_words, stream)
                if entry.masked_entities:
                    text = hide_entities(text, entry.masked_entities, stream)
                texts.append(text)
            asked.extend((image, phrase) for phrase in phrases)
            flipped.append(flip)
        return _Words(texts, asked, flipped)

    def _told(self, place: int, at: int, joint: range) -> tuple[list[str], list[DrawnPhrase], Stream]:
        """Draw the texts and the phrases of the study at a place of the deck, and return the stream they come from."""
        entry, studies = self.entries[place]
        deck = self.decks[place]
        number = deck.numbers(at, at + 1)[0]
        stream = Stream(self.seed, self.name, place, *((at,) if entry.examples is None else ("study", number)), "words")
        facts = studies.facts(number)

        def other() -> Facts:
            if entry.examples is not None:  # whatever else is in the batch
                return studies.facts(stream.integer(0, len(studies) - 1))
            beside = stream.integer(joint.start, joint.stop - 1)
            return studies.facts(deck.numbers(beside, beside + 1)[0])

        paired = facts
        if entry.text_of == "another":  # of all studies: a batch's own would come as negatives of their images, too
            if len(studies) < 2:
                raise InputError(f"data.train[{place}].text_of 'another' needs at least two studies")
            paired = studies.facts((number + stream.integer(1, len(studies) - 1)) % len(studies))
        texts = draw_texts(paired, entry, stream)
        phrases = draw_phrases(facts, entry, stream, other, studies.universe) if entry.phrases else []
        return texts, phrases, stream


def _boxes(boxes: Tensor, flipped: Tensor) -> dict[str, Tensor]:
    """Return the boxes of regions and which are there: known, within the picture, and of some extent."""
    x0, y0, x1, y1 = boxes.unbind(-1)
    turned = torch.stack([1 - x1, y0, 1 - x0, y1], dim=-1)[:, _OTHER_SIDE]  # what was the left lung is the right one
    boxes = torch.where(flipped[:, None, None], turned, boxes)
    within = boxes.clamp(0.0, 1.0)
    extent = within[..., 2:] - within[..., :2]
    there = (extent > LEAST_EXTENT).all(-1)  # what is not known is NaN, and no greater than anything
    return {"boxes": torch.where(there[..., None], within, 0.0), "present": there}


def _together(parts: Sequence[TrainingBatch]) -> TrainingBatch:
    if len(parts) == 1:
        return parts[0]
    first = list(accumulate(map(len, parts), initial=0))[:-1]  # images of the parts before each
    return TrainingBatch(
        images=torch.cat([part.images for part in parts]),
        texts=[text for part in parts for text in part.texts],
        ids=[name for part in parts for name in part.ids],
        text_images=[before + image for before, part in zip(first, parts, strict=True) for image in part.image_of_text],
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
