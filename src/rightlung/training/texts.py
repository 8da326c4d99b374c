"""The texts that a training image is paired with, drawn from its study's sentences, and words hidden in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from rightlung.core.keyed import Stream
from rightlung.lexicon import find, positive_prompts, prompt
from rightlung.lexicon.rules import entity_spans
from rightlung.models.encoders.tokenizer import MASK
from rightlung.training.study_texts import NO_FINDING, StudyTexts

if TYPE_CHECKING:
    from rightlung.training.recipe import DataEntry

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@cache
def finding_prompts(name: str) -> tuple[str, ...]:
    """Return the prompts for a finding; one that the lexicon does not know has one prompt, its name."""
    return positive_prompts(name) if find(name) is not None else (prompt(name),)


def draw_texts(texts: StudyTexts, entry: DataEntry, stream: Stream) -> list[str]:
    """Draw ``entry.texts`` texts for an image; none is repeated before all have been used, and none is empty."""
    if entry.prompts == "labels" or not texts.sentences:
        return [_label_text(texts, entry, stream) for _ in range(entry.texts)]
    if entry.text == "report" and texts.report.strip():
        return [texts.report] * entry.texts
    sentences = texts.sentences
    if entry.text == "abnormal":
        sentences = tuple(one for one in sentences if one.abnormal) or sentences
    if entry.text == "abnormal-first":
        first, rest = (stream.shuffled(one for one in sentences if one.abnormal is kind) for kind in (True, False))
        order = [*first, *rest]
        return [order[number % len(order)].text for number in range(entry.texts)]
    if entry.texts == 1:
        return [stream.choice(sentences).text]
    order = stream.shuffled(sentences)
    return [order[number % len(order)].text for number in range(entry.texts)]


def _label_text(texts: StudyTexts, entry: DataEntry, stream: Stream) -> str:
    names = [name for name in texts.labels if name != NO_FINDING]
    if not names and (NO_FINDING in texts.labels or entry.unlabeled == "negative"):
        names = [NO_FINDING]
    if not names:  # nothing is known
        return "frontal chest radiograph"
    return stream.choice(finding_prompts(stream.choice(names)))


def hide_words(text: str, share: float, stream: Stream) -> str:
    """Return a text with each word hidden with probability ``share`` (Wrong Lung, 4.1); one always stays."""
    return _hidden(text, [match.span() for match in _WORD.finditer(text)], share, stream)


def hide_entities(text: str, share: float, stream: Stream) -> str:
    """Return a text with each clinical entity hidden with probability ``share``; one always stays."""
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
