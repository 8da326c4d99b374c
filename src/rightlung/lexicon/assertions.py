"""Findings that a sentence asserts, with the scope of negation, uncertainty and statements about something else.

The scope rules follow NegEx (Chapman et al., J Biomed Inform 2001) with the list grammar of radiology reports: a
negation covers "or", "and" and commas to the end of its list, and a list ends at a verb, a new clause, or a word that
begins a new statement ("no effusion, small nodule").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rightlung.lexicon.rules import Kind, Meaning, Rules, Structure

Event = tuple[int, int, Meaning]
PolarityName = Literal["positive", "negative", "uncertain"]

_NEW_STATEMENT = frozenset({
    "a", "an", "the", "there", "this", "these", "it", "possible", "probable", "likely", "possibly", "probably",
    "questionable", "also", "again",
})  # fmt: skip
_ENDS_LIST = ("boundary", "exception", "verb", "negation", "doubt", "passing", "or", "either")
_NORMAL = frozenset({"normal", "clear", "sharp", "intact", "midline"})
# Words of an exception that refers to the finding before it: "no pneumothorax other than the tiny left one".
_REMNANT = frozenset({
    "one", "that", "those", "trace", "tiny", "small", "minimal", "mild", "slight", "subtle", "moderate", "large",
    "known", "residual", "persistent", "loculated", "left", "right", "bilateral", "apical", "basilar", "apex", "base",
})  # fmt: skip


@dataclass(slots=True, eq=False)
class Assertion:
    """One finding, or one state of a structure, as the sentence asserts it; ``start`` and ``end`` are word indices."""

    start: int
    end: int
    meaning: str | Structure  # a finding, a state, or the structure that has states
    negated: bool
    doubted: bool
    passing: bool
    contrary: bool = False  # a normal state that is negated: "not clear"
    states: list[Assertion] = field(default_factory=list)


class _Scope:
    """Processes the events of a sentence from left to right."""

    def __init__(self, words: list[str], events: list[Event], rules: Rules) -> None:
        self.words = words
        self.events = events
        self.kinds = [*(kind for _, _, (kind, _) in events), "", ""]
        self.describing = rules.describing
        self.negated = self.doubted = self.passing = False
        self.listing = False  # whether uncertainty continues over commas
        self.hit = False  # whether the open scope contains anything
        self.said: list[Assertion] = []
        self.trail: list[Assertion | Kind] = []  # assertions of this clause and what joins them
        self.group: list[Assertion] = []  # the structures that a state would refer to
        self.predicated = self.divided = False
        self.adjective: Assertion | None = None
        self.alternative: Assertion | None = None  # the assertion before an "or"
        self.not_end = -1  # end of a "not" that only adverbs have followed

    def read(self) -> list[Assertion]:
        for number, (start, end, (kind, data)) in enumerate(self.events):
            if kind == "mention":
                self._mention(start, end, data)
            elif kind == "structure":
                self._structure(start, end, data)
            elif kind == "state":
                self._state(number, start, end, data)
            elif kind in ("comma", "and", "or"):
                self._join(kind, number, end)
            elif kind == "verb":
                self._verb()
            elif kind == "negation":
                self._open(negated=True)
                longer = self.words[start:end] == ["no", "longer"]
                self.not_end = end if longer or self.words[start] in ("not", "never") else -1
            elif kind in ("doubt", "listing"):
                self._doubt(kind == "listing")
            elif kind in ("negated", "doubted"):
                self._look_back(kind, number)
            elif kind == "either":
                if self.trail and isinstance(self.trail[-1], Assertion):
                    self.trail[-1].doubted = True
                self._open(doubted=True)
            elif kind == "passing":
                self._open(passing=True)
            elif kind in ("boundary", "exception"):
                if kind == "exception":
                    self._except(number, end)
                self._close()
                self._new_clause()
            elif kind == "reset":
                self._close()
        for item in self.said:
            # "normal heart size and mediastinum": the second has no state of its own.
            if isinstance(item.meaning, Structure) and len(item.states) > 1 and item.states[0].start < item.start:
                later = [state for state in item.states if state.start > item.start]
                item.states = later or item.states
        return self.said

    def _open(self, negated: bool = False, doubted: bool = False, passing: bool = False, listing: bool = False) -> None:
        self.negated, self.doubted, self.passing, self.listing = negated, doubted, passing, listing
        self.hit = False
        self.alternative = None

    def _doubt(self, listing: bool) -> None:
        # Passing stays: "evaluate for possible pneumonia" is still not about this image.
        self._open(self.negated, True, self.passing, listing)

    def _close(self) -> None:
        self.negated = self.doubted = self.passing = self.listing = False
        self.alternative = None

    def _new_clause(self) -> None:
        self.trail = []
        if self.predicated:  # else the state is still to come: "heart size is hard to judge but may be increased"
            self.group = []
        self.predicated = self.divided = False
        self.adjective = None

    def _mention(self, start: int, end: int, finding: str) -> None:
        item = Assertion(start, end, finding, self.negated, self.doubted, self.passing)
        self.hit = True
        self.trail.append(item)
        self.said.append(item)
        before = self.alternative
        if before is not None and before.meaning != finding and not before.negated and not item.negated:
            before.doubted = item.doubted = True
        self.alternative = None

    def _structure(self, start: int, end: int, structure: Structure) -> None:
        if self.predicated:
            self.group, self.predicated, self.divided = [], False, False
        item = Assertion(start, end, structure, False, False, self.passing)
        self.hit = True
        self.said.append(item)
        self.group.append(item)
        self.divided = False
        if self.adjective is not None:
            item.states.append(self.adjective)

    def _state(self, number: int, start: int, end: int, state: str) -> None:
        item = Assertion(start, end, state, self.negated, self.doubted, self.passing)
        item.contrary = self.negated and state in _NORMAL and self.not_end >= 0 and start - self.not_end <= 2
        before_structure = self._stands_before_structure(number, end)
        # After a comma or "and", a state belongs to what follows, or to nothing that the previous structures share.
        elsewhere = self.divided and (before_structure or self.adjective is not None)
        if self.group and not (self.predicated or elsewhere):
            self._predicate(item)
            self.predicated, self.divided = True, False
        elif before_structure:
            self.group, self.predicated, self.divided = [], False, False
            self.adjective = item
            self.trail.append(item)
        elif self.predicated and self.divided:  # "normal in size and unremarkable"
            self._predicate(item)
            self.divided = False
        elif state == "borderline":
            self._doubt(listing=False)

    def _predicate(self, item: Assertion) -> None:
        for structure in self.group:
            structure.states.append(item)
        self.trail.append(item)
        self.hit = True
        self.adjective = None
        if item.meaning == "normal" and not item.contrary:
            self._deny_joined()

    def _deny_joined(self) -> None:
        """Negate a finding in one list with normal structures: "heart and congestion are normal"."""
        *before, _ = self.trail  # the last is the state itself
        if len(before) > 2 and before[-1] == "verb" and before[-3] == "and":
            item = before[-2]
            if isinstance(item, Assertion) and item.start > self.group[-1].start:
                item.negated = True

    def _stands_before_structure(self, number: int, end: int) -> bool:
        """Whether a state is an adjective of the next structure: "an ectatic, tortuous aorta"."""
        for start, following_end, (kind, _) in self.events[number + 1 : number + 4]:
            if start - end > 3:
                return False
            if kind == "structure":
                return True
            if kind != "state":
                return False
            end = following_end
        return False

    def _join(self, kind: Kind, number: int, end: int) -> None:
        self.trail.append(kind)
        self.divided = True
        self.not_end = -1
        if kind == "or":
            last = self.trail[-2] if len(self.trail) > 1 else None
            if isinstance(last, Assertion) and not self.negated and last in self.said[-1:]:
                self.alternative = last
            return
        if not (self.negated or self.doubted or self.passing) or not self.hit:
            return
        word = self.words[end] if end < len(self.words) else ""
        new_structure = self.kinds[number + 1] == "structure" and self.kinds[number + 2] in ("verb", "state")
        if word in _NEW_STATEMENT or new_structure:
            self._close()
        elif kind == "and":
            if word in self.describing and not self.listing:
                self._close()
        elif not self.listing and (word in self.describing or not self.negated):
            # The list goes on if an "or" follows before it ends.
            stops = (later for later in self.kinds[number + 1 :] if later in _ENDS_LIST)
            if next(stops, "") not in ("or", "either"):
                self._close()

    def _except(self, number: int, end: int) -> None:
        """Make the last negated finding present if the exception from it names no other finding."""
        denied = next((item for item in reversed(self.trail) if isinstance(item, Assertion)), None)
        if denied is None or not denied.negated or denied not in self.said:
            return
        doubted, last = False, len(self.words)
        for start, _, (kind, _) in self.events[number + 1 :]:
            if kind in ("boundary", "negation") or (kind == "comma" and not _REMNANT.isdisjoint(self.words[end:start])):
                last = start
                break
            if kind in ("mention", "structure"):
                return
            doubted = doubted or kind in ("doubt", "doubted")
        if not _REMNANT.isdisjoint(self.words[end:last]):
            denied.negated, denied.doubted = False, doubted

    def _verb(self) -> None:
        self.trail.append("verb")
        self.divided = False
        if self.hit:
            self._close()
        self.alternative = None

    def _look_back(self, kind: Kind, number: int) -> None:
        """Negate or doubt what comes before, back to the start of its list; if there is nothing, what follows."""
        joined = listed = found = False
        mention_next = self.kinds[number + 1] == "mention"
        forward = kind == "doubted" and mention_next and self.trail[-1:] == ["comma"]  # ", less likely edema"
        for entry in () if forward else reversed(self.trail):
            if isinstance(entry, Assertion):
                if found and joined and not listed:
                    break
                entry.negated = kind == "negated"
                entry.doubted = entry.doubted or kind == "doubted"
                found, joined = True, False
            elif entry != "verb":
                joined = True
                listed = listed or entry in ("and", "or")
            elif found:
                break
        if found:
            self._close()
        else:
            self._open(negated=kind == "negated", doubted=kind == "doubted")


def assertions(words: list[str], rules: Rules) -> tuple[list[Assertion], list[Event]]:
    """Return the assertions of the words, in order, and the events that separate them."""
    events = rules.phrases.find_all(words)
    return _Scope(words, events, rules).read(), events


def _polarity(negated: bool, doubted: bool) -> PolarityName:
    return "negative" if negated else "uncertain" if doubted else "positive"


def polarities_of(item: Assertion) -> list[tuple[str, PolarityName]]:
    """Return the findings of one assertion with their polarity; empty if it does not count.

    A finding that is both negated and doubted ("no definite", "nothing to suggest") is negative.
    """
    meaning = item.meaning
    if item.passing:
        return []
    if isinstance(meaning, str):
        polarity = _polarity(item.negated, item.doubted or meaning[0] == "?")
        return [(finding, polarity) for finding in meaning.removeprefix("?").split(", ")]
    judged: list[tuple[str, PolarityName]] = []
    for state in item.states:
        name = state.meaning
        assert isinstance(name, str)
        negated = state.negated
        if negated and name == "abnormal":
            name, negated = "normal", False
        for finding in meaning.says.get(name, ()):
            judged.append((finding.removeprefix("?"), _polarity(negated, state.doubted or finding[0] == "?")))
        if not negated or state.contrary:  # lungs that are not clear may have an opacity, or something else
            polarity = "uncertain" if negated or state.doubted else "negative"
            judged.extend((finding, polarity) for finding in meaning.denies.get(name, ()))
    return judged
