"""Hiding words of a text in training, so that a model cannot lean on a few of them ("That's the Wrong Lung!", 4.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rightlung.core.keyed import Stream
from rightlung.lexicon.entities import entity_spans
from rightlung.models.encoders.tokenizer import MASK

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def hide_words(text: str, share: float, stream: Stream) -> str:
    """Return a text with each word hidden by a chance of ``share``; at least one always stays."""
    return _hidden(text, [match.span() for match in _WORD.finditer(text)], share, stream)


def hide_entities(text: str, share: float, stream: Stream) -> str:
    """Return a text with each clinical entity hidden by a chance of ``share``; at least one always stays."""
    return _hidden(text, entity_spans(text), share, stream)


def _hidden(text: str, spans: Sequence[tuple[int, int]], share: float, stream: Stream) -> str:
    hidden = [stream.chance(share) for _ in spans]
    if spans and all(hidden):
        hidden[stream.integer(0, len(spans) - 1)] = False
    parts, place = [], 0
    for (begin, end), hides in zip(spans, hidden, strict=True):
        parts += [text[place:begin], MASK if hides else text[begin:end]]
        place = end
    return "".join([*parts, text[place:]])
