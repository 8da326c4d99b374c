"""Other targets for a phrase: region boxes as in "That's the Wrong Lung!", trimmed, shuffled or drawn at random.

The paper's labels are boxes of anatomical regions: a phrase about a spot in the left lung has the whole left lung as
its target. With exact masks, both can be scored.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from rightlung.core import Box, Phrase, Study
from rightlung.lexicon.regions import LUNGS, with_containing
from rightlung.probes.exchange import Owner, exchanged, exchanged_outside


def trimmed_regions(regions: Iterable[str]) -> tuple[str, ...]:
    """Leave out a whole lung if another region of the same side is named (appendix B.1).

    >>> trimmed_regions(["left lung", "left lower lung zone", "right lung"])
    ('left lower lung zone', 'right lung')
    """
    names = tuple(dict.fromkeys(regions))
    return tuple(
        name
        for name in names
        if not (name in LUNGS and any(other != name and name.split()[0] in other.split() for other in names))
    )


def region_target(study: Study, phrase: Phrase, trimmed: bool = False) -> tuple[Box, ...]:
    """Return the boxes of a phrase's regions and of those that contain them, as far as the study has them."""
    return boxes_named(study.regions, phrase.regions, trimmed)


def boxes_named(boxes: Mapping[str, Box], regions: Iterable[str], trimmed: bool = False) -> tuple[Box, ...]:
    """Return an image's boxes of the named regions, with the lungs that contain them or trimmed."""
    names = with_containing(regions)
    return tuple(boxes[name] for name in (trimmed_regions(names) if trimmed else names) if name in boxes)


def derangement(count: int, chance: random.Random) -> list[int] | None:
    """Return a uniformly random derangement of ``count`` things, None if there is none.

    >>> derangement(1, random.Random(0)) is None, derangement(2, random.Random(0))
    (True, [1, 0])
    """
    order = list(range(count))
    while any(place == number for place, number in enumerate(order)):
        if count == 1:
            return None
        order = list(range(count))
        chance.shuffle(order)  # is a derangement more than one time in three
    return order


def exchanged_targets(owners: Sequence[Owner], seed: int) -> dict[str, str] | None:
    """Return the instance whose target each instance gets, of another patient (Random BBoxes, appendix A.5).

    ``owners`` are the instances with a target (``Owner.study`` names the instance). Each target is used once unless one
    patient has more than half of them. None if there is only one patient.
    """
    return exchanged(owners, seed) or exchanged_outside(owners, (), seed) or None
