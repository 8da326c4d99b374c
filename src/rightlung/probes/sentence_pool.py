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


Sentences = Sequence[tuple[Phrase, Owner]]
"""Sentences without their targets, each with the study it comes from."""


@dataclass(frozen=True, slots=True)
class SentencePool:
    """The sentences of several studies, and the conditions reported at each place."""

    placed: Sentences = ()
    """Sentences with regions."""
    others: Sentences = ()
    """Sentences without regions."""
    conditions: ConditionPool = field(default_factory=ConditionPool)

    @classmethod
    def of(cls, studies: Iterable[Study], lent: Iterable[Study] = ()) -> SentencePool:
        """Collect the sentences and conditions of ``studies``, and only the sentences of ``lent``."""
        placed: list[tuple[Phrase, Owner]] = []
        others: list[tuple[Phrase, Owner]] = []
        conditions = ConditionPool()
        for own, some in ((True, studies), (False, lent)):
            for study in some:
                owner = Owner(study.id, study.patient)
                for phrase in (one.without_target() for one in study.phrases):
                    (placed if phrase.regions else others).append((phrase, owner))
                    for condition in conditions_of(phrase) if own else ():
                        conditions.add(condition)
        return cls(tuple(placed), tuple(others), conditions)

    def draw(self, owner: Owner, phrase: Phrase, dice: random.Random) -> Phrase | None:
        """Draw another patient's sentence with other words, one with regions if possible; None if there is none."""

        def is_other(sentence: Phrase, of: Owner) -> bool:
            return of.group != owner.group and sentence.text.casefold() != phrase.text.casefold()

        for some in (self.placed, self.others):
            for _ in range(_TRIES if some else 0):  # nearly every draw fits; else search all
                if is_other(*(drawn := dice.choice(some))):
                    return drawn[0]
            if fitting := [sentence for sentence, of in some if is_other(sentence, of)]:
                return dice.choice(fitting)
        return None
