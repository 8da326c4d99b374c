"""What is said of the studies round about: sentences to draw from, and findings to exchange ("That's the Wrong Lung!",
appendix A.5).

It is gathered over a window of the source, or over all studies that are evaluated, and holds words only.
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
class Told:
    """A sentence, and of whom it is told."""

    phrase: Phrase
    """Words, regions and findings; without boxes and mask."""
    owner: Owner


@dataclass(frozen=True, slots=True)
class Company:
    """The sentences of several studies, and which conditions they tell of which places."""

    placed: Sequence[Told] = ()
    """Sentences with regions."""
    others: Sequence[Told] = ()
    """Sentences without."""
    conditions: ConditionPool = field(default_factory=ConditionPool)

    @classmethod
    def of(cls, studies: Iterable[Study], lent: Iterable[Study] = ()) -> Company:
        """Gather what is said of ``studies``, in their order; from those ``lent`` only sentences are taken."""
        placed: list[Told] = []
        others: list[Told] = []
        conditions = ConditionPool()
        for own, some in ((True, studies), (False, lent)):
            for study in some:
                owner = Owner(study.id, study.patient)
                for phrase in study.phrases:
                    said = phrase.without_target()
                    (placed if said.regions else others).append(Told(said, owner))
                    for condition in conditions_of(said) if own else ():
                        conditions.add(condition)
        return cls(tuple(placed), tuple(others), conditions)

    def draw(self, owner: Owner, phrase: Phrase, dice: random.Random) -> Phrase | None:
        """Draw a sentence of another patient with other words, one with regions where there is any; None if none is."""
        for some in (self.placed, self.others):
            for _ in range(_TRIES if some else 0):  # nearly all will do; only where few do are they looked for
                told = dice.choice(some)
                if _is_other(told, owner, phrase):
                    return told.phrase
            if fitting := [told for told in some if _is_other(told, owner, phrase)]:
                return dice.choice(fitting).phrase
        return None


def _is_other(told: Told, owner: Owner, phrase: Phrase) -> bool:
    return told.owner.group != owner.group and told.phrase.text.casefold() != phrase.text.casefold()
