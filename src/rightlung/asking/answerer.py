"""Ask a model questions of any kind, in batches that fit into memory; one bad question costs one answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rightlung.asking.protocols import Answer, ImageQuestion, Regions, calls_of
from rightlung.asking.questions import ON_DEMAND, QUERIES, Question
from rightlung.core import Image, InputError
from rightlung.core.checks import check_text
from rightlung.core.errors import is_out_of_memory
from rightlung.explain.boxes import BoxRule
from rightlung.lexicon import label_set
from rightlung.models.base import BlindGrounder, Embedder, Grounder, Intervenable, KnowsFindings, RegionGrounder
from rightlung.models.untrained import untrained

GIVE_UP_AFTER = 20
"""Number of failures before the first answer after which the model is considered broken."""

TOO_LARGE_IN_A_ROW = 3
"""Number of single questions that may run out of memory before the first answer."""

_LONGEST_REASON = 500
_METHODS = (
    "ground, similarity, classify, detect, describe, report, ground_regions, ground_blind, encode_image and encode_text"
)

DEFAULT_BOXES = BoxRule()
"""The default rule for boxes."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The reason for a missing answer."""

    reason: str


class Answerer:
    """Asks a model, ``batch_size`` questions at a time, through every protocol that applies.

    Maps get boxes by the rule ``boxes`` if the model returns none. A `FindingClassifier` or `Detector` is asked for
    those of ``findings`` that it knows; by default for ``model.findings``, else for CheXpert's without "No Finding".
    With ``embeddings``, an `Embedder` embeds images and phrases. With a ``method``, only that method of the model is
    called. Equal questions of a batch are asked once. If memory runs out, the batch size is halved (see `note`); any
    other error is traced to its question. A model that answers none of the first 20 questions is an error.
    """

    def __init__(
        self,
        model: object,
        batch_size: int = 32,
        boxes: BoxRule | None = DEFAULT_BOXES,
        findings: Sequence[str] | None = None,
        embeddings: bool = False,
        method: str | None = None,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"the batch size must be a whole number of at least 1; got {batch_size!r}")
        self.model: Any = model
        self.batch_size = self._asked_for = batch_size
        self.findings = _findings(model, findings)
        self._calls = calls_of(model, boxes, self.findings, embeddings, method)
        self._blind = isinstance(model, BlindGrounder) and not isinstance(model, Grounder | RegionGrounder)
        self._options = (boxes, findings, embeddings, method)
        self._variants: dict[str, Answerer] = {}
        self.answered_before = False
        """Whether the model is known to work, so that failures of the first questions do not stop the run."""
        self._fitting = self._too_large = 0
        self._failed: list[str] = []
        if not self._calls:
            name = type(model).__name__
            if method is not None:
                raise InputError(f"{name} has no method {method}")
            if isinstance(model, Embedder):
                raise InputError(f"{name} only provides embeddings; pass embeddings=True (--embeddings)")
            raise InputError(f"{name} implements none of the model protocols: {_METHODS}")

    @property
    def queries(self) -> tuple[str, ...]:
        """What the model can be asked about every study: names of `QUERIES`."""
        return tuple(name for name, kind in QUERIES.items() if any(kind in kinds for _, kinds in self._calls))

    def chosen(self, queries: Sequence[str] | None) -> Sequence[str]:
        """Return ``queries`` if the model can answer them; by default all that it can, but those of `ON_DEMAND`."""
        known = self.queries
        for name in queries or ():
            if name in QUERIES and name not in known:
                raise InputError(f"{type(self.model).__name__} cannot answer {name}; it answers {', '.join(known)}")
        return [name for name in known if name not in ON_DEMAND] if queries is None else queries

    def untrained(self, seed: int) -> Answerer:
        """Return an answerer for the model with random weights, made once."""
        return self._variant("untrained", lambda: untrained(self.model, seed))

    def intervened(self, name: str) -> Answerer:
        """Return an answerer for the model with an intervention (`rightlung.probes.interventions`), made once."""
        if not isinstance(self.model, Intervenable) or name not in self.model.interventions:
            raise InputError(f"{type(self.model).__name__} has no part that {name} changes: leave out this condition")
        return self._variant(name, lambda: self.model.intervened(name))

    def _variant(self, name: str, make: Callable[[], object]) -> Answerer:
        if name not in self._variants:
            self._variants[name] = Answerer(make(), self._asked_for, *self._options)
        return self._variants[name]

    @property
    def needs_images(self) -> bool:
        """Whether the model needs images; an image-blind grounder does not."""
        return not (self._blind and len(self._calls) == 1)

    @property
    def note(self) -> str | None:
        """A message about the reduced batch size, or None."""
        if self.batch_size == self._asked_for:
            return None
        return f"out of memory with a batch size of {self._asked_for}; a batch size of {self.batch_size} fits"

    def answers(
        self,
        questions: Sequence[Question],
        images: Sequence[Image | None],
        regions: Sequence[Regions] | None = None,
    ) -> list[Answer | NoAnswer]:
        """Return one answer per question; pass the same image object for questions about the same image.

        ``regions`` are those of the images, for a `RegionGrounder`.
        """
        if regions is None and isinstance(self.model, RegionGrounder) and not isinstance(self.model, Grounder):
            raise InputError(f"{type(self.model).__name__} needs the region boxes of each image: pass regions")
        shown: Sequence[Regions] = [{}] * len(questions) if regions is None else regions
        if not (count := len(questions)) == len(images) == len(shown):
            raise InputError(f"expected {count} images and regions; got {len(images)} and {len(shown)}")
        asked = [ImageQuestion(*one) for one in zip(questions, images, shown, strict=True)]
        found: list[Answer | NoAnswer] = []
        while len(found) < len(asked):
            batch = asked[len(found) : len(found) + self.batch_size]
            distinct = {self._same(one): one for one in batch}
            answer_of = dict(zip(distinct, self._tried(list(distinct.values())), strict=True))
            found += [answer_of[self._same(one)] for one in batch]
        return found

    def _same(self, one: ImageQuestion) -> Hashable:
        """Return all that an answer depends on; only a blind grounder sees the patient and the phrase's findings."""
        known = (one.question.phrase, one.question.patient) if self._blind else None
        return id(one.image), id(one.regions), one.query, known

    def _tried(self, some: Sequence[ImageQuestion]) -> list[Answer | NoAnswer]:
        try:
            answers = self._asked(some)
        except Exception as error:
            # Keep the text only: the error itself references the tensors of the failed call.
            no_memory, reason = is_out_of_memory(error), _reason(error)
        else:
            self._fitting, self._too_large = max(self._fitting, len(some)), 0
            return [*answers]
        if no_memory and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(some) == 1:
            if self._fitting:
                if no_memory:  # only this image is too large
                    self.batch_size = min(self._asked_for, self._fitting)
                return [NoAnswer(reason)]
            self._too_large += no_memory
            if self._too_large >= TOO_LARGE_IN_A_ROW:
                raise InputError(f"out of memory with a single question; use a device with more memory ({reason})")
            self._failed.append(reason)
            if not self.answered_before:
                check_not_broken(self._failed)
            return [NoAnswer(reason)]
        half = len(some) // 2
        if no_memory:
            self.batch_size = min(self.batch_size, half)
        return [*self._tried(some[:half]), *self._tried(some[half:])]

    def _asked(self, some: Sequence[ImageQuestion]) -> list[Answer]:
        found: list[Answer] = [{} for _ in some]
        for call, kinds in self._calls:
            places = [place for place, one in enumerate(some) if one.query.kind in kinds]
            for place, fields in zip(places, call([some[place] for place in places]) if places else (), strict=True):
                found[place] |= fields
        for one, fields in zip(some, found, strict=True):
            if not fields:
                raise InputError(f"{type(self.model).__name__} cannot answer a query of kind {one.query.kind!r}")
        return found


def check_not_broken(reasons: Sequence[str | None]) -> None:
    """Raise an error if the model failed on all of the first questions, for these ``reasons``."""
    if len(reasons) >= GIVE_UP_AFTER:
        raise InputError(f"the model answered none of the first {len(reasons)} questions; first error: {reasons[0]}")


def _findings(model: object, findings: Sequence[str] | None) -> tuple[str, ...]:
    if findings is None:
        own = getattr(model, "findings", None)
        chexpert = label_set("chexpert-14")
        known = [finding for label, finding in chexpert.findings.items() if label != chexpert.no_finding]
        findings = own if isinstance(own, Sequence) and own else known
    if isinstance(findings, str) or not findings or len(set(findings)) != len(findings):
        raise InputError(f"findings must be a list of different names; got {findings!r}")
    names = [check_text(name, "a finding's name") for name in findings]
    known = [name for name in names if not isinstance(model, KnowsFindings) or model.knows(name)]
    if not known:
        raise InputError(f"{type(model).__name__} knows none of the findings: {', '.join(names)}")
    return tuple(known)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = "" if isinstance(error, InputError) else type(error).__name__
    reason = ": ".join(part for part in (kind, text) if part) or "no reason given"
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"
