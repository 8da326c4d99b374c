"""Ask a model many questions: in batches that fit into memory, and with one bad question costing one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rightlung.core import Box, Grounding, Image, InputError
from rightlung.explain.boxes import BoxRule, boxes_of
from rightlung.models.base import Grounder, Matcher, RegionGrounder

TOO_LARGE_IN_A_ROW = 3
"""Single questions that may fail for want of memory before anything was answered; then the model is too large."""

_LONGEST_REASON = 500

Regions = Mapping[str, Box]
"""An image's regions by name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered to one question, as far as it can."""

    grounding: Grounding | None = None
    similarity_global: float | None = None
    similarity_local: float | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no answer."""

    reason: str


class Answerer:
    """Asks a model, ``batch_size`` questions at a time.

    Maps get boxes by ``boxes`` where the model gives none itself. If memory runs out, the batch is halved and stays so;
    `note` says it. Any other error is tracked down to the question that causes it.
    """

    def __init__(self, model: object, batch_size: int = 32, boxes: BoxRule | None = None) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"the batch size must be a whole number of at least 1; got {batch_size!r}")
        if not isinstance(model, Grounder | Matcher | RegionGrounder):
            raise InputError(
                f"{type(model).__name__} can neither ground phrases nor compare texts with images, so it has no answer"
            )
        self.model: Any = model
        self.batch_size = self._asked_for = batch_size
        self._fitting = 0
        self._too_large = 0
        self._boxes = boxes or BoxRule()

    @property
    def note(self) -> str | None:
        """What a person should know about the memory, if anything."""
        if self.batch_size == self._asked_for:
            return None
        return (
            f"out of memory with {self._asked_for} questions at a time: went on with {self.batch_size}, "
            f"so a batch size of {self.batch_size} fits"
        )

    def answers(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Regions] | None = None
    ) -> list[Answer | NoAnswer]:
        """Ask pair by pair; an image that is asked about more than once should be the same object each time.

        ``regions`` are those of the images shown, for a model that must be told them (`RegionGrounder`); no other sees
        them.
        """
        if regions is None and isinstance(self.model, RegionGrounder) and not isinstance(self.model, Grounder):
            raise InputError(f"{type(self.model).__name__} must be told the boxes of each image's regions")
        shown: Sequence[Regions] = [{}] * len(texts) if regions is None else regions
        if len(images) != len(texts):
            raise InputError(f"{len(images)} images do not go with {len(texts)} texts")
        if len(shown) != len(texts):
            raise InputError(f"the regions of {len(shown)} images do not go with {len(texts)} texts")
        found: list[Answer | NoAnswer] = []
        while len(found) < len(texts):
            batch = slice(len(found), len(found) + self.batch_size)
            found += self._tried(images[batch], texts[batch], shown[batch])
        return found

    def _tried(
        self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Regions]
    ) -> list[Answer | NoAnswer]:
        try:
            answers = self._asked(images, texts, regions)
        except Exception as error:
            # Only words are kept: the error itself holds on to the tensors of the call that failed.
            no_memory, reason = _is_out_of_memory(error), _reason(error)
        else:
            self._fitting, self._too_large = max(self._fitting, len(texts)), 0
            return [*answers]
        if no_memory and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(texts) == 1:
            if no_memory:
                self._alone_too_large(reason)
            return [NoAnswer(reason)]
        half = len(texts) // 2
        if no_memory:
            self.batch_size = min(self.batch_size, half)
        return [
            answer
            for part in (slice(half), slice(half, None))
            for answer in self._tried(images[part], texts[part], regions[part])
        ]

    def _alone_too_large(self, reason: str) -> None:
        """Give up where nothing fits; where others did, it is this one image, and the next need not suffer for it."""
        if self._fitting:
            self.batch_size = min(self._asked_for, self._fitting)
            return
        self._too_large += 1
        if self._too_large >= TOO_LARGE_IN_A_ROW:
            raise InputError(
                f"out of memory even with one question at a time ({reason}): the model needs a device with more memory"
            )

    def _asked(self, images: Sequence[Image], texts: Sequence[str], regions: Sequence[Regions]) -> list[Answer]:
        groundings: list[Grounding | None] = [None] * len(texts)
        whole: list[float | None] = [None] * len(texts)
        local = list(whole)
        pairs = list(images), list(texts)
        if isinstance(self.model, Grounder | RegionGrounder):
            grounded = (
                self.model.ground(*pairs)
                if isinstance(self.model, Grounder)
                else self.model.ground_regions(*pairs, list(regions))
            )
            groundings = [self._with_boxes(grounding) for grounding in grounded]
            if len(groundings) != len(texts):
                raise InputError(f"the model gave {len(groundings)} groundings for {len(texts)} phrases")
        if isinstance(self.model, Matcher):
            # Every image once and every text once: encoding is what takes time.
            rows = {id(image): row for row, image in enumerate({id(image): image for image in images}.values())}
            columns = {text: column for column, text in enumerate(dict.fromkeys(texts))}
            distinct = list({id(image): image for image in images}.values())
            compared = self.model.similarity(distinct, list(columns))
            cells = [(rows[id(image)], columns[text]) for image, text in zip(images, texts, strict=True)]
            whole = [float(compared.whole[cell]) for cell in cells]
            if compared.local is not None:
                local = [float(compared.local[cell]) for cell in cells]
        elif isinstance(self.model, RegionGrounder):
            similar = self.model.similarity_regions(*pairs, list(regions))
            # An image without regions was not seen, and nothing is said about it.
            whole = [float(value) if given else None for value, given in zip(similar, regions, strict=True)]
        return [Answer(*parts) for parts in zip(groundings, whole, local, strict=True)]

    def _with_boxes(self, grounding: object) -> Grounding:
        if not isinstance(grounding, Grounding):
            raise InputError(f"ground must return Grounding values; got {type(grounding).__name__}")
        if grounding.has_boxes or grounding.heatmap is None:
            return grounding
        return Grounding(grounding.heatmap, boxes_of(grounding.heatmap, self._boxes))


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The CPU's allocator raises a plain RuntimeError, and other libraries' kernels do, too.
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, InputError) else type(error).__name__
    reason = ": ".join(part for part in (kind, text) if part) or "no reason given"
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
