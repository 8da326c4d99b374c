"""Whose image takes the place of whose: a seeded derangement between patients, a window of the source at a time.

A model that sees what it grounds must fail when the image is another patient's; one that paints what the words say does
not notice. So every study gets the image of another patient, and every image is used once (a permutation of the window
without a fixed point).

The windows are fixed stretches of the whole source: which study has which partner follows from the seed, the source's
order, and the ids and patients in the window, never from batch sizes, limits or where a run was stopped. And no more
than a window of studies need be at hand, so a source may be endless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rightlung.core.keyed import text_digest

WINDOW = 64
"""Studies that exchange images among each other, at least; fewer only where the source has fewer."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A study as far as exchanging goes. Where the patient is not known, the study counts as a patient of its own."""

    study: str
    patient: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """What must not stay the same when images are exchanged."""
        return ("study", self.study) if self.patient is None else ("patient", self.patient)


def windows(count: int, window: int = WINDOW) -> Iterator[range]:
    """Divide ``count`` positions into stretches of at least ``window``, as even as can be.

    >>> list(windows(10, 4))
    [range(0, 5), range(5, 10)]
    """
    number = max(1, count // window)
    return (range(part * count // number, (part + 1) * count // number) for part in range(number))


def exchanged(owners: Sequence[Owner], seed: int) -> dict[str, str] | None:
    """Return for each study the study whose image it gets, another patient's; None where that cannot be.

    The patients are put in a random order with their studies together, and everybody gets the image as many places on
    as the largest patient has studies: beyond the own patient's, and, where no patient has more than half of all, not
    yet round to it again. Where one has more, no exchange exists.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for owner in owners:
        groups.setdefault(owner.group, []).append(owner.study)
    largest = max(map(len, groups.values()), default=0)
    if not owners or 2 * largest > len(owners):
        return None
    order = [
        study
        for group in sorted(groups, key=lambda group: (text_digest(seed, *group), group))
        for study in sorted(groups[group], key=lambda study: (text_digest(seed, study), study))
    ]
    return {study: order[(place + largest) % len(order)] for place, study in enumerate(order)}


def exchanged_outside(owners: Sequence[Owner], others: Iterable[Owner], seed: int) -> dict[str, str] | None:
    """Exchange where one patient has more than half of a window: ``others``, from beyond it, lend their images.

    They are taken one after the other until the exchange exists, but no more than the window is long once there is one
    of another patient; then images are lent more than once. None where all are of one patient.
    """
    by_id = {owner.study: owner for owner in owners}
    for other in others:
        by_id.setdefault(other.study, other)
        several = len({owner.group for owner in by_id.values()}) > 1
        if several and (len(by_id) >= 2 * len(owners) or exchanged([*by_id.values()], seed) is not None):
            break
    pool = [*by_id.values()]
    found = exchanged(pool, seed)
    if found is not None:
        return {owner.study: found[owner.study] for owner in owners}
    result = {}
    for owner in owners:
        lenders = [other.study for other in pool if other.group != owner.group]
        if not lenders:
            return None
        result[owner.study] = min(lenders, key=lambda lender: (text_digest(seed, owner.study, lender), lender))
    return result
