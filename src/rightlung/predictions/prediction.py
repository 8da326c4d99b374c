"""One row of the predictions file: a question to a model about a study, and its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rightlung.core import FrozenMapping, Grounding, InputError, Query, Sentence
from rightlung.core.checks import check_number
from rightlung.core.errors import shortened
from rightlung.core.keyed import text_digest

IMAGE_QUERY = "image"
"""The query about the whole image."""

REPORT_QUERY = "report"
"""The query whose words are the study's report."""

PHRASE_QUERY = re.compile(r"phrase:(0|[1-9][0-9]{0,8})")
BOX_QUERY = re.compile(r"box:(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


class Key(NamedTuple):
    """The key of a row."""

    study: str
    query: str
    condition: str = "none"

    def __str__(self) -> str:
        return f"study {self.study!r}, query {shortened(self.query)}, condition {self.condition!r}"


def digest(study: str, query: str, condition: str) -> bytes:
    """Return 16 bytes that stand for a key, so that millions of keys fit in memory."""
    return text_digest(study, query, condition, size=16)


def phrase_query(index: int) -> str:
    """Return the name of the query for ``study.phrases[index]``.

    >>> phrase_query(0)
    'phrase:0'
    """
    return f"phrase:{index}"


def region_query(name: str) -> str:
    """Return the name of the query for the box of a region.

    >>> region_query("left lung")
    'region:left lung'
    """
    return f"region:{name}"


def region_name_query(name: str) -> str:
    """Return the name of the query that asks about a region by its name, without its box.

    >>> region_name_query("left lung")
    'region-name:left lung'
    """
    return f"region-name:{name}"


def box_query(index: int, place: int) -> str:
    """Return the name of the query for ``study.phrases[index].target_boxes[place]``.

    >>> box_query(2, 0)
    'box:2.0'
    """
    return f"box:{index}.{place}"


def check_text(value: object, what: str, may_be_blank: bool = False) -> str:
    """Return ``value`` if it is a text that UTF-8 can encode and, unless allowed, not blank."""
    if not isinstance(value, str) or not (may_be_blank or value.strip()):
        raise InputError(f"{what} must be a text with at least one character; got {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} cannot be written as UTF-8: {value!r} ({error.reason})") from None
    return value


def check_query_name(name: str) -> None:
    """Raise an error for a phrase query without an index."""
    if name.startswith("phrase:") and not PHRASE_QUERY.fullmatch(name):
        raise InputError(
            f"query {shortened(name)} must be 'phrase:' and an index into the study's phrases, such as 'phrase:0'"
        )


def _check_embedding(values: object, what: str) -> tuple[float, ...]:
    try:
        vector = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a list of numbers: {error}") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise InputError(f"{what} must be a list of at least one finite number; got {values!r}")
    return tuple(vector.tolist())


ANSWERS = (
    "grounding", "similarity_global", "similarity_local", "sentences", "finding_scores", "report", "image_embedding",
    "text_embedding",
)  # fmt: skip
"""The fields of a `Prediction` that hold answers."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's answer to one query about one study under one condition.

    None means that the model was not asked or cannot answer; an empty tuple or mapping is an answer. A prediction holds
    at least one answer or an ``error`` that says why there is none, never both.
    """

    study: str
    query: str
    condition: str = "none"
    asked: Query = field(default_factory=Query)
    grounding: Grounding | None = None
    similarity_global: float | None = None
    similarity_local: float | None = None
    sentences: tuple[Sentence, ...] | None = None
    finding_scores: Mapping[str, float] | None = None
    report: str | None = None
    """The text of a generated report; its sentences may be in ``sentences``."""
    image_embedding: tuple[float, ...] | None = None
    text_embedding: tuple[float, ...] | None = None
    """Embeddings have single precision, as in the file."""
    error: str | None = None

    def __post_init__(self) -> None:
        for name in ("study", "query", "condition"):
            check_text(getattr(self, name), name)
        check_query_name(self.query)
        self._check_answers()
        answered = any(getattr(self, name) is not None for name in ANSWERS)
        if self.error is not None:
            # A message may quote a file name that is not UTF-8.
            if isinstance(self.error, str):
                object.__setattr__(self, "error", self.error.encode("utf-8", "backslashreplace").decode())
            check_text(self.error, "error")
            if answered:
                raise InputError(f"{self.key}: a row with an error must hold no answer")
        elif not answered:
            raise InputError(f"{self.key}: a row without an answer needs an error that says why")

    def _check_answers(self) -> None:
        if not isinstance(self.asked, Query):
            raise InputError(f"{self.key}: asked must be a Query; got {self.asked!r}")
        if not isinstance(self.grounding, Grounding | None):
            raise InputError(f"{self.key}: grounding must be a Grounding; got {self.grounding!r}")
        for name, text in (("phrase", self.asked.phrase), ("report", self.report)):
            if text is not None:
                check_text(text, name)
        for scored in () if self.grounding is None else self.grounding.boxes:
            check_text(scored.label or "", "a box's label", may_be_blank=True)
        for name in ("similarity_global", "similarity_local"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_number(getattr(self, name), name))
        if self.sentences is not None:
            object.__setattr__(self, "sentences", tuple(self.sentences))
            for sentence in self.sentences:
                if not isinstance(sentence, Sentence):
                    raise InputError(f"{self.key}: sentences must be Sentence values; got {sentence!r}")
                check_text(sentence.text, "a sentence's text")
                check_text(sentence.prompt or "", "a sentence's prompt", may_be_blank=True)
        if self.finding_scores is not None:
            scores = {
                check_text(name, "a finding's name"): check_number(score, f"score of finding {name!r}")
                for name, score in self.finding_scores.items()
            }
            object.__setattr__(self, "finding_scores", FrozenMapping(scores))
        for name in ("image_embedding", "text_embedding"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _check_embedding(getattr(self, name), name))

    @classmethod
    def failed(cls, study: str, query: str, condition: str, asked: Query, reason: str) -> Prediction:
        """Return the row of a query that got no answer."""
        return cls(study, query, condition, asked, error=reason.strip() or "no reason given")

    @property
    def key(self) -> Key:
        """The key of this prediction."""
        return Key(self.study, self.query, self.condition)

    @property
    def cells(self) -> int:
        """The number of cells of the map, 0 without one."""
        heatmap = None if self.grounding is None else self.grounding.heatmap
        return 0 if heatmap is None else heatmap.values.size
