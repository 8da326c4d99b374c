"""Exchanging images between patients: a seeded derangement within windows of a source.

Each study of a window gets the image of another patient, and each image is used once. Windows are fixed stretches of
the source, so partners depend on the seed, the ids and the patients only, not on batch sizes, limits or interruptions,
and only one window of studies is needed at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rightlung.core.keyed import text_digest

WINDOW = 64
"""Smallest number of studies in a window, unless the source has fewer."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A study and its patient. A study without a patient counts as its own patient."""

    study: str
    patient: str | None = None

    @property
    def group(self) -> tuple[str, str]:
        """The patient, or the study if the patient is unknown."""
        return ("study", self.study) if self.patient is None else ("patient", self.patient)


def windows(count: int, window: int = WINDOW) -> Iterator[range]:
    """Divide ``count`` positions into nearly equal stretches of at least ``window``.

    >>> list(windows(10, 4))
    [range(0, 5), range(5, 10)]
    """
    number = max(1, count // window)
    return (range(part * count // number, (part + 1) * count // number) for part in range(number))


def exchanged(owners: Sequence[Owner], seed: int) -> dict[str, str] | None:
    """Return the study whose image each study gets, always another patient's; None if impossible.

    Patients are shuffled with their studies kept together, and each study gets the image as many places further as the
    largest patient has studies. This fails only if one patient has more than half of the studies.
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
    """Exchange images if one patient has more than half of a window: ``others``, from outside it, lend theirs.

    Lenders are added until an exchange exists, at most as many as the window is long; then images are lent more than
    once. None if there is only one patient.
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
