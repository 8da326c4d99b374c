"""What a model can do, and what it learns from.

A model implements the protocols that fit, and `rightlung.asking` calls all that apply to a question. All of them take
images as `Study.image` gives them and answer one image at a time as well as many: **an answer never depends on the
other images of a call**.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Box, Grounding, Image, Phrase, Query, Report


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """How well texts go with images: cosines or the like, greater is better, ``(images, texts)`` each."""

    global_similarity: NDArray[np.float32]  # of the image's and the text's global embeddings
    local: NDArray[np.float32] | None = None  # gathered over words and regions, for models that have them


@runtime_checkable
class Matcher(Protocol):
    """Says how well texts go with images."""

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Compare every image with every text."""


@runtime_checkable
class Grounder(Protocol):
    """Says where a phrase is seen."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Ground pair by pair: the lists are equally long."""


@runtime_checkable
class RegionGrounder(Protocol):
    """Says which of an image's regions a phrase is about. It must be told where they are, and points nowhere else.

    Such a model is shown boxes of the kind that its maps are then scored against, so its scores do not compare with a
    `Grounder`'s. The boxes of an answer are the regions with their shares. An image without regions is answered with an
    empty map, an abstention of 1, and a similarity of NaN.
    """

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        """Ground pair by pair, each with the regions of its image: the lists are equally long."""

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> NDArray[np.float32]:
        """Return how well each text goes with its image, ``(pairs,)``, greater is better."""


@runtime_checkable
class FindingClassifier(Protocol):
    """Says how likely findings are, image by image."""

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        """Return ``(images, findings)``, greater is likelier: of each whole image, or of one box in each."""


@runtime_checkable
class Describer(Protocol):
    """Says in words what a text, a box or both ask for."""

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        """Answer pair by pair."""


@runtime_checkable
class Reporter(Protocol):
    """Writes the report of an image."""

    def report(self, images: Sequence[Image]) -> list[Report]:
        """Return a report for each image."""


@runtime_checkable
class Embedder(Protocol):
    """Gives the one vector of an image or a text, ``(n, dimension)`` float32."""

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return a vector for each image."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector for each text."""


@runtime_checkable
class BlindGrounder(Protocol):
    """Grounds words without an image: a baseline that every map is compared with.

    It is told what the words say (text and findings, never a target) and whose phrase it is, so that what it has
    learned from that patient can be left out.
    """

    def ground_blind(self, phrases: Sequence[Phrase], patients: Sequence[str | None]) -> list[Grounding]:
        """Ground phrase by phrase: the lists are equally long."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model reads of a text: how far, and how much of that it can make something of."""

    text: str  # from the beginning to where it stops reading
    complete: bool  # whether that is all of it
    known: float  # share of the words read that it has learned, 0 to 1


@runtime_checkable
class Reader(Protocol):
    """Says what it reads of a text. A map of a text that was not read is no answer to it."""

    def reads(self, text: str) -> Reading:
        """Return what is read of a text."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """``n`` images with ``m`` texts about them, and ``p`` phrases asked of them, all on the training device.

    ``texts`` make the pairs that contrastive losses learn from: ``text_of`` is the image of each, in their order where
    it is not given. ``phrases`` are what supervised losses learn from, and may be none: each is asked of one image
    (``asked_of``), is to be seen there or not (``present``: 1, 0, or NaN where unknown), and may have a place:
    ``masks`` holds the share of each cell that is the target, and ``located`` says for which phrases that is known.
    ``boxes`` are those of the regions of each image, in fractions of the square picture, for models that are shown
    them.
    """

    images: Tensor  # (n, 1, size, size) float32 in 0 to 1
    texts: Sequence[str]  # m
    ids: Sequence[str] = ()  # n, to name what went wrong
    text_of: Sequence[int] = ()  # m, or none: as they come
    phrases: Sequence[str] = ()  # p
    asked_of: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))  # (p,)
    present: Tensor = field(default_factory=lambda: torch.zeros(0))  # (p,)
    located: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))  # (p,)
    masks: Tensor = field(default_factory=lambda: torch.zeros(0, 1, 1))  # (p, rows, cols) float in 0 to 1
    most_asked: int | None = None  # at most so many phrases of one image; knowing it saves waiting for the device
    boxes: Tensor = field(default_factory=lambda: torch.zeros(0, 0, 4))  # (n, k, 4) of regions, or (0, 0, 4)
    boxed: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))  # (n, k) which of them are there

    def __len__(self) -> int:
        return len(self.images)

    @property
    def images_of_texts(self) -> Sequence[int]:
        """The image of each text."""
        return self.text_of or range(len(self.texts))

    @property
    def paired(self) -> Tensor:
        """The image of each text, (m,), on the device."""
        return torch.tensor(self.images_of_texts, device=self.images.device)

    def to(self, device: torch.device | str) -> TrainingBatch:
        """Return the batch on another device."""
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in BATCH_TENSORS})


BATCH_TENSORS = ("images", "asked_of", "present", "located", "masks", "boxes", "boxed")
BATCH_LISTS = ("texts", "text_of", "ids", "phrases")


Gather = Callable[[Tensor], Tensor]
"""Put the same tensor of all processes together along the first axis, gradients included; alone, the identity.

Along the other axes the shorter are padded with zeros."""


@runtime_checkable
class Trainable(Protocol):
    """A `torch.nn.Module` that can be trained: called with a batch, it returns its losses by name.

    ``gather`` brings in the other processes' embeddings, so that the negatives of a contrastive loss are those of the
    joint batch. Each process returns the loss of **its own rows** (its images against all texts, its texts against all
    images); the mean over processes is then the loss of the joint batch, and so are the gradients.
    """

    def __call__(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the terms of the loss, unweighted, scalars."""
