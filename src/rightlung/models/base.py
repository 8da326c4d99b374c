"""What a model can do, and what it learns from.

A model implements the protocols that fit, and `rightlung.asking` calls all that apply to a question. All of them take
images as `Study.image` gives them and answer one image at a time as well as many: **an answer never depends on the
other images of a call**.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Box, Grounding, Image, InputError, Phrase, Query, Report


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """Image-text similarities, ``(images, texts)`` each; higher is more similar."""

    global_similarity: NDArray[np.float32]  # of the global embeddings
    local_similarity: NDArray[np.float32] | None = None  # of words and patches, for models that have them


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
    """Says what it reads of a text. If a text was truncated, its map does not answer it."""

    def reads(self, text: str) -> Reading:
        """Return what is read of a text."""


Target = Mapping[str, Any]
"""What a batch holds of one kind of target: tensors and lists by name. A list ``images`` holds indices of images."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """``n`` images, ``m`` texts about them, and targets by the name of the builder that made them.

    Contrastive losses learn from the pairs of images and texts, other losses from ``targets``. What each of them holds
    is described by its class in `rightlung.training.targets`.
    """

    images: Tensor  # (n, 1, size, size) float32 in 0 to 1
    texts: Sequence[str]  # m
    ids: Sequence[str] = ()  # n study ids, for error messages
    text_images: Sequence[int] = ()  # m: the image of each text; empty: one text for each image, in their order
    targets: Mapping[str, Target] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def image_of_text(self) -> Sequence[int]:
        """The index of each text's image."""
        return self.text_images or range(len(self.texts))

    def target(self, name: str) -> Target:
        """Return one of the targets; the error for a missing one says how to get it."""
        if name not in self.targets:
            how = (
                "set data.train[...].phrases_per_image to at least 1"
                if name == "phrases"
                else f"add {name} to data.targets"
            )
            raise InputError(f"the model learns from {name}, which the batch lacks: {how}")
        return self.targets[name]

    def to(self, device: torch.device | str) -> TrainingBatch:
        """Return the batch on another device."""

        def moved(value: Any) -> Any:
            return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value

        targets = {name: {key: moved(one) for key, one in target.items()} for name, target in self.targets.items()}
        return replace(self, images=moved(self.images), targets=targets)


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
