"""What a training study is paired with and asked: texts and phrases drawn from what is known of it.

Everything is drawn from the stream that is handed in, so that the same study at the same step is asked the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from rightlung.core.keyed import Stream
from rightlung.lexicon import find, positive_prompts, prompt
from rightlung.lexicon.entities import entity_spans
from rightlung.lexicon.side_changes import with_sides_exchanged, without_side
from rightlung.models.encoders.tokenizer import MASK
from rightlung.training.facts import DEVICES, NO_FINDING, Facts, ToldText
from rightlung.training.recipe import DataEntry

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
TRIES = 4
"""Other studies that are looked at for a phrase which is false of this one."""


@dataclass(frozen=True, slots=True)
class DrawnPhrase:
    """A phrase asked of an image: whether it is to be seen there, and the targets that it is about, where known."""

    text: str
    present: bool
    targets: tuple[int, ...] = ()


Other = Callable[[], Facts]
"""Draws another study of the same source."""


@cache
def finding_prompts(name: str) -> tuple[str, ...]:
    """Return the ways to say that a finding is there; a label of one's own has one."""
    return positive_prompts(name) if find(name) is not None else (prompt(name),)


def draw_texts(facts: Facts, entry: DataEntry, stream: Stream) -> list[str]:
    """Draw ``entry.texts`` texts that an image is paired with, none twice before all have come; never an empty one."""
    if entry.prompts == "labels" or not facts.told:
        return [_label_text(facts, entry, stream) for _ in range(entry.texts)]
    if entry.text == "report" and facts.report.strip():
        return [facts.report] * entry.texts
    told = facts.told
    if entry.text == "abnormal":
        told = tuple(sentence for sentence in told if sentence.abnormal) or told
    if entry.text == "abnormal-first":
        first, rest = (stream.shuffled(one for one in told if one.abnormal is kind) for kind in (True, False))
        order = [*first, *rest]
        return [order[number % len(order)].text for number in range(entry.texts)]
    if entry.texts == 1:
        return [stream.choice(told).text]
    order = stream.shuffled(told)
    return [order[number % len(order)].text for number in range(entry.texts)]


def _label_text(facts: Facts, entry: DataEntry, stream: Stream) -> str:
    names = [name for name in facts.labels if name != NO_FINDING]
    if not names and (NO_FINDING in facts.labels or entry.absent == "negative"):
        names = [NO_FINDING]
    if not names:  # nothing is known of it, so nothing is said
        return "frontal chest radiograph"
    return stream.choice(finding_prompts(stream.choice(names)))


def draw_phrases(
    facts: Facts, entry: DataEntry, stream: Stream, other: Other, universe: frozenset[str] = frozenset()
) -> list[DrawnPhrase]:
    """Draw up to ``entry.phrases`` phrases. ``universe`` are all findings that the source's labels name."""
    if entry.prompts == "labels":
        return _label_prompts(facts, entry, stream, universe)
    seen = stream.shuffled(told for told in facts.told if (told.seen if entry.examples is None else told.targets))
    nowhere = stream.shuffled(
        told for told in facts.told if told.seen is False and (entry.examples is None or not told.targets)
    )
    asked: list[DrawnPhrase] = []
    for _ in range(entry.phrases):
        drawn = None
        kind = stream.random()
        if kind < entry.foreign:
            drawn = _foreign(facts, stream, other)
        elif kind < entry.foreign + entry.swapped:
            drawn = _swapped(facts, stream)
        if drawn is None:
            drawn = _own(facts, entry, stream, seen, nowhere)
        if drawn is not None:
            asked.append(drawn)
    return asked


def _own(
    facts: Facts, entry: DataEntry, stream: Stream, seen: list[ToldText], nowhere: list[ToldText]
) -> DrawnPhrase | None:
    """Take the next of the study's own sentences, those that tell of something preferred."""
    wants_seen, wants_prompt = stream.chance(entry.positive), stream.chance(float(entry.prompts))
    wants_strip = stream.chance(entry.stripped)
    if wants_prompt:
        drawn = _present_prompt(facts, stream) if wants_seen else _absent_prompt(facts, stream)
        if drawn is not None:
            return drawn
    if seen and (wants_seen or not nowhere):
        told = seen.pop()
        stripped = without_side(told.text) if wants_strip and told.side is not None else None
        return DrawnPhrase(stripped or told.text, told.seen is not False, told.targets)
    return DrawnPhrase(nowhere.pop().text, False) if nowhere else None


def _present_prompt(facts: Facts, stream: Stream) -> DrawnPhrase | None:
    if not facts.targets_of:
        return None
    name = stream.choice(sorted(facts.targets_of))
    return DrawnPhrase(stream.choice(finding_prompts(name)), True, facts.targets_of[name])


def _absent_prompt(facts: Facts, stream: Stream) -> DrawnPhrase | None:
    if not facts.absent:
        return None
    return DrawnPhrase(stream.choice(finding_prompts(stream.choice(sorted(facts.absent)))), False)


def _foreign(facts: Facts, stream: Stream, other: Other) -> DrawnPhrase | None:
    """Take a sentence that is true of another study, and of whose findings none is there in this one."""
    for _ in range(TRIES):
        theirs = other()
        if theirs.id == facts.id:
            continue
        possible = [
            told for told in theirs.told
            if told.targets and told.positive and told.positive.isdisjoint(facts.present)
            and (told.positive <= facts.absent)
        ]  # fmt: skip
        if possible:
            return DrawnPhrase(stream.choice(possible).text, False)
    return None


def _swapped(facts: Facts, stream: Stream) -> DrawnPhrase | None:
    """Take a sentence about one side and say the same of the other, where nothing of the kind is."""
    possible = [
        text for told in facts.told
        if told.side is not None and (text := with_sides_exchanged(told.text)) is not None
    ]  # fmt: skip
    return DrawnPhrase(stream.choice(possible), False) if possible else None


def _label_prompts(facts: Facts, entry: DataEntry, stream: Stream, universe: frozenset[str]) -> list[DrawnPhrase]:
    """Ask for labels that are there and for labels that are not, in turn where both can be."""
    there = stream.shuffled(sorted(name for name in facts.labels if name != NO_FINDING))
    healthy = NO_FINDING in facts.labels
    if entry.absent == "negative" or healthy:
        missing = universe - facts.present - {NO_FINDING}
        if healthy and entry.absent == "unknown":
            missing -= {DEVICES}  # "no finding" is said of patients with tubes
    else:
        missing = facts.absent
    gone = stream.shuffled(sorted(missing))
    asked = []
    for _ in range(entry.phrases):
        if not there and not gone:
            break
        if there and (not gone or stream.chance(entry.positive)):
            asked.append(DrawnPhrase(stream.choice(finding_prompts(there.pop())), True))
        elif gone:
            asked.append(DrawnPhrase(stream.choice(finding_prompts(gone.pop())), False))
    return asked


def hide_words(text: str, share: float, stream: Stream) -> str:
    """Return a text with each word hidden by a chance of ``share`` (Wrong Lung, 4.1); one always stays."""
    return _hidden(text, [match.span() for match in _WORD.finditer(text)], share, stream)


def hide_entities(text: str, share: float, stream: Stream) -> str:
    """Return a text with each clinical entity hidden by a chance of ``share``; one always stays."""
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
