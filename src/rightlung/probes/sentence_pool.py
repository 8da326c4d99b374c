"""Sentences and findings of neighbouring studies, to draw from ("That's the Wrong Lung!", appendix A.5).

A pool is gathered over a window of the source, or over all studies that are evaluated, and holds words only.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rightlung.core import Phrase, Study
from rightlung.probes.exchange import Owner
from rightlung.probes.synthetic import ConditionPool, conditions_of

_TRIES = 64


@dataclass(frozen=True, slots=True)
class PooledSentence:
    """A sentence without its target, and the study it comes from."""

    phrase: Phrase
    owner: Owner


@dataclass(frozen=True, slots=True)
class SentencePool:
    """The sentences of several studies, and the conditions they mention at each place."""

    placed: Sequence[PooledSentence] = ()
    """Sentences with regions."""
    others: Sequence[PooledSentence] = ()
    """Sentences without regions."""
    conditions: ConditionPool = field(default_factory=ConditionPool)

    @classmethod
    def of(cls, studies: Iterable[Study], lent: Iterable[Study] = ()) -> SentencePool:
        """Gather the sentences and conditions of ``studies``, in their order, and the sentences only of ``lent``."""
        placed: list[PooledSentence] = []
        others: list[PooledSentence] = []
        conditions = ConditionPool()
        for own, some in ((True, studies), (False, lent)):
            for study in some:
                owner = Owner(study.id, study.patient)
                for phrase in (one.without_target() for one in study.phrases):
                    (placed if phrase.regions else others).append(PooledSentence(phrase, owner))
                    for condition in conditions_of(phrase) if own else ():
                        conditions.add(condition)
        return cls(tuple(placed), tuple(others), conditions)

    def draw(self, owner: Owner, phrase: Phrase, dice: random.Random) -> Phrase | None:
        """Draw a sentence of another patient with other words, one with regions if possible; None if there is none."""
        for some in (self.placed, self.others):
            for _ in range(_TRIES if some else 0):  # nearly every draw will do; the full search is for the rest
                sentence = dice.choice(some)
                if _is_other(sentence, owner, phrase):
                    return sentence.phrase
            if fitting := [sentence for sentence in some if _is_other(sentence, owner, phrase)]:
                return dice.choice(fitting).phrase
        return None


def _is_other(sentence: PooledSentence, owner: Owner, phrase: Phrase) -> bool:
    return sentence.owner.group != owner.group and sentence.phrase.text.casefold() != phrase.text.casefold()
