"""What a model can do (protocols), and what it learns from (training batches).

A model implements the protocols that fit, and `rightlung.asking` calls all that apply to a question. Images are as in
`Study.image`: float32 ``(height, width)`` in 0 to 1. **An answer never depends on the other images of a call.**
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rightlung.core import Box, Grounding, Image, InputError, Phrase, Query, Report, ScoredBox


@dataclass(frozen=True, slots=True, eq=False)
class Similarities:
    """Image-text similarities, ``(images, texts)`` each; higher is more similar."""

    global_similarity: NDArray[np.float32]  # of the global embeddings
    local_similarity: NDArray[np.float32] | None = None  # of words and patches, for models that have them


@runtime_checkable
class Matcher(Protocol):
    """Compares images with texts.

    A model that does not as it is configured has an attribute ``compares_texts`` that is False, and is not asked.
    """

    def similarity(self, images: Sequence[Image], texts: Sequence[str]) -> Similarities:
        """Return the similarity of every image with every text."""


@runtime_checkable
class Grounder(Protocol):
    """Returns where an image shows a phrase."""

    def ground(self, images: Sequence[Image], phrases: Sequence[Phrase | str]) -> list[Grounding]:
        """Return the grounding of each phrase in its image; both lists have the same length."""


@runtime_checkable
class RegionGrounder(Protocol):
    """Returns which of an image's given regions a phrase is about.

    Such a model gets boxes of the kind that its maps are then scored against, so do not compare its scores with a
    `Grounder`'s. The boxes of an answer are the regions with their scores. An image without regions has an empty map,
    an abstention of 1, and a similarity of NaN.
    """

    def ground_regions(
        self, images: Sequence[Image], phrases: Sequence[Phrase | str], regions: Sequence[Mapping[str, Box]]
    ) -> list[Grounding]:
        """Return the grounding of each phrase in its image with the regions of that image; lists of the same length."""

    def similarity_regions(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Mapping[str, Box]]
    ) -> NDArray[np.float32]:
        """Return the similarity of each text with its image, ``(pairs,)``; higher is more similar."""


@runtime_checkable
class FindingClassifier(Protocol):
    """Scores how likely findings are.

    ``classify`` may have two more optional parameters. ``queries`` has a `Query` for each image: what its text, or its
    text and box, ask for is classified. With ``multiclass``, exactly one of the findings is there.
    """

    def classify(
        self, images: Sequence[Image], findings: Sequence[str], boxes: Sequence[Box] | None = None
    ) -> NDArray[np.float32]:
        """Return scores ``(images, findings)``, higher is likelier, for each whole image or for one box in each."""


@runtime_checkable
class KnowsFindings(Protocol):
    """Knows some findings only: a classifier or detector is not asked about others."""

    def knows(self, finding: str) -> bool:
        """Return whether the model has answers about a finding."""


@runtime_checkable
class Detector(Protocol):
    """Finds the boxes of findings."""

    def detect(self, images: Sequence[Image], findings: Sequence[str]) -> list[list[ScoredBox]]:
        """Return the boxes of all findings in each image; the label of a box is one of ``findings``."""


@runtime_checkable
class RegionFinder(Protocol):
    """Finds anatomical regions."""

    def regions(self, images: Sequence[Image]) -> list[dict[str, ScoredBox]]:
        """Return the box of each region that an image shows by name; the score is the confidence, 0 to 1."""


@runtime_checkable
class Describer(Protocol):
    """Describes in words what a text, a box or both ask for."""

    def describe(self, images: Sequence[Image], queries: Sequence[Query]) -> list[str]:
        """Return one description for each image and query; both lists have the same length."""


@runtime_checkable
class Reporter(Protocol):
    """Writes the report of an image."""

    def report(self, images: Sequence[Image]) -> list[Report]:
        """Return a report for each image."""


@runtime_checkable
class Intervenable(Protocol):
    """Answers from several sources, and can be asked with one of them changed."""

    @property
    def interventions(self) -> tuple[str, ...]:
        """Names of `rightlung.probes.interventions` that change something in the model."""

    def intervened(self, name: str) -> object:
        """Return a copy of the model with one of these changes."""


@dataclass(frozen=True, slots=True)
class WordSources:
    """What the words of a kind in a report were written from: shares of attention, which add up to one."""

    words: str  # "finding", "side" or "other"
    image: float
    symptoms: float  # what a classifier saw in the image
    text: float  # the words before
    count: int  # number of words


@runtime_checkable
class TracesWords(Protocol):
    """Tells what the words of its reports were written from."""

    def word_sources(self, images: Sequence[Image]) -> list[list[WordSources]]:
        """Return the shares by kind of word of the report of each image."""


@runtime_checkable
class Embedder(Protocol):
    """Returns one vector for each image or text, ``(n, dimension)`` float32."""

    def encode_image(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return a vector for each image."""

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector for each text."""


@runtime_checkable
class BlindGrounder(Protocol):
    """Grounds phrases without an image: the baseline that every map is compared with.

    It gets the text and findings of a phrase (never a target), and the patient, so that it can leave out what it has
    learned from that patient.
    """

    def ground_blind(self, phrases: Sequence[Phrase], patients: Sequence[str | None]) -> list[Grounding]:
        """Return the grounding of each phrase; both lists have the same length."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a text a model reads."""

    text: str  # the part that is read, from the beginning
    complete: bool  # whether this is the whole text
    known: float  # share of the words read that are in the vocabulary, 0 to 1
    tokens: int | None = None  # number of tokens that are read


@runtime_checkable
class Reader(Protocol):
    """Returns how much of a text it reads. The map of a truncated text answers only the part that is read."""

    def reads(self, text: str) -> Reading:
        """Return how much of a text is read."""


Target = Mapping[str, Any]
"""The targets of one kind in a batch: tensors and lists by name. ``image_indices`` index the batch's images."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """``n`` images, ``m`` texts about them, and targets by the name of the builder that made them.

    Contrastive losses learn from the pairs of images and texts, other losses from ``targets``. The classes in
    `rightlung.training.targets` describe what each target holds.
    """

    images: Tensor  # (n, 1, size, size) float32 in 0 to 1
    texts: Sequence[str]  # m
    ids: Sequence[str] = ()  # n study ids, for error messages
    image_of_text: Sequence[int] = ()  # m: the index of each text's image; by default, one text for each image
    targets: Mapping[str, Target] = field(default_factory=dict)
    seed: int = 0  # follows from the run's seed and the batch's index; for a model's own random choices

    def __post_init__(self) -> None:
        if not self.image_of_text:
            object.__setattr__(self, "image_of_text", range(len(self.texts)))

    def __len__(self) -> int:
        return len(self.images)

    def target(self, name: str) -> Target:
        """Return one of the targets; the error for a missing one says how to get it."""
        if name not in self.targets:
            how = {
                "phrases": "set data.train[...].phrases_per_image to at least 1",
                "expert": "set data.train[...].expert_map, for example to gaze",
            }.get(name, f"add {name} to data.targets")
            raise InputError(f"the model learns from {name}, which the batch lacks: {how}")
        return self.targets[name]


Gather = Callable[[Tensor], Tensor]
"""Concatenate a tensor of all processes along the first axis, with gradients. With one process, models get None.

Along the other axes, shorter tensors are padded with zeros."""


@runtime_checkable
class Trainable(Protocol):
    """A `torch.nn.Module` that can be trained: called with a batch, it returns its losses by name.

    ``gather`` brings in the other processes' embeddings, so that the negatives of a contrastive loss are those of the
    global batch. Each process returns the loss of **its own rows** (its images against all texts, its texts against all
    images); the mean over processes is then the loss of the global batch, and so are the gradients.
    """

    def __call__(self, batch: TrainingBatch, gather: Gather | None = None) -> dict[str, Tensor]:
        """Return the terms of the loss, unweighted, scalars."""
